"""Webhooks reach public addresses only, whatever the names of their hosts resolve to."""

import asyncio
import ipaddress
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from tally.errors import Invalid
from tally.instance.webhooks.sender import MessageSender, Outcome
from tally.instance.webhooks.targets import (
    TargetRefused,
    WebhookTarget,
    is_public,
    parse_target,
    resolve_target,
)

PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822")
PRIVATE = (
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.1.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2001:0:53aa:64c:0:fbff:7f00:1",
    "fc00::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_other_addresses_are_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(Invalid, match="public addresses only") as caught:
        parse_target(f"https://{host}/hook", allows_private=False)
    assert caught.value.code == "webhook_address_refused"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://localhost/",
        "https:///hook",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 130}example/",
    ],
)
def test_urls_that_are_not_public_https_are_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_target(url, allows_private=False)


async def test_a_name_that_resolves_to_this_machine_is_refused() -> None:
    with pytest.raises(TargetRefused, match="not public"):
        await resolve_target(WebhookTarget("localhost", 443), allows_private=False)


async def test_a_message_goes_to_the_address_that_was_checked() -> None:
    """The host name has no address, so a second look-up by the client would fail."""
    connections: list[str] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def resolve(target: WebhookTarget) -> str:
        resolved.append(target)
        if len(resolved) > 1:
            raise TargetRefused(f"{target.host} has the address 127.0.0.1, which is not public")
        return "127.0.0.1"

    resolved: list[WebhookTarget] = []
    listener = await asyncio.start_server(respond, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    url = f"http://hooks.example.invalid:{port}/hook?token=of-the-url"
    async with listener, MessageSender(allows_private=True, resolve=resolve) as sender:
        first = await sender.send(url, {"webhook-id": "msg_1"}, b"{}")
        second = await sender.send(url, {"webhook-id": "msg_2"}, b"{}")
    assert (first.status, first.error) == (204, None)
    assert second.error is not None
    assert second.error.startswith("Address refused: hooks.example.invalid")
    assert len(connections) == 1, "a name is checked before every attempt"
    assert f"Host: hooks.example.invalid:{port}" in connections[0]


async def test_every_failure_is_an_outcome_without_the_url() -> None:
    async with MessageSender(allows_private=True) as sender:
        listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            cut = await sender.send(f"http://127.0.0.1:{port}/?token=abc", {}, b"")
        refused = await sender.send(f"http://127.0.0.1:{port}/?token=abc", {}, b"")
        unknown = await sender.send("http://name.invalid/?token=abc", {}, b"")
    for outcome, start in (
        (cut, "Connection failed"),
        (refused, "Connection failed"),
        (unknown, "Host name not resolved"),
    ):
        assert outcome.error is not None
        assert outcome.error.startswith(start)
        assert "abc" not in outcome.error


async def test_a_response_counts_although_its_body_does_not_end() -> None:
    """A short body that follows is read, so that its connection is reused."""
    connections: list[str] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append("")
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = 1_000_000 if "/endless" in head else 2
                writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n".encode())
                await writer.drain()
                writer.write(b"{}")
        writer.close()

    listener = await asyncio.start_server(respond, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, MessageSender(allows_private=True) as sender, asyncio.timeout(10):
        for path in ("", "", "/endless"):
            assert await sender.send(url + path, {}, b"") == Outcome(200)
    assert len(connections) == 1


@pytest.mark.parametrize("host", ["xn--a.invalid", "xn--a"])
async def test_a_host_name_that_the_client_refuses_is_an_outcome(host: str) -> None:
    async def resolve(_: WebhookTarget) -> str:
        return "127.0.0.1"

    async with MessageSender(allows_private=True, resolve=resolve) as sender:
        outcome = await sender.send(f"http://{host}/", {}, b"")
    assert outcome.error == "The host name is not valid"


async def test_look_ups_that_hang_delay_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow name server holds one thread of its own, however many attempts wait for it."""
    is_over, look_ups, resolve = threading.Event(), [], socket.getaddrinfo

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host == "slow.invalid":
            look_ups.append(host)
            is_over.wait()
        return resolve(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with MessageSender(allows_private=True) as sender:
        waiting = [
            asyncio.create_task(sender.send("http://slow.invalid/", {}, b"")) for _ in range(40)
        ]
        try:
            async with asyncio.timeout(10):
                await asyncio.to_thread(int)
                other = await sender.send("http://127.0.0.1:1/", {}, b"")
        finally:
            is_over.set()
        outcomes = await asyncio.gather(*waiting)
    assert other.error is not None
    assert other.error.startswith("Connection failed")
    assert {str(outcome.error).partition(":")[0] for outcome in outcomes} == {
        "Host name not resolved"
    }
    assert len(look_ups) == 1
