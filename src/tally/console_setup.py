"""Builds the console for an application.

Commands import this module only when they serve the console: it takes seconds to import, and needs
the extra `console`.
"""

from typing import TYPE_CHECKING

from tally.app import CATALOGUE, Application, MountedApp
from tally.console.context import ConsoleContext
from tally.console.live_updates import LiveUpdates
from tally.console.login import LoginPage
from tally.console.mount import build_mounted_console
from tally.console.sign_in_link import SignInLink
from tally.console.sign_in_throttle import SignInThrottle
from tally.console.traffic import TrafficHistory
from tally.instance.console_sessions import ConsoleSessions
from tally.instance.repository.console_sessions import ConsoleSessionRepository
from tally.kit.jobs import JobRunner
from tally.kit.recent_logs import keep_recent_logs
from tally.store.report import pattern_rows

if TYPE_CHECKING:
    from tally.sim.demo.services import SimulatedServices


def build_console(
    application: Application,
    outside: "SimulatedServices | None",
    link: SignInLink | None,
    runner: JobRunner,
) -> MountedApp:
    """Build the console; only the demo has simulated services, and only `tally up` has a link."""
    settings, clock, operators = application.settings, application.clock, application.operators
    sessions = ConsoleSessions(
        ConsoleSessionRepository(application.store),
        operators,
        clock,
        idle_timeout=settings.console_idle_timeout,
        lifetime=settings.console_session_lifetime,
    )
    context = ConsoleContext(
        settings=settings,
        clock=clock,
        store=application.store,
        engine=application.engine,
        catalogue=CATALOGUE,
        backends=application.backends,
        runner=runner,
        administration=application.administration,
        recent_logs=keep_recent_logs(),
        traffic=TrafficHistory(application.metrics, clock),
        patterns=lambda: pattern_rows(CATALOGUE, application.store.meters),
        operators=operators,
        sessions=sessions,
        updates=LiveUpdates(application.store, application.hub, clock),
        outside=outside,
    )
    throttle = SignInThrottle(clock, application.metrics)
    return build_mounted_console(context, LoginPage(sessions, operators, throttle, link))
