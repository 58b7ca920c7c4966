"""The commands in docs/collect.md work, and it documents every error code."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tally.collect.api.handlers import Handlers
from tally.collect.api.routes import collect_api
from tally.kit.endpoints import Api
from tests.collect.server_harness import CollectServer, open_server
from tests.needs import need_program

PAGE = (Path(__file__).parent.parent.parent / "docs" / "collect.md").read_text(encoding="utf-8")


async def process_inbox(server: CollectServer) -> None:
    """Process the inbox continuously, like the job in a server."""
    while True:
        await server.process_inbox()
        await asyncio.sleep(0.05)


async def test_the_commands_work_in_order(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """From listing models to deleting the account."""
    need_program("curl", "curl")
    bash = need_program("bash", "bash")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert script.count("curl ") >= 18
    folder = tmp_path_factory.mktemp("page")
    (folder / "operator.token").write_text("the-token-of-the-operators-0123456789")
    async with open_server(folder, collect_plain_http=True) as server:
        urls = {
            "TALLY": server.url.removesuffix("/collect"),
            "STRAVA": server.strava.url,
            "ISSUER": server.oidc.url,
        }
        working = asyncio.create_task(process_inbox(server))
        process = await asyncio.create_subprocess_exec(
            bash,
            "-eu",
            "-c",
            script,
            env=os.environ | urls | {"TALLY_DATA_DIR": str(folder)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        working.cancel()
        await asyncio.wait({working})
    assert process.returncode == 0, (out[-2000:], err[-2000:])
    for word in (
        b'"connected":true',
        b'"Meadow"',
        b'"GravelRide"',
        b'"partsMinted":1',
        b"event: snapshot",
        b'"MILESTONE_PART_MINTED"',
    ):
        assert word in out, out[-2000:]


def api() -> Api:
    return collect_api(_FakeHandlers())  # type: ignore[arg-type]


class _FakeHandlers:
    """Handlers for tests that only read the route list."""

    def __getattr__(self, name: str) -> object:
        assert hasattr(Handlers, name)
        return name


def test_every_error_code_is_documented() -> None:
    """Except those that every route shares."""
    common = {"unavailable", "invalid_field"}
    codes = {error.code for endpoint in api().endpoints for error in endpoint.errors} - common
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_public_routes_are_intentional() -> None:
    """All other routes declare a security scheme."""
    open_to_all = {endpoint.path for endpoint in api().endpoints if not endpoint.security}
    assert open_to_all == {
        "/health",
        "/health/ready",
        "/auth/login",
        "/auth/callback",
        "/webhooks/strava/{secret}",
        "/models",
        "/models/{model_id}",
    }
