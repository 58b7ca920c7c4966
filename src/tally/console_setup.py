"""Builds the console for an application.

Commands import this module only when they serve the console: it takes seconds to import, and needs
the extra `console`.
"""

from typing import TYPE_CHECKING

from tally.app import CATALOGUE, Application, MountedApp
from tally.console.context import ConsoleContext
from tally.console.mount import build_mounted_console
from tally.console.traffic import TrafficHistory
from tally.kit.jobs import JobRunner
from tally.kit.keyfile import read_or_create
from tally.settings import LOOPBACK_HOSTS
from tally.store.report import pattern_rows

if TYPE_CHECKING:
    from tally.sim.demo.services import SimulatedServices


def build_console(
    application: Application, outside: "SimulatedServices | None", runner: JobRunner
) -> MountedApp:
    """Build the console; only a demo that listens on loopback serves it without a password."""
    settings = application.settings
    is_open = (
        outside is not None
        and settings.console_password is None
        and settings.host in LOOPBACK_HOSTS
    )
    return build_mounted_console(
        ConsoleContext(
            settings=settings,
            clock=application.clock,
            store=application.store,
            catalogue=CATALOGUE,
            backends=application.backends,
            probes=application.probes,
            runner=runner,
            traffic=TrafficHistory(application.metrics, application.clock),
            patterns=lambda: pattern_rows(CATALOGUE, application.store.meters),
            outside=outside,
            password=None
            if is_open
            else settings.console_password or read_or_create(settings.data_dir / "console.key"),
        ),
        read_or_create(settings.data_dir / "console-cookies.key"),
    )
