"""Tally behind nginx and HAProxy with the files in `deploy/`, and the settings of Compose."""

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]  # has no types; a dependency of a test tool

from tests.devices.harness import Board
from tests.e2e.proxies import DEPLOY, NGINX_ADDRESS, haproxy, nginx
from tests.e2e.test_readiness import OPERATOR_TOKEN
from tests.test_cli import TIMEOUT_SECONDS, free_port, started

OPERATOR = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
NAME = "tally.example.com"
FORGED = {"X-Forwarded-For": "203.0.113.7"}


def compose_settings() -> dict[str, str]:
    """Return the settings of the Compose file and its example, except those of other servers."""
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    environment = compose["services"]["tally"]["environment"]
    example = (DEPLOY / "example.env").read_text("utf-8")
    settings = dict(re.findall(r"^(TALLY_\w+)=(.*)", example, re.MULTILINE))
    [network] = compose["networks"]["default"]["ipam"]["config"]
    assert settings["TALLY_TRUSTED_PROXIES"] == network["gateway"]
    settings |= {name: value for name, value in environment.items() if name.startswith("TALLY_")}
    return settings | {"TALLY_STORE_ENGINE": "", "TALLY_DYNAMODB_ENDPOINT": ""}


@dataclass(slots=True)
class LocalServer:
    """`tally serve devices` in a process that restarts on its port."""

    directory: Path
    settings: dict[str, str]
    port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def run(self) -> Iterator[Path]:
        """Serve inside the block, and shut down gracefully at its end; yield the log."""
        log = self.directory / f"log-{self.port}-{time.monotonic_ns()}"
        variables = {
            "TALLY_PORT": str(self.port),
            "TALLY_LOG_FORMAT": "json",
            "TALLY_OPERATOR_TOKEN": OPERATOR_TOKEN,
            **self.settings,
        }
        with started(self.directory, "serve", errors_to=str(log), **variables) as program:
            wait_until(self.is_ready)
            yield log
            program.send_signal(signal.SIGTERM)
            assert program.wait(TIMEOUT_SECONDS) == 0

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://{self.address}/health/ready").status_code == 200
        except httpx.TransportError:
            return False


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def client_at(address: str, url: str) -> httpx.Client:
    """Return a client with this address of the loopback interface."""
    return httpx.Client(
        base_url=url,
        headers={"Host": NAME} | OPERATOR,
        transport=httpx.HTTPTransport(local_address=address),
        timeout=TIMEOUT_SECONDS,
    )


def register(client: httpx.Client) -> Board:
    """Create an API key, which the client then sends, and register a board."""
    key = client.post("/devices/api-keys", json={"description": "proxy"}, headers=OPERATOR)
    client.headers["X-API-Key"] = key.raise_for_status().json()["api_key"]
    board = Board()
    client.post("/devices/register", json=board.registration()).raise_for_status()
    return board


@dataclass(frozen=True, slots=True)
class Proxied:
    """A server behind nginx."""

    url: str
    direct_url: str
    log: Path

    def clients_of(self, path: str) -> list[str]:
        """Return the addresses in the access log of a path."""
        lines = map(json.loads, self.log.read_text(encoding="utf-8").splitlines())
        entries = [line["data"] for line in lines if line["action"] == "http_request"]
        return [entry["client"] for entry in entries if entry["path"] == path]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    directory = tmp_path_factory.mktemp("nginx")
    settings = compose_settings() | {
        "TALLY_ALLOWED_HOSTS": NAME,
        "TALLY_TRUSTED_PROXIES": NGINX_ADDRESS,
        "TALLY_ACCESS_LOG": "yes",
        "TALLY_STREAMS_PER_ADDRESS": "1",
    }
    server = LocalServer(directory, settings)
    with server.run() as log, nginx(directory, server.address) as url:
        yield Proxied(url, f"http://{server.address}", log)


def test_the_log_has_the_address_of_the_client_and_not_a_forged_one(proxied: Proxied) -> None:
    with client_at("127.0.0.5", proxied.url) as client:
        assert client.get("/devices/forged-by-proxy", headers=FORGED).status_code == 404
    with client_at("127.0.0.5", proxied.direct_url) as client:
        assert client.get("/devices/forged-direct", headers=FORGED).status_code == 404
    wait_until(lambda: proxied.clients_of("/devices/forged-direct"))
    assert proxied.clients_of("/devices/forged-by-proxy") == ["127.0.0.5"]
    assert proxied.clients_of("/devices/forged-direct") == ["127.0.0.5"]


def test_events_arrive_at_once_and_limits_count_the_real_addresses(proxied: Proxied) -> None:
    """The response of a stream does not end, so a proxy that buffers it would pass on nothing."""
    with (
        client_at("127.0.0.6", proxied.url) as client,
        client_at("127.0.0.7", proxied.url) as other,
    ):
        board = register(client)
        path = f"/devices/devices/{board.hardware_id}/stream"
        with client.stream("GET", path) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: snapshot"
            body = board.data(board.reading(timestamp_ms=time.time_ns() // 1_000_000))
            assert other.post("/devices/data", json=body, headers=client.headers).status_code == 200
            assert next(line for line in lines if line.startswith("event:")) == "event: reading"
            refused = client.get(path, headers=FORGED)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            with other.stream("GET", path) as allowed:
                assert allowed.status_code == 200


def test_the_proxy_passes_on_the_host_name_and_hides_the_metrics(proxied: Proxied) -> None:
    with client_at("127.0.0.8", proxied.url) as client:
        assert client.get("/health").status_code == 200
        rebound = client.get("/health", headers={"Host": "rebound.example.net"})
        assert (rebound.status_code, rebound.json()["code"]) == (421, "misdirected_request")
        assert [client.get(path).status_code for path in ("/metrics", "/patterns")] == [404, 404]
        assert httpx.get(f"{proxied.direct_url}/metrics").status_code == 200


@dataclass(slots=True)
class Traffic:
    """Sends readings until stopped, each once, and keeps what was not acknowledged."""

    url: str
    board: Board = field(default_factory=Board)
    stopping: threading.Event = field(default_factory=threading.Event)
    sent: int = 0
    failures: list[object] = field(default_factory=list)

    def run(self) -> None:
        with client_at("127.0.0.1", self.url) as client:
            key = client.post("/devices/api-keys", json={"description": "rolling"})
            headers = {"X-API-Key": key.json()["api_key"]}
            registration = self.board.registration()
            client.post("/devices/register", json=registration, headers=headers).raise_for_status()
            while not self.stopping.is_set():
                reading = self.board.reading()
                try:
                    response = client.post(
                        "/devices/data", json=self.board.data(reading), headers=headers
                    )
                    if response.json().get("acknowledged_batch_ids") != [reading["batch_id"]]:
                        self.failures.append((response.status_code, response.text))
                except httpx.TransportError as error:
                    self.failures.append(error)
                self.sent += 1

    def wait_for(self, more: int) -> None:
        goal = self.sent + more
        wait_until(lambda: self.sent >= goal or self.failures)


def has_traffic(server: LocalServer) -> bool:
    """Return whether the proxy has sent readings to this instance."""
    return 'route="/devices/data"' in httpx.get(f"http://{server.address}/metrics").text


@pytest.mark.judge
def test_two_instances_are_replaced_one_by_one_without_a_failed_request(tmp_path: Path) -> None:
    """They share a data directory; no client retries, and each reading is stored once."""
    settings = {"TALLY_ALLOWED_HOSTS": NAME, "TALLY_SHUTDOWN_DELAY": "5"}
    one, two = LocalServer(tmp_path, settings), LocalServer(tmp_path, settings)
    with ExitStack() as instances, haproxy(tmp_path, one.address, two.address) as url:
        old = [instances.enter_context(ExitStack()) for _ in range(2)]
        for stack, server in zip(old, (one, two), strict=True):
            stack.enter_context(server.run())
        traffic = [Traffic(url) for _ in range(3)]
        wait_until(lambda: httpx.get(f"{url}/health").status_code == 200)
        with ThreadPoolExecutor() as threads:
            running = [threads.submit(client.run) for client in traffic]
            for stack, server in zip(old, (one, two), strict=True):
                traffic[0].wait_for(20)
                stack.close()
                traffic[0].wait_for(20)
                instances.enter_context(server.run())
                # The other one may end when HAProxy uses this one again.
                wait_until(partial(has_traffic, server))
            for client in traffic:
                client.stopping.set()
        for result in running:
            result.result()
        assert [failure for client in traffic for failure in client.failures] == []
        for client in traffic:
            path = f"/devices/devices/{client.board.hardware_id}/export?format=ndjson"
            stored = httpx.get(url + path, headers={"Host": NAME} | OPERATOR).text.splitlines()
            assert len(stored) == client.sent > 40
