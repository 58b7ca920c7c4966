"""Scheduled jobs: the syncs run on one instance at a time, the live jobs on all of them."""

from collections.abc import Awaitable, Callable
from typing import Final

from tally.cricket.service.activities.orchestrator import MatchOrchestrator
from tally.cricket.service.activities.prematch import PrematchNotifier
from tally.cricket.service.activities.team_follows import TeamFollowService
from tally.cricket.service.live.poller import ScorePoller
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.sync.reference_data import SyncService
from tally.kit.clock import Clock
from tally.kit.jobs import Job, JobFunction, JobSchedule
from tally.kit.locks import Locks, run_with_lock
from tally.settings import Settings

LOCK_SECONDS: Final = 10.0
REFERENCE_INTERVAL_SECONDS: Final = 6 * 3_600.0
FIXTURES_INTERVAL_SECONDS: Final = 60.0
TEAM_FOLLOWS_INTERVAL_SECONDS: Final = 30.0
ORCHESTRATOR_INTERVAL_SECONDS: Final = 30.0
PREMATCH_INTERVAL_SECONDS: Final = 60.0
POLL_INTERVAL_SECONDS: Final = 2.5  # by default; see TALLY_CRICKET_POLL_MS

LEAGUES_SCHEDULE: Final = JobSchedule(
    name="cricket-leagues",
    description="Syncs leagues from SportMonks",
    interval=REFERENCE_INTERVAL_SECONDS,
    jitter=0.01,
)
TEAMS_SCHEDULE: Final = JobSchedule(
    name="cricket-teams",
    description="Syncs teams and seasons from SportMonks",
    interval=REFERENCE_INTERVAL_SECONDS,
    jitter=0.01,
)
FIXTURES_SCHEDULE: Final = JobSchedule(
    name="cricket-fixtures",
    description="Syncs fixtures from SportMonks",
    interval=FIXTURES_INTERVAL_SECONDS,
    jitter=0.05,
)
TEAM_FOLLOWS_SCHEDULE: Final = JobSchedule(
    name="cricket-team-follows",
    description="Adds new fixtures to the follows of their teams' followers",
    interval=TEAM_FOLLOWS_INTERVAL_SECONDS,
    jitter=0.05,
)
LIVE_SCORE_SCHEDULE: Final = JobSchedule(
    name="cricket-live-score",
    description="Polls scores and publishes changes to devices and SSE subscribers",
    interval=POLL_INTERVAL_SECONDS,
    jitter=0.02,
)
ORCHESTRATOR_SCHEDULE: Final = JobSchedule(
    name="cricket-orchestrator",
    description="Starts, repairs and ends the Live Activities of matches",
    interval=ORCHESTRATOR_INTERVAL_SECONDS,
)
PREMATCH_SCHEDULE: Final = JobSchedule(
    name="cricket-prematch",
    description="Notifies followers of matches that are about to start",
    interval=PREMATCH_INTERVAL_SECONDS,
)
SCHEDULES: Final = (
    LEAGUES_SCHEDULE,
    TEAMS_SCHEDULE,
    FIXTURES_SCHEDULE,
    TEAM_FOLLOWS_SCHEDULE,
    LIVE_SCORE_SCHEDULE,
    ORCHESTRATOR_SCHEDULE,
    PREMATCH_SCHEDULE,
)


def sync_jobs(
    sync: SyncService,
    leagues: LeagueService,
    team_follows: TeamFollowService,
    new_locks: Callable[[], Locks],
    clock: Clock,
) -> tuple[Job, ...]:
    """Return the jobs that sync leagues, teams and fixtures, each under a shared lock."""

    async def sync_fixtures() -> float:
        if not await leagues.active():
            # On the first start, fixtures need the leagues and teams they belong to.
            await sync.sync_leagues()
            await sync.sync_teams()
        await sync.sync_fixtures()
        return max(FIXTURES_INTERVAL_SECONDS, sync.source.fixtures_interval())

    def locked(name: str, work: Callable[[], Awaitable[object]]) -> JobFunction:
        # One holder per job: two jobs of an instance must not extend each other's lock.
        locks = new_locks()

        async def run() -> float | None:
            result = await run_with_lock(locks, clock, name, LOCK_SECONDS, work)
            return result if isinstance(result, float) else None

        return run

    return (
        LEAGUES_SCHEDULE.job(locked("sync:leagues", sync.sync_leagues)),
        TEAMS_SCHEDULE.job(locked("sync:teams", sync.sync_teams)),
        FIXTURES_SCHEDULE.job(locked("sync:fixtures", sync_fixtures)),
        TEAM_FOLLOWS_SCHEDULE.job(locked("team-follows", team_follows.add_new_fixtures)),
    )


def live_jobs(
    poller: ScorePoller,
    orchestrator: MatchOrchestrator,
    prematch: PrematchNotifier,
    settings: Settings,
) -> tuple[Job, ...]:
    """Return the jobs for scores, Live Activities and notifications.

    Every instance runs them; a lock per match distributes the matches.
    """
    return (
        LIVE_SCORE_SCHEDULE.job(poller.run, interval=settings.cricket_poll_ms / 1000),
        ORCHESTRATOR_SCHEDULE.job(orchestrator.run),
        PREMATCH_SCHEDULE.job(prematch.run),
    )
