"""A socket uses only pages of its own session, whatever page IDs it knows."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tally.kit.operators import Role
from tests.console.console_server import COOKIE, ConsoleServer, console_server

SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConsoleServer]:
    async with console_server(tmp_path_factory.mktemp("console"), "devices") as running:
        yield running


async def sign_in(server: ConsoleServer, name: str, role: Role) -> httpx.AsyncClient:
    client = httpx.AsyncClient(timeout=30)
    await server.sign_in(client, await server.add_operator(name, role))
    return client


class Socket:
    """A connection of socket.io, without NiceGUI's script."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, event: str, **message: object) -> None:
        await self._connection.send(f"42{json.dumps([event, message])}")

    async def shake_hands(self, page_id: str) -> bool:
        """Return whether the server accepted the handshake; it handles messages in order."""
        message = {"client_id": page_id, "tab_id": "tab", "document_id": "document"}
        await self._connection.send(f"420{json.dumps(['handshake', message])}")
        return await self.receive("430") == "[true]"

    async def receive(self, start: str) -> str:
        while not (text := str(await self._connection.recv())).startswith(start):
            pass
        return text.removeprefix(start)


async def open_socket(
    server: ConsoleServer, client: httpx.AsyncClient, query: str = ""
) -> ClientConnection:
    headers = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}", "Origin": server.url}
    connection = await connect(f"ws://{server.host}{SOCKET}{query}", additional_headers=headers)
    await connection.recv()
    await connection.send("40")
    return connection


def find_button(page: str, label: str) -> dict[str, Any]:
    """Return a click on a button as a message, without the page's ID."""
    found = re.search(r"String\.raw`(\{.*?)`", page, re.DOTALL)
    assert found is not None
    for number, element in json.loads(found[1].replace("&quot;", '"')).items():
        if (element.get("props") or {}).get("label") == label:
            listener = next(each for each in element["events"] if each["type"] == "click")
            return {"id": int(number), "listener_id": listener["listener_id"], "args": []}
    raise AssertionError(f"no button {label}")


async def test_a_viewer_cannot_click_in_the_page_of_an_operator(server: ConsoleServer) -> None:
    operator = await sign_in(server, "ada", Role.OPERATOR)
    viewer = await sign_in(server, "vera", Role.VIEWER)
    page = (await operator.get(f"{server.console}/operations/jobs/store-scrub")).text
    page_id = re.findall(r"client_id['\"]?\s*[:=]\s*['\"]?([0-9a-f-]{36})", page)[0]
    click = find_button(page, "Pause") | {"client_id": page_id}

    implicit = f"&implicit_handshake=true&client_id={page_id}&tab_id=tab&document_id=document"
    async with await open_socket(server, viewer, implicit) as refused:
        assert str(await refused.recv()).startswith("44")
    async with (
        await open_socket(server, operator) as own,
        await open_socket(server, viewer) as other,
    ):
        own_socket, other_socket = Socket(own), Socket(other)
        assert await own_socket.shake_hands(page_id)
        assert not await other_socket.shake_hands(page_id)
        await other_socket.send("event", **click)
        assert not await other_socket.shake_hands(page_id)
        await own_socket.send("event", **click)

        async def created() -> int:
            records, _ = await server.operators.changes("ada", 10)
            return [record.action for record in records].count("job_pause")

        while not await created():
            assert await own.recv()
        assert await created() == 1
    await operator.aclose()
    await viewer.aclose()
