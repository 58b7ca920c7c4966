"""The frame that every simulated service stands in: its routes, its faults around them, a real socket beneath."""

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route, Router

from tally.kit.clock import Clock
from tally.kit.http import ErrorFormat, ErrorMiddleware
from tally.sim.faults import Faults, Faulty


def simulator_app(
    name: str, routes: Sequence[Route], faults: Faults, clock: Clock, lifespan: Any = None
) -> Starlette:
    """An app of `routes`; what goes wrong by arrangement comes from `faults`, mistakes in requests from the kit."""
    router = Router(list(routes), redirect_slashes=False)
    app = Faulty(ErrorMiddleware(router, ErrorFormat(), f"sim-{name}"), faults, clock)
    return Starlette(routes=[Mount("/", app)], lifespan=lifespan)
