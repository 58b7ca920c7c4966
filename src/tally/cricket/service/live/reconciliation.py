"""What becomes of matches that the score service no longer lists: their last state is fetched and shown, and they are archived.

A match may be missing from one answer by mistake, so it counts as gone only after some time without
it. Its last state is asked for by its id; if that says that the match is over, people see the end
of it, whatever balls are still missing. A replay is deleted when its time is over.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tally.cricket.model.records import Fixture
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.live.pipeline import IS_OVER
from tally.cricket.service.live.workers import MatchWorkers
from tally.cricket.service.ports import LiveScores
from tally.errors import RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock

# So long after the last poll that had it a match is gone.
GONE_MS: Final = 20_000

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Compares the fixtures that are live with the matches that are listed."""

    scores: LiveScores
    workers: MatchWorkers
    fixtures: FixtureRepository
    active: ActiveMatchRepository
    clock: Clock

    async def run(self, live: Iterable[Fixture], listed: Collection[str]) -> None:
        now = self.clock.milliseconds()
        for fixture in live:
            if fixture.replay_of is not None:
                await self._expire(fixture, now)
            elif fixture.match_id not in listed and (fixture.live_updated_at or 0) <= now - GONE_MS:
                await self._archive(fixture, now)

    async def _expire(self, fixture: Fixture, now: int) -> None:
        if fixture.replay_expires_at is not None and fixture.replay_expires_at <= now:
            await self.fixtures.delete_replay(fixture.match_id)
            self.workers.forget(fixture.match_id)

    async def _archive(self, fixture: Fixture, now: int) -> None:
        try:
            last = await self.scores.match(fixture.match_id)
        except (Unavailable, RateLimited) as trouble:
            _log.warning(
                "The last state of a match is not known yet",
                action="archive",
                match=fixture.match_id,
                error=trouble,
            )
            return
        if last is not None and last.status.is_over:
            await self.workers.take(last, is_final=True)
            record = await self.active.get(fixture.match_id)
            if record is not None and not record.extra.get(IS_OVER):
                return  # somebody else sees to it, or it failed: the next poll tries again
            await self.fixtures.update(
                fixture.match_id,
                status=last.status,
                note=last.note,
                winner_team_id=last.winner_team_id,
            )
        if await self.fixtures.archive(fixture.match_id, now):
            _log.info("Match archived", action="archive", match=fixture.match_id)
