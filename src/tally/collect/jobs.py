"""What time starts: applying what waits in the inbox, and keeping the shipped models in the table."""

from typing import Final

from tally.collect.service.models import ModelShelf
from tally.collect.service.worker import InboxWorker
from tally.kit.jobs import Job

INBOX_SECONDS: Final = 0.5
STOCK_SECONDS: Final = 3600.0


def collect_jobs(worker: InboxWorker, shelf: ModelShelf) -> tuple[Job, ...]:
    async def stock() -> None:
        await shelf.stock()

    return (
        Job(
            name="collect-inbox",
            description="Applies what Strava told by webhook",
            run=worker.run,
            interval=INBOX_SECONDS,
        ),
        Job(
            name="collect-models",
            description="Writes the shipped models",
            run=stock,
            interval=STOCK_SECONDS,
            jitter=0.0,
        ),
    )
