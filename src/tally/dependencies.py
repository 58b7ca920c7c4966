"""The services that every backend is built from.

`app` creates one `Dependencies` object and passes it to the wiring of each backend.
"""

from dataclasses import dataclass

from tally.instance.operators import OperatorAccounts
from tally.instance.streams import OpenStreams
from tally.kit import keyfile
from tally.kit.clock import Clock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.kit.readiness import ReadinessMonitor
from tally.settings import Secret, Settings
from tally.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Shared services for all backends."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    hub: Hub
    cursors: Cursors
    store: Store
    operators: OperatorAccounts
    readiness: ReadinessMonitor
    streams: OpenStreams

    def secret(self, configured: Secret | None, file_name: str) -> Secret:
        """Return the configured secret, or one from the data directory, generated on first use."""
        return configured or keyfile.read_or_create(self.settings.data_dir / file_name)
