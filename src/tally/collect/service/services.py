"""All services of the collect backend, for the API and the console."""

from dataclasses import dataclass

from tally.collect.service.accounts import AccountService
from tally.collect.service.audit import AuditSearch
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import LinkingService
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import ModelCatalog
from tally.collect.service.sign_in import SignInService
from tally.collect.service.webhook import WebhookService


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectServices:
    """The services of one open backend."""

    sign_in: SignInService
    linking: LinkingService
    webhook: WebhookService
    accounts: AccountService
    models: ModelCatalog
    milestones: MilestoneService
    engine: ProgressEngine
    audit_search: AuditSearch
