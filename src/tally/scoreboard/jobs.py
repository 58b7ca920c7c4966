"""Scheduled jobs: synchronise Redis with PostgreSQL and delete old rows."""

from typing import Final

from tally.kit.jobs import Job
from tally.kit.locks import Locks
from tally.scoreboard.service.services import ScoreboardServices

CATCH_UP_SECONDS: Final = 1.0
RANKS_SECONDS: Final = 1.0
MAIL_SECONDS: Final = 1.0
VERIFY_SECONDS: Final = 300.0
RETENTION_SECONDS: Final = 3600.0
LOCK_SECONDS: Final = 30.0


def scoreboard_jobs(services: ScoreboardServices, locks: Locks) -> tuple[Job, ...]:
    """Return the jobs: the first four run in every process, the others in one at a time."""
    return (
        Job(
            name="scoreboard-catch-up",
            description="Writes queued changes to Redis and rebuilds a missing leaderboard",
            run=services.cache_sync.catch_up,
            interval=CATCH_UP_SECONDS,
        ),
        Job(
            name="scoreboard-ranks",
            description="Counts recent score changes in the bands that ranks are computed from",
            run=services.maintain_ranks,
            interval=RANKS_SECONDS,
        ),
        Job(
            name="scoreboard-boards",
            description="Closes seasons that are over, and keeps named boards in Redis complete",
            run=services.board_maintenance.catch_up,
            interval=CATCH_UP_SECONDS,
        ),
        Job(
            name="scoreboard-mail",
            description="Sends the mails of password resets",
            run=services.password_resets.send_due,
            interval=MAIL_SECONDS,
        ),
        Job(
            name="scoreboard-verify-boards",
            description="Compares named boards in Redis with PostgreSQL and repairs differences",
            run=services.board_maintenance.verify,
            interval=VERIFY_SECONDS,
            lock_seconds=LOCK_SECONDS,
            locks=locks,
        ),
        Job(
            name="scoreboard-verify",
            description="Compares Redis with PostgreSQL and repairs differences",
            run=services.cache_sync.verify,
            interval=VERIFY_SECONDS,
            lock_seconds=LOCK_SECONDS,
            locks=locks,
        ),
        Job(
            name="scoreboard-retention",
            description="Deletes old sessions, tokens, actions and score events",
            run=services.retention.run,
            interval=RETENTION_SECONDS,
            lock_seconds=LOCK_SECONDS,
            locks=locks,
        ),
    )
