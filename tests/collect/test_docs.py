"""The page for those who build on collect: its commands work as they stand, and it has every code."""

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


async def work(server: CollectServer) -> None:
    """What the job does in a server: whatever Strava tells is applied soon."""
    while True:
        await server.process_inbox()
        await asyncio.sleep(0.05)


async def test_the_commands_of_the_page_work_in_order(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """From the first look at the models to the end of the account."""
    need_program("curl", "curl")
    bash = need_program("bash", "bash")
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert script.count("curl ") >= 18
    folder = tmp_path_factory.mktemp("page")
    (folder / "collect-admin.key").write_text("the-token-of-the-operators-0123456789")
    async with open_server(folder, collect_plain_http=True) as server:
        places = {
            "TALLY": server.url.removesuffix("/collect"),
            "STRAVA": server.strava.url,
            "ISSUER": server.oidc.url,
        }
        working = asyncio.create_task(work(server))
        process = await asyncio.create_subprocess_exec(
            bash,
            "-eu",
            "-c",
            script,
            env=os.environ | places | {"TALLY_DATA_DIR": str(folder)},
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
        b"event: milestone",
        b'"MILESTONE_PART_MINTED"',
    ):
        assert word in out, out[-2000:]


def operations() -> Api:
    return collect_api(_Anything())  # type: ignore[arg-type]


class _Anything:
    """Stands for the handlers where only the list of routes is looked at."""

    def __getattr__(self, name: str) -> object:
        assert hasattr(Handlers, name)
        return name


def test_every_code_of_the_routes_is_on_the_page() -> None:
    """Whoever meets an error finds it explained."""
    usual = {"unavailable", "invalid_field"}
    codes = {
        error.code for operation in operations().endpoints for error in operation.errors
    } - usual
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()


def test_every_session_route_says_so() -> None:
    """What wants a cookie is declared to want one, and the rest is meant to be open."""
    open_to_all = {operation.path for operation in operations().endpoints if not operation.security}
    assert open_to_all == {
        "/health",
        "/health/ready",
        "/auth/login",
        "/auth/callback",
        "/webhooks/strava",
        "/models",
        "/models/{model_id}",
    }
