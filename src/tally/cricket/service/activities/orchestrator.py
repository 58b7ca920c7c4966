"""MatchOrchestrator: every 30 seconds, a look at all matches that are live or were a moment ago.

A match that has gone live gets its record in `active-matches`, and each device of each follower a
push-to-start. It is the same for one that was live already when the program started, and for
followers who should see it and do not: a look is a look. A record that nobody has renewed for a
while has lost its instance, and is taken over. When a match is over, it is wound up.

Every match is seen to under a lock of its own, by one instance at a time; trouble with one does not
touch the others.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tally.cricket.model.records import STALE_MATCH_MS, ActiveMatch, Fixture, PollerState
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.channels import MatchChannels
from tally.cricket.service.activities.finishing import Finisher
from tally.cricket.service.activities.sweeps import Sweeper
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

LOCK_SECONDS: Final = 10.0
AT_ONCE: Final = 4
# The pipeline gets this long to hand out the final state; then the devices are told from here.
PIPELINE_MS: Final = 60_000

_log = logs.logger()


@dataclass(slots=True, kw_only=True)
class MatchOrchestrator:
    """`owner` is this instance; `locks` are its own, not those of the pipeline."""

    fixtures: FixtureRepository
    matches: ActiveMatchRepository
    sweeper: Sweeper
    finisher: Finisher
    channels: MatchChannels
    locks: Locks
    clock: Clock
    owner: str
    _over_since: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """One look at everything."""
        live = {fixture.match_id for fixture in await self.fixtures.live()}
        on = {match.match_id for match in await self.matches.all_on()}
        self._over_since = {
            match_id: since for match_id, since in self._over_since.items() if match_id in on
        }
        turns = asyncio.Semaphore(AT_ONCE)

        async def see_to(match_id: str) -> None:
            async with turns:
                await self._alone(match_id)

        await asyncio.gather(*(see_to(match_id) for match_id in sorted(live | on)))
        await self.channels.tidy()

    async def _alone(self, match_id: str) -> None:
        name = f"orchestrator:{match_id}"
        try:
            await run_with_lock(
                self.locks, self.clock, name, LOCK_SECONDS, partial(self.see_to, match_id)
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "A match was left to another instance", action="orchestrator", match=match_id
            )
        except Exception:  # noqa: BLE001  (one match must not keep the others from being seen to)
            _log.exception("A match could not be seen to", action="orchestrator", match=match_id)

    async def see_to(self, match_id: str) -> None:
        """Whatever is to be done about one match now."""
        fixture, match = await self.fixtures.get(match_id), await self.matches.get(match_id)
        if fixture is not None and fixture.is_live and not fixture.status.is_over:
            self._over_since.pop(match_id, None)
            await self._keep_up(fixture, match)
        elif match is not None and (
            fixture is None or fixture.archived_at is not None or fixture.status.is_over
        ):
            await self._wind_up(match, fixture)

    async def _keep_up(self, fixture: Fixture, match: ActiveMatch | None) -> None:
        now = self.clock.milliseconds()
        if match is None:
            await self.matches.create(
                ActiveMatch(match_id=fixture.match_id, last_updated_at=now, owner=self.owner)
            )
            _log.info("A match has gone live", action="match_live", match=fixture.match_id)
        elif match.poller_state is PollerState.ENDED and match.expires_at is None:
            return  # the pipeline knows that it is over before the fixture says so
        elif (
            match.poller_state is PollerState.ENDED or match.last_updated_at + STALE_MATCH_MS < now
        ):
            taken = await self.matches.take_over(
                fixture.match_id, self.owner, now, now - STALE_MATCH_MS
            )
            if taken is not None and match.owner != self.owner:
                _log.info(
                    "A match was taken over",
                    action="match_taken_over",
                    match=fixture.match_id,
                    before=match.owner,
                )
        started = await self.sweeper.sweep(fixture, partial(self.channels.of, fixture.match_id))
        if started:
            _log.info(
                "Live Activities were started",
                action="activities_started",
                match=fixture.match_id,
                count=started,
            )

    async def _wind_up(self, match: ActiveMatch, fixture: Fixture | None) -> None:
        now = self.clock.milliseconds()
        since = self._over_since.setdefault(match.match_id, now)
        if match.poller_state is not PollerState.ENDED and now < since + PIPELINE_MS:
            return
        if await self.finisher.finish(match, fixture, since):
            self._over_since.pop(match.match_id, None)
            _log.info("A match is over", action="match_over", match=match.match_id)
