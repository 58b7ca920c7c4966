"""Scheduled jobs: deletions of devices and readings."""

from typing import Final

from tally.devices.service.deletions import DeviceDeletionWorker
from tally.kit.jobs import Job
from tally.kit.locks import Locks

DELETION_JOB: Final = "devices-deletions"
DELETION_INTERVAL_SECONDS: Final = 1.0
DELETION_LOCK_SECONDS: Final = 15.0


def devices_jobs(deletions: DeviceDeletionWorker, locks: Locks) -> tuple[Job, ...]:
    return (
        Job(
            name=DELETION_JOB,
            description="Deletes devices and readings as operators requested",
            run=deletions.run,
            interval=DELETION_INTERVAL_SECONDS,
            lock_seconds=DELETION_LOCK_SECONDS,
            locks=locks,
        ),
    )
