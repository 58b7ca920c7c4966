"""All backends have one API style: lists of `items` with a cursor, no envelope, one document."""

from typing import Any

import pytest

from tally.collect.api.handlers import Handlers as CollectHandlers
from tally.collect.api.routes import collect_api
from tally.cricket.api.admin import AdminHandlers as CricketAdminHandlers
from tally.cricket.api.handlers import Handlers as CricketHandlers
from tally.cricket.api.routes import cricket_api
from tally.devices.api.alarm_handlers import AlarmHandlers
from tally.devices.api.fleet_handlers import FleetHandlers
from tally.devices.api.fleet_routes import DeviceFleetHandlers
from tally.devices.api.handlers import Handlers as DevicesHandlers
from tally.devices.api.lifecycle_handlers import LifecycleHandlers
from tally.devices.api.routes import devices_api
from tally.kit.endpoints import Api
from tally.kit.openapi import document
from tally.kit.operators import OPERATOR_SECURITY
from tally.scoreboard.api.admin import AdminHandlers
from tally.scoreboard.api.boards import BoardHandlers
from tally.scoreboard.api.events import BoardStream, LeaderboardStream
from tally.scoreboard.api.handlers import Handlers as PublicHandlers
from tally.scoreboard.api.routes import ScoreboardHandlers, scoreboard_api

# The declarations need only the names of the handlers, not what the handlers need to run.
SCOREBOARD_HANDLERS = ScoreboardHandlers(
    object.__new__(PublicHandlers),
    object.__new__(LeaderboardStream),
    object.__new__(AdminHandlers),
    object.__new__(BoardHandlers),
    object.__new__(BoardStream),
)
APIS: tuple[Api, ...] = (
    collect_api(object.__new__(CollectHandlers)),
    cricket_api(object.__new__(CricketHandlers), object.__new__(CricketAdminHandlers)),
    devices_api(
        object.__new__(DevicesHandlers),
        DeviceFleetHandlers(object.__new__(FleetHandlers), object.__new__(AlarmHandlers)),
        object.__new__(LifecycleHandlers),
    ),
    scoreboard_api(SCOREBOARD_HANDLERS),
)
DOCUMENT = document("Tally", "1", "", APIS)
# As in the seeds.
CURSORS = {
    "collect": "nextCursor",
    "cricket": "nextCursor",
    "devices": "next_cursor",
    "scoreboard": "next_cursor",
}


def successful_json(operation: dict[str, Any]) -> Any:
    """Return the schema of the successful JSON response, or None."""
    for status, response in operation["responses"].items():
        media = response.get("content", {}).get("application/json")
        if status < "300" and media is not None:
            reference = media["schema"].get("$ref")
            if reference is None:
                return media["schema"]
            return DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]
    return None


OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name.startswith("GET")])
def test_a_list_is_items_with_a_cursor(name: str) -> None:
    operation = OPERATIONS[name]
    schema = successful_json(operation)
    if schema is None:
        return
    is_list = operation["summary"].startswith(("List ", "Search "))
    assert schema["type"] == "object", "a bare array cannot gain members"
    if is_list:
        assert set(schema["properties"]) == {"items", CURSORS[operation["tags"][0]]}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_response_has_no_envelope(name: str) -> None:
    schema = successful_json(OPERATIONS[name]) or {}
    assert not {"success", "data", "error"} & set(schema.get("properties", {}))


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_error_is_a_problem(name: str) -> None:
    for status, response in OPERATIONS[name]["responses"].items():
        if status >= "400" and not name.endswith("/health/ready"):  # 503 with all checks
            assert set(response["content"]) == {"application/problem+json"}


def test_operation_ids_are_unique_and_start_with_the_backend() -> None:
    """Generated clients name their functions after them."""
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)
    for operation in OPERATIONS.values():
        assert operation["operationId"].startswith(f"{operation['tags'][0]}_")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_body_and_path_parameter_has_an_example(name: str) -> None:
    operation = OPERATIONS[name]
    for parameter in operation["parameters"]:
        assert parameter["in"] != "path" or "example" in parameter, parameter["name"]
    bodies = [operation["requestBody"]] if "requestBody" in operation else []
    for body in [*bodies, *operation["responses"].values()]:
        media = next(iter(body.get("content", {}).values()), {"example": None})
        assert "example" in media or media["examples"], body


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_subscription_is_an_event_stream(name: str) -> None:
    operation = OPERATIONS[name]
    if operation["summary"].startswith("Subscribe to"):
        media = operation["responses"]["200"]["content"]["text/event-stream"]
        assert media["example"].startswith("event: ")


def test_every_security_scheme_is_described_and_used() -> None:
    schemes = {
        name: scheme
        for api in APIS
        for name, scheme in {**api.security_schemes, **OPERATOR_SECURITY}.items()
    }
    used = {
        name
        for operation in OPERATIONS.values()
        for alternative in operation.get("security", ())
        for name in alternative
    }
    assert used == set(schemes)
    assert all(scheme["description"] for scheme in schemes.values())
    places = [(scheme["type"], scheme.get("name")) for scheme in schemes.values()]
    assert sorted(places, key=str) == [
        ("apiKey", "X-API-Key"),
        ("apiKey", "X-Internal-API-Key"),
        ("apiKey", "cc_session"),
        ("http", None),
        ("http", None),
        ("http", None),
    ]
