"""`tally serve --console` in a process, and the operators of its data directory."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tally.instance.operators import OperatorAccounts, open_operators
from tally.kit.clock import SystemClock
from tally.kit.operators import Role
from tally.settings import Settings
from tally.store.sqlite import open_sqlite
from tally.store.store import Store

START_SECONDS = 60
COOKIE = "tally-console"


class ServerLog:
    """The log of a server, read while it runs, so that the server never waits."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self.entries: list[dict[str, Any]] = []
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def read(self) -> None:
        async for line in self._stream:
            self.entries.append(json.loads(line))
            if self.entries[-1]["action"] == "listening":
                self.url.set_result(self.entries[-1]["data"]["url"])
        if not self.url.done():
            self.url.set_exception(AssertionError(f"the server did not start: {self.entries}"))


@dataclass(frozen=True, slots=True)
class ConsoleServer:
    """A running server; `operators` uses its data directory like another instance."""

    url: str
    data_dir: Path
    operators: OperatorAccounts
    log: list[dict[str, Any]] = field(repr=False)

    @property
    def console(self) -> str:
        return f"{self.url}/console"

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    async def add_operator(self, name: str, role: Role = Role.OPERATOR) -> str:
        """Create an operator and return its token."""
        return await self.operators.add(name, role, None)

    async def sign_in(self, client: httpx.AsyncClient, token: str) -> httpx.Response:
        """Send the form as a browser does; the client keeps the cookie."""
        headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"}
        return await client.post(f"{self.console}/login", data={"token": token}, headers=headers)


@asynccontextmanager
async def console_server(
    folder: Path, *backends: str, **variables: str
) -> AsyncIterator[ConsoleServer]:
    """Start a server on `folder`; it must end with status 0."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    environ |= {"TALLY_DATA_DIR": str(folder / "data"), "TALLY_LOG_FORMAT": "json"}
    environ |= {"TALLY_SHUTDOWN_DELAY": "0"} | variables
    words = (sys.executable, "-m", "tally.cli", "serve", *backends, "--console", "--port", "0")
    server = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert server.stderr is not None
    log, clock = ServerLog(server.stderr), SystemClock()
    reading = asyncio.create_task(log.read())
    try:
        url = await asyncio.wait_for(log.url, START_SECONDS)
        async with open_sqlite(folder / "data") as engine:
            operators = open_operators(Settings(), Store(engine, clock), clock)
            yield ConsoleServer(url, folder / "data", operators, log.entries)
    finally:
        if server.returncode is None:
            server.terminate()
        await reading
        status = await server.wait()
    assert status == 0, log.entries[-5:]
