"""What time starts: telling Redis what it missed, comparing it with PostgreSQL, and letting go of what is old."""

from typing import Final

from tally.kit.jobs import Job
from tally.kit.locks import Locks
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.retention import Retention
from tally.scoreboard.service.stream_slots import StreamSlots

CATCH_UP_SECONDS: Final = 1.0
STREAMS_SECONDS: Final = 3.0
VERIFY_SECONDS: Final = 300.0
RETENTION_SECONDS: Final = 3600.0
LOCK_SECONDS: Final = 30.0


def scoreboard_jobs(
    catch_up: CacheSync, slots: StreamSlots, retention: Retention, locks: Locks
) -> tuple[Job, ...]:
    """The first two run in every process, for what is that process's own; the others in one process at a time."""
    return (
        Job(
            name="scoreboard-catch-up",
            description="Tells Redis what it missed, and builds the board where there is none",
            run=catch_up.run,
            interval=CATCH_UP_SECONDS,
        ),
        Job(
            name="scoreboard-streams",
            description="Tells Redis that this process and its streams are still there",
            run=slots.beat,
            interval=STREAMS_SECONDS,
        ),
        Job(
            name="scoreboard-verify",
            description="Compares Redis with PostgreSQL, and heals what differs",
            run=catch_up.verify,
            interval=VERIFY_SECONDS,
            lock_seconds=LOCK_SECONDS,
            locks=locks,
        ),
        Job(
            name="scoreboard-retention",
            description="Deletes old sessions, tokens, actions and history",
            run=retention.run,
            interval=RETENTION_SECONDS,
            lock_seconds=LOCK_SECONDS,
            locks=locks,
        ),
    )
