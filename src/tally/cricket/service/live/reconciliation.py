"""Archives matches that the score service no longer lists, after processing their final state.

A match may be missing from one response by mistake, so it counts as finished only after a delay.
Its final state is requested by id; if the match is over, its end is published even if balls are
still missing. Expired replays are deleted.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tally.cricket.model.records import Fixture
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.pipeline import IS_OVER_ATTRIBUTE
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

# A match counts as finished this long after the last poll that listed it.
GONE_AFTER_MS: Final = 20_000

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Compares the live fixtures with the matches that the score service lists."""

    scores: LiveScores
    workers: MatchWorkers
    fixtures: FixtureRepository
    matches: ActiveMatchRepository
    clock: Clock

    async def run(self, live: Iterable[Fixture], listed: Collection[str]) -> None:
        now = self.clock.milliseconds()
        for fixture in live:
            if fixture.replay_of is not None:
                await self._delete_if_expired(fixture, now)
            elif (
                fixture.match_id not in listed
                and (fixture.live_updated_at or 0) <= now - GONE_AFTER_MS
            ):
                await self._archive(fixture, now)

    async def _delete_if_expired(self, replay: Fixture, now: int) -> None:
        if replay.replay_expires_at is not None and replay.replay_expires_at <= now:
            await self.fixtures.delete_replay(replay.match_id)
            self.workers.forget(replay.match_id)

    async def _archive(self, fixture: Fixture, now: int) -> None:
        try:
            final = await self.scores.match(fixture.match_id)
        except (Unavailable, RateLimited) as error:
            _log.warning(
                "Final state of a match is not available yet",
                action="archive_deferred",
                match=fixture.match_id,
                error=error,
            )
            return
        if final is not None and final.status.is_over:
            await self.workers.process(final, is_final=True)
            record = await self.matches.get(fixture.match_id)
            if record is not None and not record.extra.get(IS_OVER_ATTRIBUTE):
                return  # Another instance processes it, or it failed: the next poll tries again.
            await self.fixtures.update(
                fixture.match_id,
                status=final.status,
                note=final.note,
                winner_team_id=final.winner_team_id,
            )
        if await self.fixtures.archive(fixture.match_id, now):
            _log.info("Match archived", action="match_archived", match=fixture.match_id)
