"""Scheduled jobs: the webhook inbox, syncs, account deletions and the bundled models."""

from typing import Final

from tally.collect.service.deletions import DeletionWorker
from tally.collect.service.models import ModelCatalog
from tally.collect.service.sync_worker import HEARTBEAT_SECONDS, SyncWorker
from tally.collect.service.worker import InboxWorker
from tally.kit.jobs import Job

INBOX_INTERVAL_SECONDS: Final = 0.5
SYNC_INTERVAL_SECONDS: Final = 5.0
DELETIONS_INTERVAL_SECONDS: Final = 1.0
MODELS_INTERVAL_SECONDS: Final = 3600.0
ADOPTION_INTERVAL_SECONDS: Final = 600.0


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
        Job(
            name="collect-inbox",
            description="Applies Strava webhook events",
            run=worker.run,
            interval=INBOX_INTERVAL_SECONDS,
        ),
        Job(
            name="collect-adopt-events",
            description="Moves Strava events that an earlier version received",
            run=adopt_events,
            interval=ADOPTION_INTERVAL_SECONDS,
            jitter=0.0,
        ),
        Job(
            name="collect-heartbeat",
            description="Detects gaps in the deliveries of Strava events",
            run=sync_worker.beat,
            interval=HEARTBEAT_SECONDS,
        ),
        Job(
            name="collect-sync",
            description="Syncs athletes with Strava",
            run=sync_worker.run,
            interval=SYNC_INTERVAL_SECONDS,
        ),
        Job(
            name="collect-deletions",
            description="Carries out account deletions",
            run=deletions.run,
            interval=DELETIONS_INTERVAL_SECONDS,
        ),
        Job(
            name="collect-models",
            description="Writes the bundled models",
            run=write_models,
            interval=MODELS_INTERVAL_SECONDS,
            jitter=0.0,
        ),
    )
