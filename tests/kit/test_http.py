"""Every response has a request ID, every error the format of RFC 9457, and no internals leak."""

import asyncio
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyreqwest.client import Client
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tally import errors
from tally.error_codes import ERROR_CODES
from tally.kit import logs
from tally.kit.http import STATUS, Json
from tally.kit.metrics import Metrics
from tally.kit.route_table import Handler
from tally.kit.server import serving
from tests.kit.conftest import LogLines
from tests.kit.serving import make_api, make_app, serve_handler


async def fine(_: Request) -> Response:
    return Json({"fine": True})


def raising(error: Exception) -> Handler:
    async def handler(_: Request) -> Response:
        raise error

    return handler


async def read_problem(client: Client, url: str, status: int, method: str = "POST") -> Any:
    """Return the body of an error with this status, without its request ID, which it checks."""
    response = await client.request(method, url).build().send()
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    body = await response.json()
    assert body.pop("requestId") == response.headers["x-request-id"]
    return body


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
            "POST /devices/thing/1 HTTP/1.1\r\nHost: localhost\r\n"
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
        assert await read_problem(client, url, status) == {
            "type": f"/docs/errors#{kind.default_code}",
            "title": ERROR_CODES[kind.default_code].title,
            "status": status,
            "detail": "Why",
            "code": kind.default_code,
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
        body = await read_problem(client, url, 409)
        assert (body["code"], body["detail"]) == ("token_consumed", "Once only")


async def test_field_and_further_details_are_members_of_the_body(client: Client) -> None:
    """Details cannot replace the members that every error has."""
    error = errors.Invalid("limit is wrong", field="limit", limit=100, status=7, title="Mine")
    async with serve_handler(raising(error)) as url:
        assert await read_problem(client, url, 400) == {
            "type": "/docs/errors#invalid",
            "title": "Invalid request",
            "status": 400,
            "detail": "limit is wrong",
            "code": "invalid",
            "field": "limit",
            "limit": 100,
        }


async def test_the_request_id_of_the_client_is_in_the_body(client: Client) -> None:
    async with serve_handler(raising(errors.NotFound("Gone"))) as url:
        response = await client.post(url).header("X-Request-Id", "board-7").build().send()
        assert (await response.json())["requestId"] == "board-7"


async def test_unknown_paths_and_methods_have_the_same_format(client: Client) -> None:
    """A 405 lists the allowed methods."""
    async with serve_handler(fine) as url:
        missing = await read_problem(client, f"{url}/nothing", 404)
        rejected = await read_problem(client, url, 405, "DELETE")
        assert set(missing) == set(rejected)
        response = await client.delete(url).build().send()
        assert response.headers["allow"] == "POST"
    assert missing["code"] == "not_found"
    assert rejected["code"] == "method_not_allowed"


async def test_a_path_of_no_backend_is_a_404(client: Client) -> None:
    async with serve_handler(fine) as url:
        root = url.split("/devices")[0]
        for path in ("/nothing", "/devices", "/"):
            body = await read_problem(client, root + path, 404)
            assert (body["code"], body["detail"]) == ("not_found", "No route matches this path")


@pytest.mark.parametrize(("wait", "expected"), [(0.2, "1"), (1.0, "1"), (2.1, "3"), (60, "60")])
async def test_retry_after_is_rounded_up_to_whole_seconds(
    client: Client, wait: float, expected: str
) -> None:
    async with serve_handler(raising(errors.RateLimited("Slow down", retry_after=wait))) as url:
        response = await client.post(url).build().send()
        assert response.status == 429
        assert response.headers["retry-after"] == expected
        assert (await response.json())["code"] == "rate_limit_exceeded"


async def test_a_503_has_retry_after_even_if_the_time_is_unknown(client: Client) -> None:
    async with serve_handler(raising(errors.Unavailable("Down"))) as url:
        response = await client.post(url).build().send()
        assert (response.status, response.headers["retry-after"]) == (503, "5")


async def test_a_401_has_a_challenge(client: Client) -> None:
    async with serve_handler(raising(errors.Unauthenticated("Who?"))) as url:
        response = await client.post(url).build().send()
        assert response.headers["www-authenticate"] == "Bearer"


async def test_an_unexpected_error_is_a_500_without_details(
    client: Client, log_lines: LogLines
) -> None:
    """The response has the usual format; only the log has the cause."""
    async with serve_handler(raising(RuntimeError("row 17 of users"))) as url:
        body = await read_problem(client, url, 500)
    assert "row 17" not in str(body)
    assert body["code"] == "internal_error"
    [line] = [line for line in log_lines() if line["action"] == "unexpected_error"]
    assert "row 17 of users" in line["data"]["exception"]
    assert line["requestId"]


async def test_a_domain_error_without_a_status_is_unexpected(client: Client) -> None:
    async with serve_handler(raising(errors.TallyError("An error without a category"))) as url:
        assert (await read_problem(client, url, 500))["code"] == "internal_error"


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
        writer.write(b"POST /devices/thing/1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
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
                b"POST /devices/thing/1 HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: 10\r\n\r\nhalf"
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
    assert line["data"]["client"] == "127.0.0.1"
    assert line["data"]["milliseconds"] > 0
