"""All that the pages of the console may look at and touch: handed to each of them, built where the program is built."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tally.console.traffic import TrafficHistory
from tally.kit.backend import Backend, Probe
from tally.kit.clock import Clock
from tally.kit.jobs import JobRunner
from tally.settings import Secret, Settings
from tally.store.catalogue import Catalogue
from tally.store.report import PatternRow
from tally.store.store import Store

# The console also runs where the extra "demo" is not installed.
if TYPE_CHECKING:
    from tally.sim.demo.outside import Outside

B = TypeVar("B", bound=Backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext:
    """The program from the inside.

    `outside` is there in a demo alone; without a password, everybody may look.
    """

    settings: Settings
    clock: Clock
    store: Store
    catalogue: Catalogue
    backends: Mapping[str, Backend]
    probes: Sequence[Probe]
    runner: JobRunner
    traffic: TrafficHistory
    patterns: Callable[[], list[PatternRow]]
    outside: "Outside | None" = None
    password: Secret | None = None

    def backend(self, name: str, kind: type[B]) -> B | None:
        """The backend of this name, if it runs here."""
        found = self.backends.get(name)
        return found if isinstance(found, kind) else None
