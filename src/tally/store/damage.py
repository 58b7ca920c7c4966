"""Remembers that the database is damaged, for readiness, the metric and the log.

A damaged page does not heal: the instance stays not ready until it is restarted on a restored data
directory.
"""

import logging
from typing import Final

from tally.errors import Unavailable
from tally.store.errors import StorageDamaged

DAMAGE_MESSAGE: Final = (
    "The store is damaged; an operator must run `tally store check` and restore a backup"
)
# Only an operator can help, so clients need not retry soon.
_RETRY_SECONDS: Final = 300

_log = logging.getLogger(__name__)


class DamageMonitor:
    """The first damage that an operation, the scrub or the sweeper found."""

    def __init__(self) -> None:
        self.first: StorageDamaged | None = None

    def record(self, error: StorageDamaged) -> None:
        """Remember the first error and log it once."""
        if self.first is None:
            self.first = error
            _log.error(
                "Store is damaged", extra={"fields": {"action": "store_damaged", "error": error}}
            )

    def check(self) -> None:
        """Raise Unavailable if damage was found."""
        if self.first is not None:
            raise damage_unavailable() from self.first


def damage_unavailable() -> Unavailable:
    """Return the error for clients; the log has the details."""
    return Unavailable(DAMAGE_MESSAGE, code="store_damaged", retry_after=_RETRY_SECONDS)
