"""Repositories of the instance's own tables, named `tally-…`."""

from typing import Final

from tally.instance.repository.console_sessions import ConsoleSessionRepository
from tally.instance.repository.consumers import ConsumerRepository
from tally.instance.repository.job_pauses import JobPauseRepository
from tally.instance.repository.operator_audit import OperatorAuditRepository
from tally.instance.repository.operators import OperatorRepository
from tally.instance.repository.probes import ProbeRepository
from tally.instance.repository.streams import StreamRepository
from tally.instance.repository.webhook_deliveries import DeliveryRepository
from tally.instance.repository.webhooks import WebhookRepository
from tally.instance.repository.write_fences import WriteFenceRepository

REPOSITORIES: Final[tuple[type, ...]] = (
    OperatorRepository,
    OperatorAuditRepository,
    ProbeRepository,
    ConsoleSessionRepository,
    StreamRepository,
    ConsumerRepository,
    WebhookRepository,
    DeliveryRepository,
    JobPauseRepository,
    WriteFenceRepository,
)
