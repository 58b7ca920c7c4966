"""The services that every backend is built from.

`app` creates one `Dependencies` object and passes it to the wiring of each backend.
"""

from dataclasses import dataclass
from typing import Final

from tally.kit import keyfile
from tally.kit.clock import Clock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.metrics import Metrics
from tally.settings import Secret, Settings
from tally.store.store import Store


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A generated secret in the data directory, used if the setting is empty."""

    backend: str
    setting: str
    description: str
    file_name: str


COLLECT_ADMIN_KEY: Final = KeyFile(
    "collect", "collect_admin_token", "operator token", "collect-admin.key"
)
DEVICES_ADMIN_KEY: Final = KeyFile(
    "devices", "devices_admin_token", "operator token", "devices-admin.key"
)
SCOREBOARD_ADMIN_KEY: Final = KeyFile(
    "scoreboard", "scoreboard_admin_key", "operator key", "scoreboard-admin.key"
)
SCOREBOARD_INTERNAL_KEY: Final = KeyFile(
    "scoreboard", "scoreboard_internal_key", "game server key", "scoreboard-internal.key"
)
CRICKET_ADMIN_KEY: Final = KeyFile(
    "cricket", "cricket_admin_key", "operator key", "cricket-admin.key"
)
KEY_FILES: Final = (
    DEVICES_ADMIN_KEY,
    COLLECT_ADMIN_KEY,
    SCOREBOARD_ADMIN_KEY,
    SCOREBOARD_INTERNAL_KEY,
    CRICKET_ADMIN_KEY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Shared services for all backends."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    hub: Hub
    cursors: Cursors
    store: Store

    def secret(self, configured: Secret | None, file_name: str) -> Secret:
        """Return the configured secret, or one from the data directory, generated on first use."""
        return configured or keyfile.read_or_create(self.settings.data_dir / file_name)

    def key(self, key_file: KeyFile) -> Secret:
        """Return the configured key, or the generated one from its file."""
        return self.secret(getattr(self.settings, key_file.setting), key_file.file_name)
