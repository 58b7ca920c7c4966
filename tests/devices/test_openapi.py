"""The OpenAPI document matches the running server.

Schemathesis generates valid and invalid requests from the document, with and without credentials.
No response may be a 5xx, or have an undocumented status, content type, header or body.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tally.kit.clock import SystemClock
from tests.devices.harness import (
    ADMIN,
    FIRST_MS,
    Board,
    DevicesServer,
    Json,
    make_settings,
    open_server,
)
from tests.openapi import Document, check_examples

EXAMPLES = 40
# Schemathesis never generates this id.
UNKNOWN = {"hardware_id": "5E:D1:7A:11:C0:DE"}


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """A valid request and its expected status."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # Not for the stream, which would not end for a known board.
    fuzz_known: bool = True


BOARD = Board()
GROUP = "documented"
RULE: Json = {
    "name": "too humid",
    "condition": {"kind": "threshold", "sensor": "x", "comparison": "above", "limit": 1},
}
SPAN = {"from": FIRST_MS, "to": FIRST_MS + 86_400_000}
OPERATIONS: dict[tuple[str, str], ValidRequest] = {
    ("GET", "/health"): ValidRequest(),
    ("POST", "/register"): ValidRequest(body=BOARD.registration()),
    ("POST", "/data"): ValidRequest(
        body=BOARD.data(BOARD.reading(0), BOARD.reading(1), {"batch_id": "x"})
    ),
    ("POST", "/api-keys"): ValidRequest(body={"description": "made up"}, status=201),
    ("GET", "/api-keys"): ValidRequest({"limit": 3}),
    ("DELETE", "/api-keys/{key_id}"): ValidRequest(status=204),
    ("GET", "/devices"): ValidRequest({"limit": 3}),
    ("POST", "/claims"): ValidRequest(body={"hardware_id": BOARD.hardware_id}, status=201),
    ("POST", "/claim"): ValidRequest(
        body={"code": "AAAAA-AAAAA", "hardware_id": BOARD.hardware_id}, status=403
    ),
    ("GET", "/deletions"): ValidRequest({"limit": 3}),
    ("GET", "/deletions/{deletion_id}"): ValidRequest(),
    ("DELETE", "/devices/{hardware_id}"): ValidRequest(status=202),
    ("DELETE", "/devices/{hardware_id}/readings"): ValidRequest(SPAN, status=202),
    ("GET", "/devices/{hardware_id}"): ValidRequest(),
    ("PATCH", "/devices/{hardware_id}"): ValidRequest(body={"friendly_name": "greenhouse"}),
    ("GET", "/devices/{hardware_id}/latest"): ValidRequest(),
    ("GET", "/devices/{hardware_id}/readings"): ValidRequest({**SPAN, "order": "desc", "limit": 1}),
    ("GET", "/devices/{hardware_id}/series"): ValidRequest({**SPAN, "sensor": "humidity_pct"}),
    ("GET", "/devices/{hardware_id}/export"): ValidRequest({"format": "ndjson"}),
    ("GET", "/devices/{hardware_id}/stream"): ValidRequest(fuzz_known=False),
    ("PUT", "/devices/{hardware_id}/desired-state"): ValidRequest(body={"state": {"a": 1}}),
    ("GET", "/devices/{hardware_id}/desired-state"): ValidRequest(),
    ("GET", "/sensors"): ValidRequest(),
    ("GET", "/sensors/{sensor}"): ValidRequest(),
    ("PUT", "/sensors/{sensor}"): ValidRequest(body={"unit": "°C", "precision": 2}),
    ("DELETE", "/sensors/{sensor}"): ValidRequest(status=204),
    ("GET", "/fleet/latest"): ValidRequest({"limit": 3}),
    ("GET", "/fleet/series"): ValidRequest({**SPAN, "group": GROUP, "sensor": "humidity_pct"}),
    ("GET", "/fleet/export"): ValidRequest({"group": GROUP, "units": True}),
    ("GET", "/fleet/metrics"): ValidRequest({"group": GROUP}),
    ("GET", "/alarms"): ValidRequest({"state": "open"}),
    ("GET", "/alarms/stream"): ValidRequest(fuzz_known=False),
    ("GET", "/alarms/{alarm_id}"): ValidRequest(),
    ("POST", "/alarms/{alarm_id}/acknowledge"): ValidRequest(),
    ("POST", "/alarm-rules"): ValidRequest(body=RULE, status=201),
    ("GET", "/alarm-rules"): ValidRequest(),
    ("GET", "/alarm-rules/{rule_id}"): ValidRequest(),
    ("PUT", "/alarm-rules/{rule_id}"): ValidRequest(body=RULE),
    ("DELETE", "/alarm-rules/{rule_id}"): ValidRequest(status=204),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """A server, its OpenAPI document, and known ids."""

    document: Document
    key: str
    key_id: str
    # Of the rule and its alarm.
    rule_id: str
    alarm_id: str
    deletion_id: str

    def known(self, path: str) -> dict[str, str]:
        known = {
            "hardware_id": BOARD.hardware_id,
            "key_id": self.key_id,
            "sensor": "bme280_temp_c",
            "rule_id": self.rule_id,
            "alarm_id": self.alarm_id,
            "deletion_id": self.deletion_id,
        }
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}

    @property
    def credentials(self) -> dict[str, str]:
        return {"X-API-Key": self.key, "Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="session")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    settings = make_settings(data_dir=tmp_path_factory.mktemp("documented"))
    async with open_server(settings, SystemClock()) as server:
        key = await server.new_key()
        current = BOARD.reading(5, timestamp_ms=SystemClock().milliseconds())
        await server.store_readings(BOARD, [*BOARD.readings(5), current], key)
        spare = (await server.operator_request("/api-keys", "POST", {})).json["key_id"]
        device = f"/devices/{BOARD.hardware_id}"
        await server.operator_request(device, "PATCH", {"group": GROUP})
        await server.operator_request(f"{device}/desired-state", "PUT", {"state": {}})
        path = f"/devices/{BOARD.hardware_id}/readings?from=0&to=1"
        deletion = (await server.operator_request(path, "DELETE")).json["deletion_id"]
        rule_id, alarm_id = await raise_alarm(server, key)
        response = await server.client.get(f"{server.url}/openapi.json").build().send()
        document = Document.read(server.url, "devices", "/devices", await response.json())
        yield Documented(document, key, spare, rule_id, alarm_id, deletion)


async def raise_alarm(server: DevicesServer, key: str) -> tuple[str, str]:
    """Return the ids of a rule and of its alarm."""
    rule_id = (await server.operator_request("/alarm-rules", "POST", RULE)).json["rule_id"]
    now = SystemClock().milliseconds()
    reading = BOARD.reading(50_000_000, timestamp_ms=now, sensors={"x": 2})
    await server.store_readings(BOARD, [reading], key)
    async with asyncio.timeout(60):
        while not (found := (await server.get_json("/alarms"))["items"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return rule_id, found[0]["alarm_id"]


def test_the_tests_cover_every_route(documented: Documented) -> None:
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_has_examples(documented: Documented, method: str, path: str) -> None:
    """For the request, a JSON response, and every error."""
    check_examples(documented.document.raw_operation(method, path))


# The codes of the backend, and those of the kit for HTTP errors.
CODES = {
    "missing_api_key",
    "invalid_api_key",
    "key_revoked",
    "missing_token",
    "invalid_token",
    "missing_field",
    "invalid_field",
    "malformed_json",
    "batch_size_exceeded",
    "device_not_found",
    "read_only_operator",
    "no_readings",
    "key_not_found",
    "key_not_for_board",
    "invalid_claim",
    "deletion_not_found",
    "too_large",
    "unsupported_media",
    "rate_limit_exceeded",
    "too_many_streams",
    "alarm_cleared",
    "alarm_not_found",
    "alarm_rule_not_found",
    "conflict",
    "desired_state_not_found",
    "group_not_found",
    "sensor_not_found",
    "too_many_alarm_rules",
    "too_many_sensors",
    "version_conflict",
    "unavailable",
}


def test_the_document_lists_every_error_code(documented: Documented) -> None:
    assert {
        body["code"] for entry in OPERATIONS for body in documented.document.errors(*entry)
    } == CODES


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_valid_request_gets_a_documented_response(
    documented: Documented, method: str, path: str
) -> None:
    document, valid = documented.document, OPERATIONS[method, path]

    def send_request() -> int:
        parameters: Json = {"path_parameters": documented.known(path), "query": dict(valid.query)}
        if valid.body is not None:
            parameters |= {"body": valid.body, "media_type": "application/json"}
        case = document.operation(method, path).Case(**parameters)
        send = document.check_stream_head if path.endswith("/stream") else document.check_response
        return send(case, documented.credentials)

    assert await asyncio.to_thread(send_request) == valid.status


@pytest.mark.judge
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(
    ("method", "path"),
    # The stream of alarms has no parameters and does not end; the test above reads its head.
    [entry for entry in OPERATIONS if entry[1] not in ("/health", "/alarms/stream")],
)
async def test_generated_requests_get_documented_responses(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    document, valid = documented.document, OPERATIONS[method, path]
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        documented.credentials,
        examples=EXAMPLES,
    )
    known = (
        documented.known(path) if valid.fuzz_known else (UNKNOWN if "{hardware_id}" in path else {})
    )
    if {"key_id", "rule_id"} & known.keys():
        known = {}
    await asyncio.to_thread(check, known=known)
    if known and mode is GenerationMode.POSITIVE and valid.fuzz_known:
        await asyncio.to_thread(check, known={})


@pytest.mark.parametrize(
    ("method", "path"), [entry for entry in OPERATIONS if entry[1] not in ("/health", "/claim")]
)
async def test_requests_without_credentials_get_documented_responses(
    documented: Documented, method: str, path: str
) -> None:
    def send_requests() -> list[int]:
        operation, valid = documented.document.operation(method, path), OPERATIONS[method, path]
        body: Json = (
            {} if valid.body is None else {"body": valid.body, "media_type": "application/json"}
        )
        cases = [
            operation.Case(path_parameters=documented.known(path), query=dict(valid.query), **body)
            for _ in range(2)
        ]
        unknown = {"X-API-Key": "x", "Authorization": "Bearer x"}
        return [
            documented.document.check_response(case, headers)
            for case, headers in zip(cases, ({}, unknown), strict=True)
        ]

    assert await asyncio.to_thread(send_requests) == [401, 401]
