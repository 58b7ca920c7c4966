"""Every response has a request ID, every error the backend's format, and no internals leak."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tally import errors
from tally.kit import logs
from tally.kit.endpoints import Handler
from tally.kit.http import STATUS, EnvelopeError, ErrorFormat, FlatError, Json, NestedError
from tally.kit.metrics import Metrics
from tally.kit.server import serving
from tests.kit.conftest import LogLines
from tests.kit.serving import make_api, make_app, serve_handler

ERROR_FORMATS = {
    "flat": ErrorFormat(FlatError, upper_case=True, codes={"invalid": "INVALID_FORMAT"}),
    "nested": ErrorFormat(NestedError),
    "envelope": ErrorFormat(
        EnvelopeError, upper_case=True, codes={"rate_limited": "RATE_LIMIT_EXCEEDED"}
    ),
}


async def fine(_: Request) -> Response:
    return Json({"fine": True})


def raising(error: Exception) -> Handler:
    async def handler(_: Request) -> Response:
        raise error

    return handler


async def read_body_json(client: Client, url: str, status: int, method: str = "POST") -> Any:
    """Return the JSON body of a response with this status and a request ID."""
    response = await client.request(method, url).build().send()
    assert response.status == status
    assert response.headers["x-request-id"]
    assert response.headers["content-type"] == "application/json"
    return await response.json()


async def test_a_valid_request_id_is_returned(client: Client) -> None:
    async with serve_handler(fine) as url:
        response = await client.post(url).header("X-Request-Id", "board-7.retry_2").build().send()
        assert response.get_header_all("x-request-id") == ["board-7.retry_2"]


@pytest.mark.parametrize("given", ["", "a" * 129, "with space", "läd", '"quoted"', "a;b"])
async def test_an_invalid_request_id_is_replaced(client: Client, given: str) -> None:
    async with serve_handler(fine) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        reader, writer = await asyncio.open_connection(host, port)
        head = (
            "POST /devices/thing/1 HTTP/1.1\r\nHost: x\r\n"
            f"X-Request-Id: {given}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode("latin-1"))
        response_text = (await reader.read()).decode("latin-1")
        writer.close()
        await writer.wait_closed()
        assert "HTTP/1.1 200" in response_text
        assert f"x-request-id: {given}\r\n" not in response_text
        assert len(response_text.split("x-request-id: ")[1].split("\r\n")[0]) == 36


async def test_every_log_line_has_request_and_correlation_id(
    client: Client, log_lines: LogLines
) -> None:
    async def handler(_: Request) -> Response:
        logs.bind(user_id="u-1")
        logs.logger().info("Inside")
        return Json({})

    async with serve_handler(handler) as url:
        request = client.post(url).header("X-Request-Id", "r-1").header("X-Correlation-Id", "c-1")
        await request.build().send()
        await client.post(url).header("X-Request-Id", "r-2").build().send()
    first, second = (line for line in log_lines() if line["message"] == "Inside")
    assert (first["requestId"], first["correlationId"], first["service"]) == (
        "r-1",
        "c-1",
        "devices",
    )
    assert (second["requestId"], second["correlationId"], second["userId"]) == ("r-2", "r-2", "u-1")


@pytest.mark.parametrize(("kind", "status"), STATUS.items())
async def test_a_domain_error_maps_to_its_status(
    client: Client, kind: type[errors.TallyError], status: int
) -> None:
    error = errors.RateLimited("Why", retry_after=1) if kind is errors.RateLimited else kind("Why")
    async with serve_handler(raising(error)) as url:
        assert await read_body_json(client, url, status) == {
            "error": {"code": kind.default_code, "message": "Why"}
        }


def test_every_domain_error_has_a_status() -> None:
    # What a client of ours raises, a simulated board for instance, never reaches this edge.
    own = {
        kind for kind in errors.TallyError.__subclasses__() if kind.__module__ == errors.__name__
    }
    assert own == set(STATUS)


async def test_a_subclass_has_the_status_of_its_parent(client: Client) -> None:
    class TokenConsumed(errors.Conflict):
        default_code = "token_consumed"

    async with serve_handler(raising(TokenConsumed("Once only"))) as url:
        assert await read_body_json(client, url, 409) == {
            "error": {"code": "token_consumed", "message": "Once only"}
        }


@pytest.mark.parametrize(
    ("error_format", "expected"),
    [
        ("flat", {"error": "INVALID_FORMAT", "message": "limit is wrong"}),
        ("nested", {"error": {"code": "invalid", "message": "limit is wrong"}}),
        (
            "envelope",
            {
                "success": False,
                "error": {
                    "code": "INVALID",
                    "message": "limit is wrong",
                    "details": {"field": "limit"},
                },
            },
        ),
    ],
)
async def test_each_format_has_its_body(
    client: Client, error_format: str, expected: Mapping[str, Any]
) -> None:
    async with serve_handler(
        raising(errors.Invalid("limit is wrong", field="limit")),
        error_format=ERROR_FORMATS[error_format],
    ) as url:
        assert await read_body_json(client, url, 400) == expected


@pytest.mark.parametrize("error_format", ERROR_FORMATS)
async def test_unknown_paths_and_methods_use_the_backends_format(
    client: Client, error_format: str
) -> None:
    """A 405 lists the allowed methods."""
    async with serve_handler(fine, error_format=ERROR_FORMATS[error_format]) as url:
        missing = await read_body_json(client, f"{url}/nothing", 404)
        rejected = await read_body_json(client, url, 405, "DELETE")
        assert set(missing) == set(rejected)
        response = await client.delete(url).build().send()
        assert response.headers["allow"] == "POST"
    assert "not_found" in str(missing).lower()
    assert "method_not_allowed" in str(rejected).lower()


async def test_a_path_of_no_backend_is_a_404(client: Client) -> None:
    async with serve_handler(fine, error_format=ERROR_FORMATS["flat"]) as url:
        root = url.split("/devices")[0]
        for path in ("/nothing", "/devices", "/"):
            body = await read_body_json(client, root + path, 404)
            assert body == {"error": {"code": "not_found", "message": "No route matches this path"}}


@pytest.mark.parametrize(("wait", "expected"), [(0.2, "1"), (1.0, "1"), (2.1, "3"), (60, "60")])
async def test_retry_after_is_rounded_up_to_whole_seconds(
    client: Client, wait: float, expected: str
) -> None:
    async with serve_handler(
        raising(errors.RateLimited("Slow down", retry_after=wait)),
        error_format=ERROR_FORMATS["envelope"],
    ) as url:
        response = await client.post(url).build().send()
        assert response.status == 429
        assert response.headers["retry-after"] == expected
        assert (await response.json())["error"]["code"] == "RATE_LIMIT_EXCEEDED"


async def test_a_401_has_a_challenge(client: Client) -> None:
    async with serve_handler(raising(errors.Unauthenticated("Who?"))) as url:
        response = await client.post(url).build().send()
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("error_format", ERROR_FORMATS)
async def test_an_unexpected_error_is_a_500_without_details(
    client: Client, log_lines: LogLines, error_format: str
) -> None:
    """The response has the usual format; only the log has the cause."""
    async with serve_handler(
        raising(RuntimeError("row 17 of users")), error_format=ERROR_FORMATS[error_format]
    ) as url:
        body = await read_body_json(client, url, 500)
    assert "row 17" not in str(body)
    assert "internal_error" in str(body).lower()
    [line] = [line for line in log_lines() if line["action"] == "unexpected_error"]
    assert "row 17 of users" in line["data"]["exception"]
    assert line["requestId"]


async def test_a_domain_error_without_a_status_is_unexpected(client: Client) -> None:
    async with serve_handler(raising(errors.TallyError("An error without a category"))) as url:
        assert (await read_body_json(client, url, 500))["error"]["code"] == "internal_error"


async def test_a_failed_streaming_response_aborts_the_connection(
    client: Client, log_lines: LogLines
) -> None:
    """The client can detect a partial response."""

    async def handler(_: Request) -> Response:
        async def rows() -> Any:
            yield b"first row\n"
            raise RuntimeError("the store failed")

        return StreamingResponse(rows())

    async with serve_handler(handler) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /devices/thing/1 HTTP/1.1\r\nHost: x\r\n\r\n")
        response_text = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert b"first row" in response_text
    assert not response_text.endswith(b"0\r\n\r\n")
    assert any("the store failed" in str(line) for line in log_lines())


async def test_requests_are_counted_by_template(client: Client, metrics: Metrics) -> None:
    """By route template, never by path; unmatched paths share one series."""
    async with serve_handler(fine, metrics=metrics) as url:
        for address in (url, f"{url}2", f"{url}/nothing", f"{url}/else"):
            await client.post(address).build().send()
        await client.delete(url).build().send()

    def count(method: str, route: str, status: str) -> float | None:
        labels = {"method": method, "route": route, "status": status}
        return metrics.registry.get_sample_value(
            "tally_http_request_duration_seconds_count", labels
        )

    assert count("POST", "/devices/thing/{thing_id}", "200") == 2
    assert count("POST", "unmatched", "404") == 2
    assert count("DELETE", "/devices/thing/{thing_id}", "405") == 1
    assert metrics.requests_in_flight == 0


async def test_a_client_disconnect_is_counted_and_is_no_error(
    metrics: Metrics, log_lines: LogLines
) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        arrived.set()
        try:
            await request.body()
        finally:
            gone.set()
        return Json({})

    async with serve_handler(handler, metrics=metrics) as url:
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as connection:
            connection.sendall(
                b"POST /devices/thing/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"
            )
            await arrived.wait()
        await gone.wait()
    labels = {"method": "POST", "route": "/devices/thing/{thing_id}", "status": "499"}
    assert (
        metrics.registry.get_sample_value("tally_http_request_duration_seconds_count", labels) == 1
    )
    assert [line["level"] for line in log_lines() if line["action"] == "client_disconnected"] == [
        "debug"
    ]
    assert not [line for line in log_lines() if line["level"] == "error"]


async def test_the_access_log_is_optional(client: Client, log_lines: LogLines) -> None:
    async with serving(make_app(make_api(), access_log=True)) as url:
        await client.get(f"{url}/devices/nothing").build().send()
    [line] = [line for line in log_lines() if line["action"] == "http_request"]
    assert line["data"]["status"] == 404
    assert line["data"]["path"] == "/devices/nothing"
    assert line["data"]["milliseconds"] > 0
