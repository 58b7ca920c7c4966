"""The app: health, readiness, metrics, documentation, backends and shutdown."""

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
async def application(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Application]:
    async with open_application(
        Settings(data_dir=tmp_path / "data", backends=("devices",)), clock
    ) as application:
        yield application


@asynccontextmanager
async def running(application: Application) -> AsyncIterator[str]:
    async with serving(build_app(application), on_stopping=application.drain) as url:
        yield url


async def get(client: Client, url: str) -> tuple[int, Any]:
    response = await client.get(url).build().send()
    assert response.headers["x-request-id"]
    return response.status, await response.json()


async def test_a_healthy_instance_is_live_and_ready(
    client: Client, application: Application
) -> None:
    async def fine() -> None: ...

    async with running(replace(application, probes=(Probe("disk", fine),))) as url:
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})
        status, body = await get(client, f"{url}/health/ready")
        assert (status, body["status"], body["checks"]["disk"]) == (200, "ready", "ok")


async def test_failed_checks_are_reported(
    client: Client, application: Application, clock: ManualClock
) -> None:
    """The response names each check and its result; only the log has the reason."""

    async def fine() -> None: ...

    async def broken() -> None:
        raise ConnectionError("password=hunter2")

    probes = (Probe("disk", fine), Probe("store", broken), Probe("redis", lambda: clock.sleep(60)))
    async with running(replace(application, probes=probes, jobs=())) as url:
        request = asyncio.create_task(get(client, f"{url}/health/ready"))
        await clock.until_sleeping(3)  # the probe, its deadline and the hub's pings
        await clock.advance(2)
        assert await request == (
            503,
            {
                "status": "not_ready",
                "checks": {"disk": "ok", "store": "failed", "redis": "timed_out"},
            },
        )
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})


async def test_an_optional_check_does_not_affect_readiness(
    client: Client, application: Application
) -> None:
    """A failed cache is reported, but the instance still accepts requests."""

    async def broken() -> None:
        raise ConnectionError

    async with running(
        replace(application, probes=(Probe("cache", broken, is_required=False),), jobs=())
    ) as url:
        assert await get(client, f"{url}/health/ready") == (
            200,
            {"status": "ready", "checks": {"cache": "failed"}},
        )


async def test_only_configured_backends_are_served(client: Client, tmp_path: Path) -> None:
    async with (
        open_application(Settings(data_dir=tmp_path, backends=("collect",))) as application,
        running(application) as url,
    ):
        assert [api.name for api in application.apis] == ["collect"]
        assert (await get(client, f"{url}/collect/health"))[0] == 200
        assert (await get(client, f"{url}/devices/health"))[0] == 404


async def test_metrics_are_served(client: Client, application: Application) -> None:
    async with running(application) as url:
        await get(client, f"{url}/health")
        response = await client.get(f"{url}/metrics").build().send()
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        page = await response.text()
    assert (
        'tally_http_request_duration_seconds_count{method="GET",route="/health",status="200"} 1.0'
        in page
    )


async def test_the_documentation_is_served(client: Client, application: Application) -> None:
    """It contains every path of the instance, and the page may not load anything."""
    async with running(application) as url:
        _, body = await get(client, f"{url}/openapi.json")
        response = await client.get(f"{url}/docs").build().send()
        page = await response.text()
    assert body["info"]["version"] == __version__
    assert set(body["paths"]) >= {"/health", "/health/ready", "/metrics", "/openapi.json", "/docs"}
    assert "503" in body["paths"]["/health/ready"]["get"]["responses"]
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert all(path in page for path in body["paths"])


async def test_a_backend_is_served_under_its_name(client: Client, application: Application) -> None:
    async def handler(_: Request) -> ASGIApp:
        return Json({"devices": []})

    api = Api(
        name="things", description="Things.", endpoints=(Endpoint("GET", "/all", handler, "All"),)
    )
    async with running(replace(application, apis=(*application.apis, api))) as url:
        assert await get(client, f"{url}/things/all") == (200, {"devices": []})
        _, body = await get(client, f"{url}/openapi.json")
        assert "/things/all" in body["paths"]
        status, error = await get(client, f"{url}/nothing")
        assert (status, error["error"]["code"]) == (404, "not_found")


async def test_jobs_run_while_the_app_runs(
    client: Client, application: Application, clock: ManualClock
) -> None:
    runs: list[float] = []

    async def run() -> None:
        runs.append(clock.monotonic())

    job = Job(name="sweep", description="Sweeps", run=run, interval=60, jitter=0)
    async with running(replace(application, jobs=(job,))):
        await clock.advance(120)
    await clock.advance(600)
    assert runs == [0, 60, 120]


async def test_shutdown_ends_streams(client: Client, application: Application) -> None:
    """Clients get a reconnection delay, and shutdown does not wait for the grace period."""
    connected = asyncio.Event()

    async def snapshot() -> tuple[str, object]:
        connected.set()
        return "snapshot", {}

    async def stream(request: Request) -> ASGIApp:
        return EventStream(application.hub, "board", request, snapshot)

    api = Api(
        name="things", description="", endpoints=(Endpoint("GET", "/stream", stream, "A stream"),)
    )
    async with running(replace(application, apis=(api,))) as url:
        reading = asyncio.create_task(client.get(f"{url}/things/stream").build().send())
        await connected.wait()
    text = await (await reading).text()
    assert "event: snapshot" in text
    assert "event: reconnect" in text
    assert application.stopping.is_set()


async def test_a_draining_instance_reports_that_it_is_stopping(
    client: Client, application: Application
) -> None:
    async with running(application) as url:
        application.drain()
        status, body = await get(client, f"{url}/health/ready")
    assert (status, body["status"]) == (503, "stopping")


async def test_the_cursor_secret_is_created_once(tmp_path: Path) -> None:
    """It is the same after a restart."""
    async with open_application(Settings(data_dir=tmp_path / "a", backends=("devices",))) as first:
        cursor = first.cursors.encode("x", {"pk": "1"})
    async with open_application(Settings(data_dir=tmp_path / "a", backends=("devices",))) as again:
        assert again.cursors.decode("x", cursor) == {"pk": "1"}
    assert (tmp_path / "a" / "cursor.key").stat().st_mode & 0o777 == 0o600


async def test_an_unusable_data_directory_is_reported(tmp_path: Path) -> None:
    blocking_file = tmp_path / "data"
    blocking_file.write_text(json.dumps("a file"))
    with pytest.raises(StorageUnwritable, match=r"cannot create the data directory"):
        async with open_application(Settings(data_dir=blocking_file)):
            pass
