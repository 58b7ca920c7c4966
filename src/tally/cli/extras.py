"""Optional dependencies: which modules each extra installs, and the error for a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DISTRIBUTION: Final = "tally-live"
# Modules that are imported only where their extra is required.
EXTRA_MODULES: Final = {"console": ("nicegui", "fastapi"), "demo": ("hpack", "nicegui", "fastapi")}


class MissingExtra(Exception):
    """A feature needs an extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f'{feature} needs the extra "{extra}"; '
            f'install it with: pip install "{DISTRIBUTION}[{extra}]"'
        )


@contextmanager
def explain_missing_extra(feature: str, extra: str | None) -> Iterator[None]:
    """Raise `MissingExtra` instead of the import error for a module of `extra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if extra is None or (error.name or "").split(".")[0] not in EXTRA_MODULES[extra]:
            raise
        raise MissingExtra(feature, extra) from error
