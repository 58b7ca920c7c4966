"""What the routes of the scoreboard have in common."""

from typing import Any, Final

from tally.scoreboard.api.schemas import examples

PREFIX: Final = "/api/v1"
PLAYER: Final[dict[str, Any]] = {"security": ("player",)}
AUTH_ROUTE_ERRORS: Final = (examples.RATE_LIMITED, examples.UNAVAILABLE)
