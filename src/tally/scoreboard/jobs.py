"""Scheduled jobs: synchronise Redis with PostgreSQL and delete old rows."""

from typing import Final

from tally.kit.jobs import Job, JobSchedule
from tally.kit.locks import Locks
from tally.scoreboard.service.services import ScoreboardServices

CATCH_UP_SECONDS: Final = 1.0
RANKS_SECONDS: Final = 1.0
MAIL_SECONDS: Final = 1.0
VERIFY_SECONDS: Final = 300.0
RETENTION_SECONDS: Final = 3600.0
LOCK_SECONDS: Final = 30.0

CATCH_UP_SCHEDULE: Final = JobSchedule(
    name="scoreboard-catch-up",
    description="Writes queued changes to Redis and rebuilds a missing leaderboard",
    interval=CATCH_UP_SECONDS,
)
RANKS_SCHEDULE: Final = JobSchedule(
    name="scoreboard-ranks",
    description="Counts recent score changes in the bands that ranks are computed from",
    interval=RANKS_SECONDS,
)
VERIFY_SCHEDULE: Final = JobSchedule(
    name="scoreboard-verify",
    description="Compares Redis with PostgreSQL and repairs differences",
    interval=VERIFY_SECONDS,
    lock_seconds=LOCK_SECONDS,
)
RETENTION_SCHEDULE: Final = JobSchedule(
    name="scoreboard-retention",
    description="Deletes old sessions, tokens, actions and score events",
    interval=RETENTION_SECONDS,
    lock_seconds=LOCK_SECONDS,
)
BOARDS_SCHEDULE: Final = JobSchedule(
    name="scoreboard-boards",
    description="Closes seasons that are over, and keeps named boards in Redis complete",
    interval=CATCH_UP_SECONDS,
)
MAIL_SCHEDULE: Final = JobSchedule(
    name="scoreboard-mail",
    description="Sends the mails of password resets",
    interval=MAIL_SECONDS,
)
VERIFY_BOARDS_SCHEDULE: Final = JobSchedule(
    name="scoreboard-verify-boards",
    description="Compares named boards in Redis with PostgreSQL and repairs differences",
    interval=VERIFY_SECONDS,
    lock_seconds=LOCK_SECONDS,
)
SCHEDULES: Final = (
    CATCH_UP_SCHEDULE,
    RANKS_SCHEDULE,
    BOARDS_SCHEDULE,
    MAIL_SCHEDULE,
    VERIFY_BOARDS_SCHEDULE,
    VERIFY_SCHEDULE,
    RETENTION_SCHEDULE,
)


def scoreboard_jobs(services: ScoreboardServices, locks: Locks) -> tuple[Job, ...]:
    """Return the jobs: the first four run in every process, the others in one at a time."""
    return (
        CATCH_UP_SCHEDULE.job(services.cache_sync.catch_up),
        RANKS_SCHEDULE.job(services.maintain_ranks),
        BOARDS_SCHEDULE.job(services.board_maintenance.catch_up),
        MAIL_SCHEDULE.job(services.password_resets.send_due),
        VERIFY_BOARDS_SCHEDULE.job(services.board_maintenance.verify, locks=locks),
        VERIFY_SCHEDULE.job(services.cache_sync.verify, locks=locks),
        RETENTION_SCHEDULE.job(services.retention.run, locks=locks),
    )
