"""Scheduled jobs: deletions of devices and readings."""

from typing import Final

from tally.devices.service.deletions import DeviceDeletionWorker
from tally.kit.jobs import Job, JobSchedule
from tally.kit.locks import Locks

DELETION_SCHEDULE: Final = JobSchedule(
    name="devices-deletions",
    description="Deletes devices and readings as operators requested",
    interval=1.0,
    lock_seconds=15.0,
)
SCHEDULES: Final = (DELETION_SCHEDULE,)


def devices_jobs(deletions: DeviceDeletionWorker, locks: Locks) -> tuple[Job, ...]:
    return (DELETION_SCHEDULE.job(deletions.run, locks=locks),)
