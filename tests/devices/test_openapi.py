"""The OpenAPI document against the running server: what is documented is what is answered, whatever is asked.

Schemathesis makes up requests from the document, good ones and ones that break it, with and without
a credential. No answer may be a 5xx, or have a status, a content type, a header or a body that the
document does not tell.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from schemathesis import GenerationMode

from tally.kit.clock import SystemClock
from tests.devices.harness import ADMIN, FIRST_MS, Board, Json, make_settings, open_server
from tests.openapi import Document, check_examples

EXAMPLES = 12
# Nothing that anybody makes up.
NOBODY = {"hardware_id": "5E:D1:7A:11:C0:DE"}


@dataclass(frozen=True, slots=True)
class Good:
    """A request that must succeed; `KNOWN` stands for the board that is there."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    # What is made up besides: never a stream of a board that is there, which would not end.
    fuzz_known: bool = True


BOARD = Board()
SPAN = {"from": FIRST_MS, "to": FIRST_MS + 86_400_000}
OPERATIONS: dict[tuple[str, str], Good] = {
    ("GET", "/health"): Good(),
    ("POST", "/register"): Good(body=BOARD.registration()),
    ("POST", "/data"): Good(body=BOARD.data(BOARD.reading(0), BOARD.reading(1), {"batch_id": "x"})),
    ("POST", "/api-keys"): Good(body={"description": "made up"}, status=201),
    ("GET", "/api-keys"): Good({"limit": 3}),
    ("DELETE", "/api-keys/{key_id}"): Good(status=204),
    ("GET", "/devices"): Good({"limit": 3}),
    ("GET", "/devices/{hardware_id}"): Good(),
    ("PATCH", "/devices/{hardware_id}"): Good(body={"friendly_name": "greenhouse"}),
    ("GET", "/devices/{hardware_id}/latest"): Good(),
    ("GET", "/devices/{hardware_id}/readings"): Good({**SPAN, "order": "desc", "limit": 1}),
    ("GET", "/devices/{hardware_id}/series"): Good({**SPAN, "sensor": "humidity_pct"}),
    ("GET", "/devices/{hardware_id}/export"): Good({"format": "ndjson"}),
    ("GET", "/devices/{hardware_id}/stream"): Good(fuzz_known=False),
}


@dataclass(frozen=True, slots=True)
class Documented:
    """A server, its document, and what is known to it."""

    document: Document
    key: str
    key_id: str

    def known(self, path: str) -> dict[str, str]:
        known = {"hardware_id": BOARD.hardware_id, "key_id": self.key_id}
        return {name: value for name, value in known.items() if f"{{{name}}}" in path}

    @property
    def credentials(self) -> dict[str, str]:
        return {"X-API-Key": self.key, "Authorization": f"Bearer {ADMIN}"}


@pytest.fixture(scope="session")
async def documented(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documented]:
    new_settings = make_settings(data_dir=tmp_path_factory.mktemp("documented"))
    async with open_server(new_settings, SystemClock()) as server:
        key = await server.new_key()
        await server.store_readings(BOARD, BOARD.readings(5), key)
        spare = (await server.operator_request("/api-keys", "POST", {})).json["key_id"]
        told = await server.client.get(f"{server.url}/openapi.json").build().send()
        yield Documented(
            Document.read(server.url, "devices", "/devices", await told.json()), key, spare
        )


def test_the_document_has_every_route(documented: Documented) -> None:
    assert documented.document.routes() == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_is_told_with_examples(documented: Documented, method: str, path: str) -> None:
    """Of its request, of its answer where that is JSON, and of every error."""
    check_examples(documented.document.raw_operation(method, path))


# Those of the specification, and the kit's for what it leaves to HTTP.
CODES = {
    "MISSING_API_KEY",
    "INVALID_API_KEY",
    "KEY_REVOKED",
    "MISSING_TOKEN",
    "INVALID_TOKEN",
    "MISSING_FIELD",
    "INVALID_FORMAT",
    "BATCH_SIZE_EXCEEDED",
    "DEVICE_NOT_FOUND",
    "NO_READINGS",
    "KEY_NOT_FOUND",
    "TOO_LARGE",
    "UNSUPPORTED_MEDIA",
    "RATE_LIMITED",
    "UNAVAILABLE",
}


def test_the_document_tells_every_code(documented: Documented) -> None:
    assert {
        body["error"] for entry in OPERATIONS for body in documented.document.errors(*entry)
    } == CODES


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_a_good_request_is_answered_as_documented(
    documented: Documented, method: str, path: str
) -> None:
    document, good = documented.document, OPERATIONS[method, path]

    def operator_request() -> int:
        application: Json = {"path_parameters": documented.known(path), "query": dict(good.query)}
        if good.body is not None:
            application |= {"body": good.body, "media_type": "application/json"}
        case = document.operation(method, path).Case(**application)
        send = document.check_stream_head if path.endswith("/stream") else document.check_response
        return send(case, documented.credentials)

    assert await asyncio.to_thread(operator_request) == good.status


@pytest.mark.judge
@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize(
    ("method", "path"), [entry for entry in OPERATIONS if entry[1] != "/health"]
)
async def test_whatever_is_asked_the_answer_is_documented(
    documented: Documented, method: str, path: str, mode: GenerationMode
) -> None:
    document, good = documented.document, OPERATIONS[method, path]
    check = partial(
        document.fuzz,
        document.operation(method, path),
        mode,
        documented.credentials,
        examples=EXAMPLES,
    )
    known = (
        documented.known(path) if good.fuzz_known else (NOBODY if "{hardware_id}" in path else {})
    )
    if "key_id" in known:
        known = {}
    await asyncio.to_thread(check, known=known)
    if known and mode is GenerationMode.POSITIVE and good.fuzz_known:
        await asyncio.to_thread(check, known={})


@pytest.mark.parametrize(
    ("method", "path"), [entry for entry in OPERATIONS if entry[1] != "/health"]
)
async def test_without_a_credential_the_answer_is_documented_too(
    documented: Documented, method: str, path: str
) -> None:
    def operator_request() -> list[int]:
        operation, good = documented.document.operation(method, path), OPERATIONS[method, path]
        body: Json = (
            {} if good.body is None else {"body": good.body, "media_type": "application/json"}
        )
        cases = [
            operation.Case(path_parameters=documented.known(path), query=dict(good.query), **body)
            for _ in range(2)
        ]
        strange = {"X-API-Key": "x", "Authorization": "Bearer x"}
        return [
            documented.document.check_response(case, headers)
            for case, headers in zip(cases, ({}, strange), strict=True)
        ]

    assert await asyncio.to_thread(operator_request) == [401, 401]
