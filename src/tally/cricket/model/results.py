"""The result of a match as the feed reports it: confirmed, then final.

The feed may report a wrong result for some seconds or minutes. So two consecutive polls have to
agree on a result before it is published. It is final, so that Live Activities end and follows are
deleted, when it has not changed for ten minutes. A poll of a match that is not over cancels both.
"""

from typing import Final

import msgspec

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.records import Fixture

# So many consecutive polls have to agree on a result before it is published.
CONFIRMING_POLLS: Final = 2
# A result that is unchanged for so long is final, and so is the end of a match's coverage.
FINAL_AFTER_MS: Final = 600_000


class ReportedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result in the last poll, since when it is unchanged, and how many polls agree on it.

    `text` is empty while the match is not over. `polls` counts to `CONFIRMING_POLLS`.
    """

    text: str = ""
    since: int = 0
    polls: int = 0

    @property
    def is_confirmed(self) -> bool:
        return self.polls >= CONFIRMING_POLLS

    def agrees(self, feed: MatchFeed) -> bool:
        return self.text == _result_key(feed)


def _result_key(feed: MatchFeed) -> str:
    fields = (feed.status.value, feed.winner_team_id or "", feed.draw_noresult or "", feed.note)
    return "|".join(fields)


def next_result(reported: ReportedResult, feed: MatchFeed, now: int) -> ReportedResult:
    """Return the reported result after one more poll."""
    if not feed.status.is_over:
        return ReportedResult()
    text = _result_key(feed)
    if text != reported.text:
        return ReportedResult(text, now, 1)
    return ReportedResult(text, reported.since, min(reported.polls + 1, CONFIRMING_POLLS))


class CorrectedResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A result that an operator states. It replaces that of the feed until it is removed."""

    status: MatchStatus
    note: str
    winner_team_id: str | None = None

    def apply(self, feed: MatchFeed) -> MatchFeed:
        return msgspec.structs.replace(
            feed,
            status=self.status,
            status_text=self.status.value.capitalize(),
            note=self.note,
            winner_team_id=self.winner_team_id,
            draw_noresult=None,
            is_live=False,
        )


def corrected_result(fixture: Fixture) -> CorrectedResult | None:
    """Return the result that an operator has stated for the match, if any."""
    stored = fixture.corrected_result
    return None if stored is None else msgspec.convert(dict(stored), CorrectedResult)


def correct_feed(feed: MatchFeed, fixture: Fixture | None) -> MatchFeed:
    """Return the feed with the corrected result of its fixture, if there is one."""
    result = None if fixture is None else corrected_result(fixture)
    return feed if result is None else result.apply(feed)
