"""Sends a request to every route of fleets and alarms, for the test of access patterns."""

import asyncio

from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.alarms import AlarmRepository
from tally.devices.service.silence_watch import WATCH_SECONDS
from tests.devices.harness import DAY_MS, FIRST_MS, Board, DevicesServer, Json

RULE: Json = {
    "name": "called",
    "condition": {"kind": "threshold", "sensor": "x", "comparison": "above", "limit": 1},
}
SILENCE: Json = {"name": "silent", "condition": {"kind": "silence", "seconds": 86_400}}
SPAN = f"from={FIRST_MS}&to={FIRST_MS + DAY_MS}"


class RouteCaller:
    """Calls routes of operators with a board, and remembers them."""

    def __init__(self, server: DevicesServer, board: Board) -> None:
        self.server, self.board = server, board
        self.called: set[tuple[str, str]] = set()

    async def call(
        self, method: str, route: str, content: object = None, query: str = "", **values: str
    ) -> Json:
        path = route.format(hardware_id=self.board.hardware_id, sensor="x", **values)
        response = await self.server.operator_request(f"{path}?{query}", method, content)
        assert response.status in (200, 201, 204), response
        self.called.add((method, route))
        is_json = response.headers.get("content-type") == "application/json"
        return response.json if is_json else {}


async def call_fleet_routes(server: DevicesServer, board: Board, key: str) -> set[tuple[str, str]]:
    """Return the routes that responded."""
    caller = RouteCaller(server, board)
    call = caller.call
    await server.post("/register", board.registration(), key=key)
    await call("PATCH", "/devices/{hardware_id}", {"group": "g"})
    await call("PATCH", "/devices/{hardware_id}", {"tags": ["t"]})
    await call("GET", "/devices", query="group=g")
    await call("PUT", "/sensors/{sensor}", {"unit": "m"})
    await call("GET", "/sensors/{sensor}")
    await call("GET", "/sensors")
    await call("DELETE", "/sensors/{sensor}")
    await call("PUT", "/devices/{hardware_id}/desired-state", {"state": {}})
    await call("GET", "/devices/{hardware_id}/desired-state")
    await call("GET", "/fleet/latest", query="group=g")
    await call("GET", "/fleet/series", query=f"group=g&sensor=humidity_pct&{SPAN}")
    await call("GET", "/fleet/export", query="group=g")
    await call("GET", "/fleet/metrics")
    await _call_alarm_routes(caller, key)
    return caller.called | {("GET", "/alarms/stream")}


async def _call_alarm_routes(caller: RouteCaller, key: str) -> None:
    server, board, call = caller.server, caller.board, caller.call
    silence = await call("POST", "/alarm-rules", SILENCE)
    await _watch_silence(server)
    await call("DELETE", "/alarm-rules/{rule_id}", rule_id=silence["rule_id"])
    rule = await call("POST", "/alarm-rules", RULE)
    await call("GET", "/alarm-rules")
    await call("GET", "/alarm-rules/{rule_id}", rule_id=rule["rule_id"])
    await call("PUT", "/alarm-rules/{rule_id}", RULE, rule_id=rule["rule_id"])
    now = server.clock.milliseconds()
    reading = board.reading(timestamp_ms=now, batch_id="alarm", sensors={"x": 2})
    data = board.data(reading, state_version=1)
    assert (await server.post("/data", data, key=key)).status == 200
    async with asyncio.timeout(60):
        while not (found := (await server.get_json("/alarms?state=open"))["items"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    alarm_id = found[0]["alarm_id"]
    await call("GET", "/alarms")
    await server.get_json(f"/alarms?hardware_id={board.hardware_id}")
    await call("GET", "/alarms/{alarm_id}", alarm_id=alarm_id)
    await call("POST", "/alarms/{alarm_id}/acknowledge", alarm_id=alarm_id)
    assert (await server.operator_request("/alarms/stream", "HEAD")).status == 200
    await call("DELETE", "/alarm-rules/{rule_id}", rule_id=rule["rule_id"])
    alarms = AlarmRepository(server.application.store)
    async with asyncio.timeout(60):
        while await alarms.position() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def _watch_silence(server: DevicesServer) -> None:
    """Wait until the consumer has looked for new boards."""
    watch = AlarmWatchRepository(server.application.store)
    async with asyncio.timeout(60):
        while await watch.evaluated_ms() is None:
            await server.clock.advance(WATCH_SECONDS)
            await asyncio.sleep(0.02)
