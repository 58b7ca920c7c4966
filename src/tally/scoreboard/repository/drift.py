"""Comparing the board in Redis with PostgreSQL, page by page, and setting right what differs, and only that.

A difference may be a change on its way: PostgreSQL has it, and Redis gets it in a moment. So
whoever seems wrong is looked at again, first in Redis and then in PostgreSQL. If they still differ,
Redis is set to what PostgreSQL says, provided that it is still as it was seen; whoever changed it
in the meantime was newer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.scoreboard.model import DriftReport, Score
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.scores import ScoreRepository

PAGE: Final = 500
MAX_EXAMPLES: Final = 20


@dataclass(frozen=True, slots=True)
class DriftChecker:
    """Compares and heals; memory is bounded by the size of a page."""

    board: LeaderboardCache
    scores: ScoreRepository

    async def run(self, *, repair: bool) -> DriftReport:
        """What differs, set right if so wished.

        LeaderboardNotCached where there is no board to compare with.
        """
        drift = DriftReport()
        async for user_ids, scores, entries in self.scores.comparable(PAGE):
            seen_entries, seen_scores = await self.board.stored(user_ids)
            drift = replace(drift, compared=drift.compared + len(user_ids))
            # Nearly always nothing differs, and then a million players are compared as a few
            # thousand lists.
            if seen_entries != list(entries) or seen_scores != list(scores):
                rows = zip(
                    user_ids,
                    zip(entries, scores, strict=True),
                    zip(seen_entries, seen_scores, strict=True),
                    strict=True,
                )
                drift = await self._judge(
                    drift,
                    [user_id for user_id, right, seen in rows if seen != right],
                    repair=repair,
                )
        shown = drift.compared - (0 if repair else drift.missing)
        # Everybody who should be there is. If that is as many as there are, nobody else can be.
        if await self.board.sizes() != (shown, shown):
            drift = await self._strays(drift, repair=repair)
            drift = await self._extras(drift, repair=repair)
        return drift

    async def refresh(self, user_ids: Sequence[str]) -> DriftReport:
        """Set these players right, whatever Redis was told of them: also such as were deleted and have come back by late news."""
        return await self._judge(DriftReport(compared=len(user_ids)), user_ids, repair=True)

    async def _strays(self, drift: DriftReport, *, repair: bool) -> DriftReport:
        async for members in self.board.member_pages(PAGE):
            found = len(await self.board.strays(members, remove=repair))
            drift = replace(
                drift,
                strays=drift.strays + found,
                repaired=drift.repaired + (found if repair else 0),
            )
        return drift

    async def _extras(self, drift: DriftReport, *, repair: bool) -> DriftReport:
        async for page in self.board.player_pages(PAGE):
            user_ids = sorted(set(page))
            known = await self.scores.find_many(user_ids)
            drift = await self._judge(
                drift, [user_id for user_id in user_ids if user_id not in known], repair=repair
            )
        return drift

    async def _judge(
        self, drift: DriftReport, user_ids: Sequence[str], *, repair: bool
    ) -> DriftReport:
        """Look again at those who seem wrong, and add what they are to the drift."""
        if not user_ids:
            return drift
        seen = await self.board.look(user_ids)
        right = await self.scores.find_many(user_ids)
        for user_id, found in zip(user_ids, seen, strict=True):
            score = right.get(user_id)
            if found.shows(score):
                continue
            repaired = repair and await self.board.repair(user_id, found, score)
            drift = _with(drift, user_id, score, is_missing=not found.score, repaired=repaired)
        return drift


def _with(
    drift: DriftReport, user_id: str, score: Score | None, *, is_missing: bool, repaired: bool
) -> DriftReport:
    examples = drift.examples if len(drift.examples) >= MAX_EXAMPLES else (*drift.examples, user_id)
    return replace(
        drift,
        extra=drift.extra + (score is None),
        missing=drift.missing + (score is not None and is_missing),
        wrong=drift.wrong + (score is not None and not is_missing),
        repaired=drift.repaired + repaired,
        examples=examples,
    )
