"""Scheduled jobs: the webhook inbox, syncs, account deletions and the bundled models."""

from typing import Final

from tally.collect.service.deletions import DeletionWorker
from tally.collect.service.models import ModelCatalog
from tally.collect.service.sync_worker import HEARTBEAT_SECONDS, SyncWorker
from tally.collect.service.worker import InboxWorker
from tally.kit.jobs import Job, JobSchedule

INBOX_INTERVAL_SECONDS: Final = 0.5
SYNC_INTERVAL_SECONDS: Final = 5.0
DELETIONS_INTERVAL_SECONDS: Final = 1.0
MODELS_INTERVAL_SECONDS: Final = 3600.0
ADOPTION_INTERVAL_SECONDS: Final = 600.0

INBOX_SCHEDULE: Final = JobSchedule(
    name="collect-inbox",
    description="Applies Strava webhook events",
    interval=INBOX_INTERVAL_SECONDS,
)
ADOPT_EVENTS_SCHEDULE: Final = JobSchedule(
    name="collect-adopt-events",
    description="Moves Strava events that an earlier version received",
    interval=ADOPTION_INTERVAL_SECONDS,
    jitter=0.0,
)
HEARTBEAT_SCHEDULE: Final = JobSchedule(
    name="collect-heartbeat",
    description="Detects gaps in the deliveries of Strava events",
    interval=HEARTBEAT_SECONDS,
)
SYNC_SCHEDULE: Final = JobSchedule(
    name="collect-sync",
    description="Syncs athletes with Strava",
    interval=SYNC_INTERVAL_SECONDS,
)
DELETIONS_SCHEDULE: Final = JobSchedule(
    name="collect-deletions",
    description="Carries out account deletions",
    interval=DELETIONS_INTERVAL_SECONDS,
)
MODELS_SCHEDULE: Final = JobSchedule(
    name="collect-models",
    description="Writes the bundled models",
    interval=MODELS_INTERVAL_SECONDS,
    jitter=0.0,
)
SCHEDULES: Final = (
    INBOX_SCHEDULE,
    ADOPT_EVENTS_SCHEDULE,
    HEARTBEAT_SCHEDULE,
    SYNC_SCHEDULE,
    DELETIONS_SCHEDULE,
    MODELS_SCHEDULE,
)


def collect_jobs(
    worker: InboxWorker,
    sync_worker: SyncWorker,
    deletions: DeletionWorker,
    models: ModelCatalog,
) -> tuple[Job, ...]:
    async def write_models() -> None:
        await models.write_bundled()

    async def adopt_events() -> None:
        await worker.adopt_events()

    return (
        INBOX_SCHEDULE.job(worker.run),
        ADOPT_EVENTS_SCHEDULE.job(adopt_events),
        HEARTBEAT_SCHEDULE.job(sync_worker.beat),
        SYNC_SCHEDULE.job(sync_worker.run),
        DELETIONS_SCHEDULE.job(deletions.run),
        MODELS_SCHEDULE.job(write_models),
    )
