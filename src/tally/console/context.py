"""The console context: everything that pages may read or call."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tally.administration import Administration
from tally.console.access import Changes
from tally.console.live_updates import LiveUpdates
from tally.console.traffic import TrafficHistory
from tally.instance.console_sessions import ConsoleSessions
from tally.instance.operators import OperatorAccounts
from tally.kit.backend import Backend
from tally.kit.clock import Clock
from tally.kit.jobs import JobRunner
from tally.kit.recent_logs import RecentLogs
from tally.settings import Settings
from tally.sim.oidc.users import make_user
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.report import PatternRow
from tally.store.store import Store

# The console also runs where the extra "demo" is not installed.
if TYPE_CHECKING:
    from tally.sim.demo.services import SimulatedServices

B = TypeVar("B", bound=Backend)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext:
    """Passed to every page; one field per collaborator, because pages need different subsets.

    `engine` is for the state of the store and the data browser, which no access pattern covers.
    `outside` is set only in the demo.
    """

    settings: Settings
    clock: Clock
    store: Store
    engine: Engine
    catalogue: Catalogue
    backends: Mapping[str, Backend]
    runner: JobRunner
    administration: Administration
    recent_logs: RecentLogs
    traffic: TrafficHistory
    patterns: Callable[[], list[PatternRow]]
    operators: OperatorAccounts
    sessions: ConsoleSessions
    updates: LiveUpdates
    outside: "SimulatedServices | None" = None

    @property
    def changes(self) -> Changes:
        return Changes(self.sessions, self.operators)

    def backend(self, name: str, kind: type[B]) -> B | None:
        """Return the backend with this name, or None if this instance does not run it."""
        backend = self.backends.get(name)
        return backend if isinstance(backend, kind) else None

    def athlete_names(self) -> dict[str, str]:
        """Return the names of the demo athletes by user id; empty outside the demo."""
        strava = self.outside.strava if self.outside is not None else None
        if strava is None:
            return {}
        names = [f"{athlete.firstname} {athlete.lastname}" for athlete in strava.athletes.values()]
        return {make_user(name).sub: name for name in sorted(names)}
