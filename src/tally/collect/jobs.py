"""Scheduled jobs: processing the webhook inbox and writing the bundled models."""

from typing import Final

from tally.collect.service.models import ModelCatalog
from tally.collect.service.worker import InboxWorker
from tally.kit.jobs import Job

INBOX_INTERVAL_SECONDS: Final = 0.5
MODELS_INTERVAL_SECONDS: Final = 3600.0


def collect_jobs(worker: InboxWorker, models: ModelCatalog) -> tuple[Job, ...]:
    async def write_models() -> None:
        await models.write_bundled()

    return (
        Job(
            name="collect-inbox",
            description="Applies Strava webhook events",
            run=worker.run,
            interval=INBOX_INTERVAL_SECONDS,
        ),
        Job(
            name="collect-models",
            description="Writes the bundled models",
            run=write_models,
            interval=MODELS_INTERVAL_SECONDS,
            jitter=0.0,
        ),
    )
