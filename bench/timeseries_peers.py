"""Time series databases that the devices backend is compared with: InfluxDB and VictoriaMetrics.

Each is started with a temporary directory on free ports, if it is installed. Both accept InfluxDB's
line protocol: one line per reading, with its five sensors as fields.
"""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from pyreqwest.client import Client, ClientBuilder

from bench.http_client import KeepAliveClient, open_client
from bench.programs import Program

START_SECONDS: Final = 30
_INFLUX_CONFIG: Final = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
wal-fsync-delay = "0s"
query-log-enabled = false
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
[monitor]
store-enabled = false
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running database. `chart` returns the path of a chart of one board."""

    name: str
    durability: str
    program: Program
    folder: Path
    client: Client
    board: KeepAliveClient
    chart: Callable[[str, int, int], str]
    # The path that makes recent readings searchable; VictoriaMetrics does so after seconds.
    flush_path: str | None = None

    async def flush(self) -> None:
        """Make all readings searchable."""
        if self.flush_path is not None:
            await self.get(self.flush_path)

    async def write(self, body: bytes) -> None:
        await self.board.request("POST", "/write?db=tally&precision=ms", body)

    async def get(self, path: str) -> bytes:
        response = await self.client.get(self.program.url + path).build().send()
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(f"{path} returned {response.status} {content[:200]!r}")
        return content

    def size(self) -> int:
        """Return the bytes of all files."""
        return folder_bytes(self.folder)


def folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def line_protocol(request: Mapping[str, Any]) -> bytes:
    """Return the readings of a request to `/devices/data` as lines."""
    board = request["hardware_id"].replace(":", "")
    lines = []
    for reading in request["readings"]:
        values = ",".join(f"{name}={value}" for name, value in reading["sensors"].items())
        lines.append(f"reading,board={board} {values} {reading['timestamp_ms']}")
    return "\n".join(lines).encode()


@asynccontextmanager
async def open_influxdb(folder: Path) -> AsyncIterator[Peer | None]:
    """Run influxd; its write-ahead log is synced before each response. None if not installed."""
    program = shutil.which("influxd")
    if program is None:
        yield None
        return
    port = free_port()
    config = _write_influx_config(folder, port)
    arguments = (program, "run", "-config", str(config))
    async with _running(arguments, port, "/ping") as running, _clients(running) as (client, board):
        create = urlencode({"q": "CREATE DATABASE tally"})
        await client.post(f"{running.url}/query?{create}").build().send()
        durability = "write-ahead log synced before each response"
        yield Peer("InfluxDB", durability, running, folder, client, board, _influx_chart)


@asynccontextmanager
async def open_victoria_metrics(folder: Path) -> AsyncIterator[Peer | None]:
    """Run victoria-metrics; it answers before anything is on disk. None if not installed."""
    program = shutil.which("victoria-metrics")
    if program is None:
        yield None
        return
    port = free_port()
    arguments = (
        program,
        f"-storageDataPath={folder}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-search.latencyOffset=0s",
    )
    async with (
        _running(arguments, port, "/health") as running,
        _clients(running) as (client, board),
    ):
        durability = "not synced; written within seconds"
        yield Peer(
            "VictoriaMetrics",
            durability,
            running,
            folder,
            client,
            board,
            _victoria_chart,
            "/internal/force_flush",
        )


def _write_influx_config(folder: Path, port: int) -> Path:
    folder.mkdir(parents=True)
    config = folder / "influxdb.conf"
    text = _INFLUX_CONFIG.format(folder=folder, port=port, rpc=free_port())
    config.write_text(text, encoding="utf-8")
    return config


def _influx_chart(board: str, first_ms: int, last_ms: int) -> str:
    field = '"bme280_temp_c"'
    query = (
        f"SELECT count({field}),min({field}),max({field}),mean({field}),first({field}),"
        f"last({field}) FROM reading WHERE board='{board.replace(':', '')}'"
        f" AND time >= {first_ms}ms AND time <= {last_ms}ms GROUP BY time(1d)"
    )
    return f"/query?{urlencode({'db': 'tally', 'q': query, 'epoch': 'ms'})}"


def _victoria_chart(board: str, first_ms: int, last_ms: int) -> str:
    query = f'rollup(reading_bme280_temp_c{{board="{board.replace(":", "")}"}}[1d])'
    parameters = {
        "query": query,
        "start": first_ms / 1000,
        "end": last_ms / 1000,
        "step": "1d",
        "nocache": 1,
    }
    return f"/api/v1/query_range?{urlencode(parameters)}"


@asynccontextmanager
async def _running(arguments: tuple[str, ...], port: int, path: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(START_SECONDS), ClientBuilder().no_proxy().build() as client:
            while not await _is_ready(client, url + path):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield Program(url, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(client: Client, url: str) -> bool:
    try:
        response = await client.get(url).build().send()
    except Exception:  # noqa: BLE001  (until it listens)
        return False
    return response.status < 300


@asynccontextmanager
async def _clients(running: Program) -> AsyncIterator[tuple[Client, KeepAliveClient]]:
    async with ClientBuilder().no_proxy().build() as client:
        with open_client(running.url, {}) as board:
            yield client, board


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
