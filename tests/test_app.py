"""The app: health, readiness, metrics, documentation, backends and shutdown."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.registry import Collector
from pyreqwest.client import Client, ClientBuilder
from starlette.requests import Request
from starlette.types import ASGIApp

from tally import __version__
from tally.app import JOB_SCHEDULES, Application, build_app, open_application
from tally.errors import Unavailable
from tally.kit.backend import Probe
from tally.kit.clock import ManualClock, SystemClock
from tally.kit.endpoints import Api, Endpoint
from tally.kit.event_stream import EventStream, StateSource
from tally.kit.http import Json
from tally.kit.jobs import Job
from tally.kit.readiness import ReadinessMonitor
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.store.errors import StorageUnwritable


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
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
    """It is ready as soon as it listens."""
    async with running(application) as url:
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})
        status, body = await get(client, f"{url}/health/ready")
    assert (status, body["status"]) == (200, "ready")
    assert {name: check["status"] for name, check in body["checks"].items()} == {
        "store": "ok",
        "clock": "ok",
    }


async def test_failed_checks_are_reported(client: Client, application: Application) -> None:
    """The response names each check; only the log has the details of an unexpected error."""

    async def fine() -> None: ...

    async def broken() -> None:
        raise ConnectionError("password=hunter2")

    async def down() -> None:
        raise Unavailable("The disk is full")

    probes = (
        Probe("disk", down),
        Probe("memory", fine),
        Probe("queue", broken),
        Probe("cache", broken, is_required=False),
    )
    monitor = ReadinessMonitor(SystemClock(), probes)
    async with running(replace(application, readiness=monitor)) as url:
        status, body = await get(client, f"{url}/health/ready")
        assert await get(client, f"{url}/health") == (200, {"status": "ok"})
    assert (status, body["status"]) == (503, "not_ready")
    hidden = "Failed; the log has the reason"
    assert {
        name: (check["status"], check["required"], check.get("missing"))
        for name, check in body["checks"].items()
    } == {
        "disk": ("failed", True, "The disk is full"),
        "memory": ("ok", True, None),
        "queue": ("failed", True, hidden),
        "cache": ("failed", False, hidden),
    }


async def test_an_optional_check_does_not_affect_readiness(
    client: Client, application: Application
) -> None:
    """A failed cache is reported, but the instance still accepts requests."""

    async def broken() -> None:
        raise ConnectionError

    monitor = ReadinessMonitor(SystemClock(), [Probe("cache", broken, is_required=False)])
    async with running(replace(application, readiness=monitor)) as url:
        status, body = await get(client, f"{url}/health/ready")
    assert (status, body["status"]) == (200, "ready")
    assert body["checks"]["cache"]["status"] == "failed"


async def test_the_root_redirects_to_the_documentation_without_a_console(
    client: Client, application: Application
) -> None:
    async with running(application) as url:
        response = await client.get(f"{url}/").build().send()
    assert (response.status, response.headers["location"]) == (307, "/docs")


async def test_only_configured_backends_are_served(client: Client, tmp_path: Path) -> None:
    async with (
        open_application(Settings(data_dir=tmp_path, backends=("collect",))) as application,
        running(application) as url,
    ):
        assert [api.name for api in application.apis] == ["collect", "admin"]
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


async def test_rendering_metrics_delays_no_other_request(
    client: Client, application: Application
) -> None:
    """A registry with thousands of series takes a tenth of a second."""
    has_started, is_answered = threading.Event(), threading.Event()

    class SlowCollector(Collector):
        def collect(self) -> Iterator[Metric]:
            has_started.set()
            assert is_answered.wait(10)
            return iter(())

    application.metrics.registry.register(SlowCollector())
    async with running(application) as url:
        scrape = client.get(f"{url}/metrics").build().send()
        scraping = asyncio.ensure_future(scrape)
        assert await asyncio.to_thread(has_started.wait, 10)
        assert (await get(client, f"{url}/health"))[0] == 200
        is_answered.set()
        assert (await scraping).status == 200


async def test_the_documentation_is_served(client: Client, application: Application) -> None:
    """The document contains every path of the instance except pages for people."""
    async with running(application) as url:
        _, body = await get(client, f"{url}/openapi.json")
        pages = [await client.get(url + path).build().send() for path in ("/docs", "/docs/errors")]
    assert body["info"]["version"] == __version__
    assert set(body["paths"]) >= {"/health", "/health/ready", "/metrics", "/patterns"}
    assert not {"/", "/docs", "/docs/errors", "/openapi.json"} & set(body["paths"])
    assert "503" in body["paths"]["/health/ready"]["get"]["responses"]
    for path in ("/health", "/health/ready", "/metrics", "/patterns"):
        (media,) = body["paths"][path]["get"]["responses"]["200"]["content"].values()
        assert media["example"], path
    assert [page.status for page in pages] == [200, 200]


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
        assert (status, error["code"]) == (404, "not_found")


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
        return EventStream(application.hub, StateSource("board", snapshot), request)

    api = Api(
        name="things", description="", endpoints=(Endpoint("GET", "/stream", stream, "A stream"),)
    )
    async with running(replace(application, apis=(api,))) as url:
        reading = asyncio.create_task(client.get(f"{url}/things/stream").build().send())
        await connected.wait()
    text = await (await reading).text()
    assert "event: snapshot" in text
    assert "event: reconnect" in text


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


async def test_every_job_of_an_instance_is_in_the_list_of_jobs(tmp_path: Path) -> None:
    """`tally job list` prints the schedules, without opening an instance."""
    settings = Settings(data_dir=tmp_path / "data", cricket_sportmonks_token=Secret("token"))
    async with open_application(settings) as application:
        running = {(job.name, job.description) for job in application.jobs}
    listed = [entry for entries in JOB_SCHEDULES.values() for entry in entries]
    assert {(entry.name, entry.description) for entry in listed} == running
    assert len({entry.name for entry in listed}) == len(listed)
