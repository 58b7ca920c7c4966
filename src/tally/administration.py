"""Builds the administration of an instance: outgoing webhooks and dead letters, and their routes.

`app` opens it after the backends, whose change logs the webhooks follow.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from tally.dependencies import Dependencies
from tally.instance.consumers import ConsumerMetrics
from tally.instance.dead_letters import DeadLetterHandlers, dead_letter_endpoints
from tally.instance.job_pauses import StoredJobPauses
from tally.instance.repository.consumers import ConsumerRepository
from tally.instance.repository.job_pauses import JobPauseRepository
from tally.instance.repository.webhook_deliveries import DeliveryRepository
from tally.instance.repository.webhooks import WebhookRepository
from tally.instance.webhooks.api import WebhookHandlers, webhook_endpoints
from tally.instance.webhooks.delivery import DeliveryMetrics, DeliveryServices
from tally.instance.webhooks.runner import WebhookRunner
from tally.instance.webhooks.schemas import WEBHOOK_EXAMPLE
from tally.instance.webhooks.sender import MessageSender
from tally.instance.webhooks.service import WebhookAdministration
from tally.instance.webhooks.sources import WebhookSource
from tally.kit.encryption import Encryptor
from tally.kit.endpoints import Api
from tally.kit.ids import SortableIds
from tally.kit.operators import protect

_PATH_TYPES: Final = {
    "webhook_id": Annotated[str, Meta(max_length=64, examples=[WEBHOOK_EXAMPLE.webhook_id])],
    "consumer": Annotated[
        str, Meta(max_length=128, examples=[f"webhook-{WEBHOOK_EXAMPLE.webhook_id}-collect"])
    ],
}


@dataclass(frozen=True, slots=True)
class Administration:
    """The routes below `/admin`, what operators do with webhooks and jobs, and the runner."""

    api: Api
    service: WebhookAdministration
    webhooks: WebhookRunner
    job_pauses: StoredJobPauses


@asynccontextmanager
async def open_administration(
    dependencies: Dependencies, sources: Sequence[WebhookSource]
) -> AsyncIterator[Administration]:
    """Open the administration; the app runs its webhooks."""
    settings, store, clock = dependencies.settings, dependencies.store, dependencies.clock
    allows_private = settings.webhooks_private_addresses
    secret = dependencies.secret(settings.webhooks_secret, "webhooks.key")
    encryptor = Encryptor(secret, "webhooks")
    webhooks, deliveries = WebhookRepository(store), DeliveryRepository(store)
    consumers = ConsumerRepository(store)
    async with MessageSender(allows_private=allows_private) as sender:
        services = DeliveryServices(
            webhooks=webhooks,
            deliveries=deliveries,
            sender=sender,
            encryptor=encryptor,
            clock=clock,
            metrics=DeliveryMetrics(dependencies.metrics),
        )
        runner = WebhookRunner(sources, services, consumers, ConsumerMetrics(dependencies.metrics))
        service = WebhookAdministration(
            webhooks=webhooks,
            deliveries=deliveries,
            consumers=consumers,
            runner=runner,
            encryptor=encryptor,
            clock=clock,
            ids=SortableIds(clock),
            allows_private=allows_private,
        )
        api = Api(
            name="admin",
            description="Outgoing webhooks, and changes that consumers could not handle.",
            endpoints=(
                *webhook_endpoints(WebhookHandlers(service, dependencies.cursors)),
                *dead_letter_endpoints(DeadLetterHandlers(service, runner, consumers)),
            ),
            path_types=_PATH_TYPES,
        )
        pauses = StoredJobPauses(JobPauseRepository(store), clock)
        yield Administration(protect(api, dependencies.operators), service, runner, pauses)
