"""One CORS setting applies to all backends of a running server, and cookies stay protected."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from tests.e2e.test_readiness import ServedInstance, serve
from tests.test_cli import TIMEOUT_SECONDS

PAGE = "https://page.example.com"
OWN_ROUTES = ("/health", "/metrics", "/docs", "/openapi.json")
ROUTES = {
    "collect": ("POST", "/collect/milestones"),
    "cricket": ("PUT", "/cricket/user/device/push-to-start"),
    "devices": ("POST", "/devices/data"),
    "scoreboard": ("PATCH", "/scoreboard/api/v1/scores"),
}


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedInstance]:
    """All backends, for pages of one origin."""
    directory: Path = tmp_path_factory.mktemp("served")
    with serve(directory, backends=",".join(ROUTES), TALLY_CORS_ORIGINS=PAGE) as running:
        yield running


def send(
    instance: ServedInstance, method: str, path: str, **headers: str
) -> tuple[int, Message, bytes]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(instance.url + path, headers=names, method=method)  # noqa: S310  (loopback)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


@pytest.mark.parametrize("backend", ROUTES)
def test_every_backend_answers_a_preflight(instance: ServedInstance, backend: str) -> None:
    expect_preflight(instance, backend, PAGE)


def test_all_origins_may_be_allowed(tmp_path: Path) -> None:
    """Neither the instance's own routes nor the session of collect are open to them."""
    with serve(tmp_path, backends="collect,devices", TALLY_CORS_ORIGINS="*") as open_instance:
        for backend in ("collect", "devices"):
            expect_preflight(open_instance, backend, "*")
            expect_readable_error(open_instance, backend, "*")
        for path in OWN_ROUTES:
            expect_closed(open_instance, path)
        expect_protected_session(open_instance)


def expect_preflight(instance: ServedInstance, backend: str, origin: str) -> None:
    method, path = ROUTES[backend]
    status, headers, _ = send(
        instance, "OPTIONS", path, Origin=PAGE, Access_Control_Request_Method=method
    )
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == origin
    assert method in headers["Access-Control-Allow-Methods"]
    assert headers["Access-Control-Allow-Credentials"] is None


@pytest.mark.parametrize("backend", ROUTES)
def test_a_page_can_read_the_errors_of_every_backend(
    instance: ServedInstance, backend: str
) -> None:
    expect_readable_error(instance, backend, PAGE)


def expect_readable_error(instance: ServedInstance, backend: str, origin: str) -> None:
    method, path = ROUTES[backend]
    status, headers, body = send(instance, method, path, Origin=PAGE)
    assert status in {401, 403}
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Access-Control-Allow-Origin"] == origin
    assert "X-Request-Id" in headers["Access-Control-Expose-Headers"]
    assert json.loads(body)["requestId"] == headers["X-Request-Id"]


@pytest.mark.parametrize("path", OWN_ROUTES)
def test_the_instances_own_routes_are_closed_to_other_origins(
    instance: ServedInstance, path: str
) -> None:
    expect_closed(instance, path)


def expect_closed(instance: ServedInstance, path: str) -> None:
    status, headers, _ = send(instance, "GET", path, Origin=PAGE)
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] is None


def test_a_page_cannot_use_the_session_of_collect(instance: ServedInstance) -> None:
    """A page of an allowed origin may not change anything with a browser's cookie either."""
    expect_protected_session(instance)


def expect_protected_session(instance: ServedInstance) -> None:
    method, path = ROUTES["collect"]
    status, headers, body = send(instance, method, path, Origin=PAGE, Cookie="cc_session=x")
    assert (status, json.loads(body)["code"]) == (403, "cross_site_request")
    assert headers["Access-Control-Allow-Credentials"] is None
