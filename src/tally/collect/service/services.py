"""All services of the collect backend, for the API and the console."""

from dataclasses import dataclass

from tally.collect.service.accounts import AccountService
from tally.collect.service.audit import AuditSearch
from tally.collect.service.deletions import DeletionService
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.event_retries import EventRetries
from tally.collect.service.exports import ExportService
from tally.collect.service.imports import ImportService
from tally.collect.service.linking import LinkingService
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import ModelCatalog
from tally.collect.service.sessions import SessionService
from tally.collect.service.sign_in import SignInService
from tally.collect.service.subscription import SubscriptionService
from tally.collect.service.sync import StravaSyncService
from tally.collect.service.webhook import WebhookService


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectServices:
    """The services of one open backend."""

    sign_in: SignInService
    linking: LinkingService
    webhook: WebhookService
    subscription: SubscriptionService
    retries: EventRetries
    accounts: AccountService
    deletions: DeletionService
    sessions: SessionService
    exports: ExportService
    models: ModelCatalog
    milestones: MilestoneService
    imports: ImportService
    engine: ProgressEngine
    sync: StravaSyncService
    audit_search: AuditSearch
