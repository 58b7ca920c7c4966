"""Who reaches the console: sign-in, cookies, origins, throttling and security headers."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tally.kit.operators import Role
from tests.console.console_server import COOKIE, ConsoleServer, console_server

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="
PLANTED = "planted-by-an-attacker-0123456789abcdefghij"
numbers = itertools.count(1)
HEADERS = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with console_server(tmp_path_factory.mktemp("console"), "devices") as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with from_address(new_address()) as opened:
        yield opened


def new_address() -> str:
    """Return an address of this machine that no other test uses."""
    return f"127.{next(numbers)}.0.1"


def from_address(address: str) -> httpx.AsyncClient:
    """Return a client with its own address, which has its own limit of sign-ins."""
    return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(local_address=address), timeout=30)


async def signed_in(
    server: ConsoleServer, client: httpx.AsyncClient, name: str, role: Role = Role.OPERATOR
) -> str:
    """Sign in as a new operator and return the cookie."""
    response = await server.sign_in(client, await server.add_operator(name, role))
    assert response.status_code == 303, response.text
    return client.cookies[COOKIE]


async def test_without_a_session_every_page_leads_to_the_sign_in_page(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    for path, target in (
        ("/", "login"),
        ("/devices", "login?next=/devices"),
        ("/devices/AA:BB", "../login?next=/devices/AA%3ABB"),
        ("/not-a-page", "login?next=/not-a-page"),
    ):
        response = await client.get(server.console + path)
        assert (response.status_code, response.headers["location"]) == (303, target)
        followed = await client.get(server.console + path, follow_redirects=True)
        assert followed.status_code == 200
        assert "Operator token" in followed.text
    assert (await client.post(server.console + "/devices")).status_code == 401


async def test_the_path_of_the_console_works_without_a_slash(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    response = await client.get(server.console)
    assert (response.status_code, response.headers["location"]) == (307, "/console/")


async def test_a_token_signs_in_and_returns_to_the_requested_page(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    token = await server.add_operator("returning")
    headers = {"Origin": server.url}
    form = {"token": f" {token}\n"}
    response = await client.post(
        f"{server.console}/login?next=/devices", data=form, headers=headers
    )
    assert (response.status_code, response.headers["location"]) == (303, "./devices")
    page = await client.get(f"{server.console}/devices")
    assert page.status_code == 200
    assert "returning (operator)" in page.text
    again = await client.get(f"{server.console}/login")
    assert (again.status_code, again.headers["location"]) == (303, "./")


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "/../../x", "x"]
)
async def test_a_sign_in_never_leads_to_another_host(
    server: ConsoleServer, client: httpx.AsyncClient, target: str
) -> None:
    await signed_in(server, client, f"target-{abs(hash(target)) % 10**8}")
    response = await client.get(f"{server.console}/login", params={"next": target})
    assert response.status_code == 303
    assert response.url.join(response.headers["location"]).netloc.decode() == server.host


async def test_a_sign_in_starts_a_session_with_a_new_id(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    """A cookie that somebody planted before the sign-in is worth nothing after it."""
    client.cookies.set(COOKIE, PLANTED)
    token = await server.add_operator("victim")
    first = await server.sign_in(client, token)
    cookie = first.cookies[COOKIE]
    assert PLANTED not in first.headers["set-cookie"]
    client.cookies.clear()
    for value, status in ((PLANTED, 303), (cookie, 200)):
        response = await client.get(f"{server.console}/", headers={"Cookie": f"{COOKIE}={value}"})
        assert response.status_code == status
    second = await client.post(
        f"{server.console}/login",
        data={"token": token},
        headers={"Origin": server.url, "Cookie": f"{COOKIE}={cookie}"},
    )
    assert second.cookies[COOKIE] != cookie
    client.cookies.clear()
    replaced = await client.get(f"{server.console}/", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert replaced.status_code == 303, "the session before the second sign-in has ended"


async def test_the_cookie_is_secure_behind_tls_only(server: ConsoleServer) -> None:
    """The proxy on this machine is trusted; its clients have their own addresses."""
    token = await server.add_operator("tls")
    async with from_address("127.0.0.1") as proxied, from_address(new_address()) as direct:
        headers = {"Origin": f"https://{server.host}", "X-Forwarded-Proto": "https"}
        for client, is_secure in ((proxied, True), (direct, False)):
            response = await client.post(
                f"{server.console}/login", data={"token": token}, headers=headers
            )
            cookie = response.headers["set-cookie"]
            assert ("Secure" in cookie) is is_secure
            assert cookie.startswith("__Host-tally-console=" if is_secure else "tally-console=")
            assert "HttpOnly" in cookie
            assert "SameSite=lax" in cookie
            assert "Path=/" in cookie


async def test_every_response_has_the_security_headers(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    await signed_in(server, client, "headers")
    page = await client.get(f"{server.console}/")
    assert page.status_code == 200
    asset = next(iter(re.findall(r'"/console(/_nicegui/[^"\s]+\.js)"', page.text)))
    policies = set()
    for path, status in (
        ("/", 200), ("/login", 303), (asset, 200), ("/devices", 200), ("/nothing", 404),
        (f"{SOCKET}polling", 200), ("/_nicegui/nothing", 404),
    ):  # fmt: skip
        response = await client.get(server.console + path)
        assert response.status_code == status, path
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS, path
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "form-action 'self'" in policy
        assert "object-src 'none'" in policy
        assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
        assert "http" not in policy, "no remote origin"
        policies.add(policy)
    assert len(policies) > 1, "every response has its own nonce"
    client.cookies.clear()
    sign_in = await client.get(f"{server.console}/login")
    assert "script-src" not in sign_in.headers["content-security-policy"]
    assert {name: sign_in.headers.get(name) for name in HEADERS} == HEADERS


async def test_a_stranger_creates_neither_pages_nor_log_entries(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    """NiceGUI keeps every page in memory for a minute, also that of an error."""
    headers = {"Origin": server.url}
    for _ in range(3):
        for path in ("/_nicegui/stranger", "/_nicegui/1/static/stranger", "/stranger"):
            response = await client.get(server.console + path)
            assert response.status_code in (303, 404), path
            assert len(response.content) < 100, path
        with pytest.raises(InvalidStatus):
            async with connect(
                f"ws://{server.host}/console{SOCKET}websocket", additional_headers=headers
            ):
                pass
    messages = [entry["message"] for entry in server.log]
    assert not [text for text in messages if "stranger" in text or "handshake" in text]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://127.0.0.1:1", "http://localhost", "null", "", None]
)
async def test_a_page_on_another_origin_cannot_open_the_websocket(
    server: ConsoleServer, client: httpx.AsyncClient, origin: str | None
) -> None:
    name = f"socket-{origin}".encode().hex()[:30]
    cookie = await signed_in(server, client, name)
    headers = {"Cookie": f"{COOKIE}={cookie}"} | ({} if origin is None else {"Origin": origin})
    address = f"ws://{server.host}/console{SOCKET}websocket"
    with pytest.raises(InvalidStatus) as refused:
        async with connect(address, additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403


async def test_the_websocket_needs_a_session(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    cookie = await signed_in(server, client, "socket-session")
    address = f"ws://{server.host}/console{SOCKET}websocket"
    for value, status in ((cookie, None), (PLANTED, 401), (None, 401)):
        headers = {"Origin": server.url} | (
            {} if value is None else {"Cookie": f"{COOKIE}={value}"}
        )
        if status is None:
            async with connect(address, additional_headers=headers) as socket:
                assert str(await socket.recv()).startswith("0{")
            continue
        with pytest.raises(InvalidStatus) as refused:
            async with connect(address, additional_headers=headers):
                pass
        assert refused.value.response.status_code == status


async def test_requests_of_other_origins_are_refused(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    """Polling, pages that another page fetches or embeds, and its forms; a link is fine."""
    cookie = await signed_in(server, client, "origins")
    token = await server.add_operator("origins-2")
    client.cookies.set(COOKIE, cookie)
    cross, same_site = {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}
    link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    frame = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    evil = {"Origin": "https://evil.example"}
    for headers, path, status in (
        (evil, f"{SOCKET}polling", 403),
        (cross, f"{SOCKET}polling", 403),
        (same_site, f"{SOCKET}polling", 403),
        (cross, "/", 403),
        (cross | frame, "/", 403),
        (cross | link, "/", 200),
        ({"Sec-Fetch-Site": "none"}, "/", 200),
        ({"Sec-Fetch-Site": "same-origin"}, f"{SOCKET}polling", 200),
        ({}, f"{SOCKET}polling", 200),
    ):
        response = await client.get(server.console + path, headers=headers)
        assert response.status_code == status, (headers, path)
    for headers in (evil, cross | link, {"Origin": "null"}):
        form = await client.post(f"{server.console}/login", data={"token": token}, headers=headers)
        assert form.status_code == 403
        assert "set-cookie" not in form.headers
    client.cookies.clear()
    assert (await client.get(f"{server.console}{SOCKET}polling")).status_code == 401


async def test_sign_ins_are_limited_by_address_and_reported_once(
    server: ConsoleServer, client: httpx.AsyncClient
) -> None:
    """A flood is answered at once; another address is not affected."""
    token = await server.add_operator("throttled")
    async with from_address(new_address()) as attacker, from_address(new_address()) as operator:
        responses = await asyncio.gather(
            *(server.sign_in(attacker, f"tally-throttled-{n:064x}") for n in range(60))
        )
        statuses = [response.status_code for response in responses]
        assert statuses.count(403) == 10
        assert statuses.count(429) == 50
        refused = next(response for response in responses if response.status_code == 429)
        assert 1 <= int(refused.headers["retry-after"]) <= 600
        assert "Try again in" in refused.text
        assert (await server.sign_in(attacker, token)).status_code == 429
        assert (await server.sign_in(operator, token)).status_code == 303
    failures = [entry for entry in server.log if entry["action"] == "console_sign_in_failed"]
    assert len(failures) <= 2, "one entry per minute"
    assert failures[0]["level"] == "warning"
    metrics = (await client.get(f"{server.url}/metrics")).text
    for reason, count in (("invalid_token", 10), ("rate_limited", 51)):
        labels = f'{{backend="console",reason="{reason}"}}'
        [value] = re.findall(
            rf"^tally_failed_sign_ins_total{re.escape(labels)} (\S+)$", metrics, re.MULTILINE
        )
        assert float(value) >= count


@pytest.mark.parametrize(
    "body",
    [b"", b"token", b"token=%00%ff", b"\xff\xfe" * 10, b"token=" + b"x" * 100_000, b"a=b&" * 900],
)
async def test_a_malformed_form_is_a_failed_sign_in(server: ConsoleServer, body: bytes) -> None:
    headers = {"Origin": server.url}
    async with from_address(new_address()) as client:
        response = await client.post(f"{server.console}/login", content=body, headers=headers)
    assert response.status_code == 403
    assert "Invalid operator token" in response.text
    assert "set-cookie" not in response.headers


@pytest.mark.judge
async def test_sessions_are_shared_by_instances_and_hold_after_a_restart(tmp_path: Path) -> None:
    """Nothing about visitors is in files: NiceGUI stores none."""
    async with httpx.AsyncClient(timeout=30) as client:
        async with console_server(tmp_path, "devices") as first:
            cookie = await signed_in(first, client, "shared")
            async with console_server(tmp_path, "devices") as second:
                assert (await client.get(f"{second.console}/")).status_code == 200
        async with console_server(tmp_path, "devices") as third:
            assert (await client.get(f"{third.console}/")).status_code == 200
    assert visitor_files(tmp_path, cookie) == []


def visitor_files(folder: Path, cookie: str) -> list[Path]:
    """Return NiceGUI's files, and any file that contains the cookie."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and ("storage-" in path.name or cookie.encode() in path.read_bytes())
    ]


async def test_sign_ins_are_audited(server: ConsoleServer, client: httpx.AsyncClient) -> None:
    await signed_in(server, client, "audited")
    records, _ = await server.operators.changes("audited", 10)
    assert [(record.action, record.outcome) for record in records] == [
        ("console_sign_in", "succeeded")
    ]
