"""The app as a whole: it says how it is, serves what it is given under one roof, and stops in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyreqwest.client import Client, ClientBuilder
from starlette.requests import Request
from starlette.types import ASGIApp

from tally import __version__
from tally.app import Application, build_app, open_application
from tally.kit.backend import Probe
from tally.kit.clock import ManualClock
from tally.kit.endpoints import Api, Endpoint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.jobs import Job
from tally.kit.server import serving
from tally.settings import Settings
from tally.store.errors import StorageUnwritable


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().build() as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def parts(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Application]:
    async with open_application(
        Settings(data_dir=tmp_path / "data", backends=("devices",)), clock
    ) as parts:
        yield parts


@asynccontextmanager
async def running(parts: Application) -> AsyncIterator[str]:
    async with serving(build_app(parts), on_stopping=parts.drain) as url:
        yield url


async def get(client: Client, url: str) -> tuple[int, Any]:
    response = await client.get(url).build().send()
    assert response.headers["x-request-id"]
    return response.status, await response.json()


async def test_it_is_alive_and_ready(client: Client, parts: Application) -> None:
    async def fine() -> None: ...

    async with running(replace(parts, probes=(Probe("disk", fine),))) as url:
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})
        status, told = await get(client, f"{url}/health/ready")
        assert (status, told["status"], told["checks"]["disk"]) == (200, "ready", "ok")


async def test_what_is_not_ready_is_named(
    client: Client, parts: Application, clock: ManualClock
) -> None:
    """Which check, and whether it failed or did not answer; why is in the log, not on the wire."""

    async def fine() -> None: ...

    async def broken() -> None:
        raise ConnectionError("password=hunter2")

    probes = (Probe("disk", fine), Probe("store", broken), Probe("redis", lambda: clock.sleep(60)))
    async with running(replace(parts, probes=probes, jobs=())) as url:
        asking = asyncio.create_task(get(client, f"{url}/health/ready"))
        await clock.until_sleeping(3)  # the probe, its deadline and the hub's pings
        await clock.advance(2)
        assert await asking == (
            503,
            {
                "status": "not_ready",
                "checks": {"disk": "ok", "store": "failed", "redis": "timed_out"},
            },
        )
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})


async def test_what_is_not_required_is_told_and_no_more(client: Client, parts: Application) -> None:
    """A cache that is away is worth knowing of, and no reason to send requests elsewhere."""

    async def broken() -> None:
        raise ConnectionError

    async with running(
        replace(parts, probes=(Probe("cache", broken, is_required=False),), jobs=())
    ) as url:
        assert await get(client, f"{url}/health/ready") == (
            200,
            {"status": "ready", "checks": {"cache": "failed"}},
        )


async def test_only_the_backends_that_are_asked_for_are_served(
    client: Client, tmp_path: Path
) -> None:
    async with (
        open_application(Settings(data_dir=tmp_path, backends=("collect",))) as parts,
        running(parts) as url,
    ):
        assert [api.name for api in parts.apis] == ["collect"]
        assert (await get(client, f"{url}/collect/health"))[0] == 200
        assert (await get(client, f"{url}/devices/health"))[0] == 404


async def test_metrics_are_served(client: Client, parts: Application) -> None:
    async with running(parts) as url:
        await get(client, f"{url}/health")
        response = await client.get(f"{url}/metrics").build().send()
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        page = await response.text()
    assert (
        'tally_http_request_duration_seconds_count{method="GET",route="/health",status="200"} 1.0'
        in page
    )


async def test_the_documents_are_served(client: Client, parts: Application) -> None:
    """With every path of the instance in them, and a page that may load nothing."""
    async with running(parts) as url:
        _, told = await get(client, f"{url}/openapi.json")
        response = await client.get(f"{url}/docs").build().send()
        page = await response.text()
    assert told["info"]["version"] == __version__
    assert set(told["paths"]) >= {"/health", "/health/ready", "/metrics", "/openapi.json", "/docs"}
    assert "503" in told["paths"]["/health/ready"]["get"]["responses"]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert all(path in page for path in told["paths"])


async def test_a_backend_is_served_under_its_name(client: Client, parts: Application) -> None:
    async def handler(_: Request) -> ASGIApp:
        return Json({"devices": []})

    api = Api(
        name="things", description="Things.", endpoints=(Endpoint("GET", "/all", handler, "All"),)
    )
    async with running(replace(parts, apis=(*parts.apis, api))) as url:
        assert await get(client, f"{url}/things/all") == (200, {"devices": []})
        _, told = await get(client, f"{url}/openapi.json")
        assert "/things/all" in told["paths"]
        status, error = await get(client, f"{url}/nothing")
        assert (status, error["error"]["code"]) == (404, "not_found")


async def test_jobs_run_while_the_app_does(
    client: Client, parts: Application, clock: ManualClock
) -> None:
    runs: list[float] = []

    async def run() -> None:
        runs.append(clock.monotonic())

    job = Job(name="sweep", description="Sweeps", run=run, interval=60, jitter=0)
    async with running(replace(parts, jobs=(job,))):
        await clock.advance(120)
    await clock.advance(600)
    assert runs == [0, 60, 120]


async def test_a_stop_ends_streams_and_then_what_was_opened(
    client: Client, parts: Application
) -> None:
    """Clients are told to come back, readiness is gone, and nothing waits for the grace to pass."""
    listening = asyncio.Event()

    async def snapshot() -> tuple[str, object]:
        listening.set()
        return "snapshot", {}

    async def stream(request: Request) -> ASGIApp:
        return EventStream(parts.hub, "board", request, snapshot)

    api = Api(
        name="things", description="", endpoints=(Endpoint("GET", "/stream", stream, "A stream"),)
    )
    async with running(replace(parts, apis=(api,))) as url:
        reading = asyncio.create_task(client.get(f"{url}/things/stream").build().send())
        await listening.wait()
    text = await (await reading).text()
    assert "event: snapshot" in text
    assert "event: reconnect" in text
    assert parts.stopping.is_set()


async def test_an_instance_that_stops_says_so(client: Client, parts: Application) -> None:
    async with running(parts) as url:
        parts.drain()
        status, told = await get(client, f"{url}/health/ready")
    assert (status, told["status"]) == (503, "stopping")


async def test_the_cursor_secret_is_made_once_and_can_be_given(tmp_path: Path) -> None:
    """The same after a restart; a secret of one's own needs no file."""
    async with open_application(Settings(data_dir=tmp_path / "a", backends=("devices",))) as first:
        cursor = first.cursors.encode("x", {"pk": "1"})
    async with open_application(Settings(data_dir=tmp_path / "a", backends=("devices",))) as again:
        assert again.cursors.decode("x", cursor) == {"pk": "1"}
    assert (tmp_path / "a" / "cursor.key").stat().st_mode & 0o777 == 0o600


async def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text(json.dumps("a file"))
    with pytest.raises(StorageUnwritable, match=r"the data directory .* cannot be made"):
        async with open_application(Settings(data_dir=in_the_way)):
            pass
