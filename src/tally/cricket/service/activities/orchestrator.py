"""MatchOrchestrator: checks all live and recently finished matches every 30 seconds.

A match that goes live gets its record in `active-matches`, and each device of each follower gets a
push-to-start. The same check covers matches that were live before the program started, and
followers whose Live Activity is missing. A record that has not been refreshed for a while has lost
its instance and is taken over. A match that is over is finished.

One instance at a time handles a match, under a lock per match. A failure affects only its match.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from tally.cricket.model.pipeline import is_finish_due, pipeline_state
from tally.cricket.model.records import STALE_MATCH_MS, ActiveMatch, Fixture, PollerState
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.channels import MatchChannels
from tally.cricket.service.activities.finishing import MatchFinisher
from tally.cricket.service.activities.sweeps import Sweeper
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

LOCK_SECONDS: Final = 10.0
MAX_CONCURRENT_MATCHES: Final = 4

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchOrchestrator:
    """Processes all matches, one lock per match.

    `owner` identifies this instance. `locks` must not be those of the pipeline.
    """

    fixtures: FixtureRepository
    matches: ActiveMatchRepository
    sweeper: Sweeper
    finisher: MatchFinisher
    channels: MatchChannels
    locks: Locks
    clock: Clock
    owner: str

    async def run(self) -> None:
        """Process all matches once."""
        live = {fixture.match_id for fixture in await self.fixtures.live()}
        active = {match.match_id for match in await self.matches.list_unfinished()}
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_MATCHES)

        async def process(match_id: str) -> None:
            async with semaphore:
                await self._process_locked(match_id)

        await asyncio.gather(*(process(match_id) for match_id in sorted(live | active)))
        await self.channels.delete_unused()

    async def _process_locked(self, match_id: str) -> None:
        name = f"orchestrator:{match_id}"
        try:
            await run_with_lock(
                self.locks, self.clock, name, LOCK_SECONDS, partial(self.process, match_id)
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "Match was taken over by another instance", action="match_lost", match=match_id
            )
        except Exception:  # noqa: BLE001  (a failure must not affect the other matches)
            _log.exception("Match processing failed", action="match_failed", match=match_id)

    async def process(self, match_id: str) -> None:
        """Sweep a live match, or finish one that is over."""
        fixture, match = await self.fixtures.get(match_id), await self.matches.get(match_id)
        if fixture is not None and fixture.is_live:
            await self._process_live(fixture, match)
        elif match is not None and is_finish_due(fixture, match, self.clock.milliseconds()):
            await self._finish(match, fixture)

    async def _process_live(self, fixture: Fixture, match: ActiveMatch | None) -> None:
        now = self.clock.milliseconds()
        if match is None:
            await self.matches.create(
                ActiveMatch(match_id=fixture.match_id, last_updated_at=now, owner=self.owner)
            )
            _log.info("Match went live", action="match_live", match=fixture.match_id)
        elif (
            match.poller_state is PollerState.ENDED or match.last_updated_at + STALE_MATCH_MS < now
        ):
            await self._take_over(match, now)
        started = await self.sweeper.sweep(
            fixture, partial(self.channels.get_or_create, fixture.match_id)
        )
        if started:
            _log.info(
                "Live Activities were started",
                action="activities_started",
                match=fixture.match_id,
                count=started,
            )

    async def _take_over(self, match: ActiveMatch, now: int) -> None:
        taken_over = await self.matches.take_over(
            match.match_id, self.owner, now, now - STALE_MATCH_MS
        )
        if taken_over is not None and match.owner != self.owner:
            _log.info(
                "Match was taken over from another instance",
                action="match_taken_over",
                match=match.match_id,
                before=match.owner,
            )

    async def _finish(self, match: ActiveMatch, fixture: Fixture | None) -> None:
        archived_at = None if fixture is None else fixture.archived_at
        over_since = archived_at or pipeline_state(match).result.since
        if await self.finisher.finish(match, fixture, over_since):
            _log.info("Match was finished", action="match_over", match=match.match_id)
