"""What operators of the demo have prepared: a board with short seasons, and an alarm rule."""

from typing import Any, Final

import msgspec
from pyreqwest.client import Client
from pyreqwest.response import Response

from tally.errors import Invalid
from tally.settings import Secret
from tally.sim.http_client import (
    ProblemDetail,
    decode_body,
    send_request,
    transient_error,
)

SPRINT_BOARD: Final = "sprint"
_SPRINT: Final = {
    "id": SPRINT_BOARD,
    "name": "Ten-minute sprint",
    "reset": {"cron": "*/10 * * * *", "time_zone": "UTC"},
}
# One board in twenty is at a place with so low a pressure.
_LOW_PRESSURE: Final = {
    "name": "Low pressure",
    "condition": {
        "kind": "threshold",
        "sensor": "pressure_hpa",
        "comparison": "below",
        "limit": 1003,
        "hysteresis": 1,
    },
}


class _Rules(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


async def create_sprint_board(client: Client, url: str, token: Secret) -> None:
    """Create the board in the scoreboard at `url`, unless it exists."""
    await _post(client, f"{url}/admin/boards", token, _SPRINT)


async def create_alarm_rule(client: Client, url: str, token: Secret) -> None:
    """Create the rule in the devices backend at `url`, unless there are rules."""
    request = client.get(f"{url}/alarm-rules").bearer_auth(token.reveal())
    response, content = await send_request(request)
    _check(response, content)
    if not decode_body(content, _Rules).items:
        await _post(client, f"{url}/alarm-rules", token, _LOW_PRESSURE)


async def _post(client: Client, url: str, token: Secret, body: dict[str, Any]) -> None:
    request = client.post(url).bearer_auth(token.reveal()).body_json(body)
    response, content = await send_request(request)
    _check(response, content)


def _check(response: Response, content: bytes) -> None:
    if response.status < 300:
        return
    problem = ProblemDetail.decode(content).describe(response.status)
    message = f"The demo's content was refused: {problem}"
    raise transient_error(response.status, response.headers, message) or Invalid(message)
