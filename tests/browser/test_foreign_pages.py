"""A page of another origin, or under a rebound DNS name, reaches nothing of `tally up`."""

import asyncio
import json
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page, async_playwright

from tally.sim.page_protection import CONTROL_HEADERS
from tests.browser.conftest import ARGUMENTS, RunningDemo

# Both names lead to this machine, as after DNS rebinding.
REBOUND, FOREIGN = "rebound.example", "foreign.example"
RULES = f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1, MAP {FOREIGN} 127.0.0.1"
LISTENING = "0A"
PATHS = (
    "/health",
    "/metrics",
    "/openapi.json",
    "/devices/devices",
    "/scoreboard/api/v1/leaderboard",
    "/cricket/matches",
    "/collect/models",
    "/console/",
    "/_sim/state",
    "/api/v2.0/livescores",
    "/.well-known/openid-configuration",
)
STREAM = "/scoreboard/api/v1/leaderboard/stream"
SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"

# Each returns what a script of the page learns: a status, an event, or that nothing was readable.
FETCH = """async ([url, options]) => {
  try { return (await fetch(url, options)).status } catch { return "unreadable" }
}"""
OPEN_STREAM = """url => new Promise(done => {
  const stream = new EventSource(url);
  stream.onopen = () => done("open");
  stream.onerror = () => { stream.close(); done("closed") };
})"""
OPEN_SOCKET = """url => new Promise(done => {
  const socket = new WebSocket(url);
  socket.onmessage = () => done("message");
  socket.onclose = () => done("closed");
})"""
HOSTS = [
    pytest.param("127.0.0.1", id="same site"),
    pytest.param(FOREIGN, id="other site", marks=pytest.mark.judge),
]


def _listening_ports(pid: int) -> set[int]:
    """Return the TCP ports that a process listens on."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes |= set(re.findall(r"socket:\[(\d+)\]", str(descriptor.readlink())))
        except OSError:
            continue  # closed meanwhile
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _processes(demo: RunningDemo) -> tuple[int, list[int]]:
    """Return the program and the servers that it started."""
    port = f"--port\0{urlsplit(demo.url).port}\0"
    lines = {
        int(path.parent.name): path.read_text(errors="replace")
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    }
    (program,) = [pid for pid, line in lines.items() if port in line]
    return program, [pid for pid, line in lines.items() if str(demo.data_dir) in line]


@pytest.fixture(scope="module")
def ports(demo: RunningDemo) -> list[int]:
    """Return the ports that speak HTTP: all but that of the mail server."""
    listening = sorted(_listening_ports(_processes(demo)[0]))
    return [port for port in listening if not _is_mail_server(port)]


@pytest.fixture(scope="module")
def page_server() -> Iterator[int]:
    """Serve an empty page on a port of its own."""

    class EmptyPage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>A page</title>")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@asynccontextmanager
async def opened_page(chromium: Path) -> AsyncIterator[Page]:
    """Open a page in a browser that resolves both names and accepts any certificate."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(chromium), args=[*ARGUMENTS, RULES]
        )
        context = await browser.new_context(ignore_https_errors=True)
        yield await context.new_page()
        await browser.close()


def test_the_embedded_servers_listen_on_no_port(demo: RunningDemo, ports: list[int]) -> None:
    """PostgreSQL and Valkey have Unix sockets only, which no page can open."""
    _, servers = _processes(demo)
    assert len(servers) >= 2
    assert [_listening_ports(pid) for pid in servers] == [set()] * len(servers)
    assert len(ports) == 10, "the server, the store, five simulators, and three ports of APNs"


async def test_a_rebound_name_reaches_no_port(
    demo: RunningDemo, ports: list[int], chromium: Path
) -> None:
    """The page has the origin of the server, so that the browser protects nothing."""
    main = urlsplit(demo.url).port
    async with opened_page(chromium) as first_page:
        for port in ports:
            page = await first_page.context.new_page()
            origin, status = await _visit(page, port)
            assert status == 421
            for path in PATHS if origin.startswith("http:") else ():
                options = {"headers": {"X-Tally-Control": "yes"}}
                assert await page.evaluate(FETCH, [path, options]) == 421
                assert await page.evaluate(FETCH, [path, {**options, "method": "POST"}]) == 421
            if port == main:
                assert await page.evaluate(OPEN_STREAM, STREAM) == "closed"
                url = f"ws://{REBOUND}:{port}{SOCKET}"
                assert await page.evaluate(OPEN_SOCKET, url) == "closed"


async def _visit(page: Page, port: int) -> tuple[str, int | None]:
    """Load the first page of a port, with TLS if it has it; return its origin and status."""
    scheme = "https" if _has_tls(port) else "http"
    origin = f"{scheme}://{REBOUND}:{port}"
    try:
        response = await page.goto(origin)
    except PlaywrightError:
        # The response is not text, so that the browser downloads it and stays on the empty page.
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", "/", headers={"Host": f"{REBOUND}:{port}"})
            return "", connection.getresponse().status
    return origin, None if response is None else response.status


def _is_mail_server(port: int) -> bool:
    """Whether the server speaks first; it must not read mails from HTTP requests."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n\r\nEHLO x\r\nMAIL FROM:<a@b>\r\n")
        lines = connection.makefile("rb").read(4_096).splitlines()
    if not lines or not lines[0].startswith(b"220"):
        return False
    assert [line[:4] for line in lines] == [b"220 ", b"554 "]
    return True


def _has_tls(port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
            context.wrap_socket(connection),
        ):
            return True
    except ssl.SSLError:
        return False


@pytest.mark.parametrize("host", HOSTS)
async def test_a_page_of_another_origin_reads_and_changes_nothing(
    demo: RunningDemo, ports: list[int], chromium: Path, page_server: int, host: str
) -> None:
    before = await _settled_state(ports)
    async with opened_page(chromium) as page:
        await page.goto(f"http://{host}:{page_server}/")
        for port in ports:
            for path in PATHS:
                await _expect_nothing_readable(page, f"http://127.0.0.1:{port}{path}")
        assert await page.evaluate(OPEN_STREAM, demo.url + STREAM) == "closed"
    assert _simulated_state(ports) == before


@pytest.mark.parametrize("host", HOSTS)
async def test_a_page_of_another_origin_cannot_use_the_console(
    demo: RunningDemo, chromium: Path, page_server: int, host: str
) -> None:
    async with opened_page(chromium) as page:
        await page.goto(f"http://{host}:{page_server}/")
        url = f"ws://{urlsplit(demo.url).netloc}{SOCKET}"
        assert await page.evaluate(OPEN_SOCKET, url) == "closed"
        assert not await _is_framed(page, f"{demo.url}/console/")


async def _settled_state(ports: list[int]) -> dict[int, Any]:
    """Wait until the demo itself changes nothing any more: it signs in clients at its start."""
    async with asyncio.timeout(120):
        while True:
            state = _simulated_state(ports)
            await asyncio.sleep(2)
            is_subscribed = any(found["subscription"] for found in state.values())
            if is_subscribed and _simulated_state(ports) == state:
                return state


def _simulated_state(ports: list[int]) -> dict[int, Any]:
    """Return what the requests of the page try to change: accounts, sign-in and faults."""
    states = {}
    for port in ports:
        if _has_tls(port):
            continue
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/_sim/state", headers=CONTROL_HEADERS
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                state = json.load(response)
        except urllib.error.HTTPError as error:
            error.close()  # the server, which has no control API
            continue
        names = ("people", "auto_approve", "faults", "subscription", "hourly_limit")
        states[port] = {name: state.get(name) for name in names}
    assert len(states) == 5
    return states


async def _expect_nothing_readable(page: Page, url: str) -> None:
    """Neither plain requests, nor requests with a preflight, nor forms."""
    options: Any
    for options in (
        {},
        {"credentials": "include"},
        {"headers": {"X-Tally-Control": "yes"}},
        {"method": "POST", "body": "x=1"},
        {"method": "DELETE"},
    ):
        assert await page.evaluate(FETCH, [url, options]) == "unreadable", (url, options)
    opaque = {"mode": "no-cors", "method": "POST", "body": '{"who": "Eve"}'}
    assert await page.evaluate(FETCH, [url, opaque]) in {0, "unreadable"}


async def _is_framed(page: Page, url: str) -> bool:
    """Whether the browser displays the URL in a frame of the page."""
    await page.evaluate(
        """url => new Promise(done => {
          const frame = document.createElement("iframe");
          frame.onload = done;
          frame.src = url;
          document.body.append(frame);
        })""",
        url,
    )
    return any(frame.url.startswith(url) for frame in page.frames)
