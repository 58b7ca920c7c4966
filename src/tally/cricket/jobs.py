"""What time starts: the syncs, one instance at a time, and the live jobs, which share the matches among instances."""

from collections.abc import Awaitable, Callable
from typing import Final

from tally.cricket.repository.locks import LockRepository, StoreLocks
from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.live.poller import ScorePoller
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.sync.sync import SyncService
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.jobs import Job, JobFunction
from tally.kit.locks import run_with_lock
from tally.settings import Settings

LOCK_SECONDS: Final = 10.0
REFERENCE_SECONDS: Final = 6 * 3_600.0
FIXTURES_SECONDS: Final = 60.0
ORCHESTRATOR_SECONDS: Final = 30.0
PREMATCH_SECONDS: Final = 60.0


def sync_jobs(
    sync: SyncService, leagues: LeagueService, locks: LockRepository, clock: Clock
) -> tuple[Job, ...]:
    """Leagues, teams and fixtures from the score service, each under a lock that all instances share."""

    async def sync_fixtures() -> None:
        if not await leagues.active():
            # The first start: fixtures are of leagues that somebody has to know first.
            await sync.sync_leagues()
            await sync.sync_teams()
        await sync.sync_fixtures()

    def locked(name: str, work: Callable[[], Awaitable[object]]) -> JobFunction:
        return _alone(name, work, locks, clock)

    return (
        Job(
            name="cricket-leagues",
            description="Leagues from SportMonks",
            run=locked("sync:leagues", sync.sync_leagues),
            interval=REFERENCE_SECONDS,
            jitter=0.01,
        ),
        Job(
            name="cricket-teams",
            description="Teams and seasons from SportMonks",
            run=locked("sync:teams", sync.sync_teams),
            interval=REFERENCE_SECONDS,
            jitter=0.01,
        ),
        Job(
            name="cricket-fixtures",
            description="Fixtures from SportMonks",
            run=locked("sync:fixtures", sync_fixtures),
            interval=FIXTURES_SECONDS,
            jitter=0.05,
        ),
    )


def live_jobs(
    poller: ScorePoller,
    orchestrator: MatchOrchestrator,
    prematch: PrematchNotifier,
    settings: Settings,
) -> tuple[Job, ...]:
    """Scores, Live Activities and notices.

    Every instance runs them: matches are shared by a lock for each.
    """
    return (
        Job(
            name="cricket-live-score",
            description="Polls the scores, and tells devices and pages what has changed",
            run=poller.run,
            interval=settings.cricket_poll_ms / 1000,
            jitter=0.02,
        ),
        Job(
            name="cricket-orchestrator",
            description="Starts, mends and winds up the Live Activities of matches",
            run=orchestrator.run,
            interval=ORCHESTRATOR_SECONDS,
        ),
        Job(
            name="cricket-prematch",
            description="Tells followers of matches that are about to start",
            run=prematch.run,
            interval=PREMATCH_SECONDS,
        ),
    )


def _alone(
    name: str, work: Callable[[], Awaitable[object]], locks: LockRepository, clock: Clock
) -> JobFunction:
    """Run it under the lock; where another instance has that, it is in good hands."""
    # An owner of its own for each job: two jobs of an instance must not extend each other's lock.
    mine = StoreLocks(locks, clock, new_uuid())

    async def run() -> None:
        await run_with_lock(mine, clock, name, LOCK_SECONDS, work)

    return run
