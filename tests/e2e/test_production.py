"""The server with external DynamoDB, PostgreSQL and Redis, as deploy/compose.yaml runs it."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types, and comes with a tool of the tests
from pyreqwest.client import Client, ClientBuilder

from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tally.kit.keyfile import read_or_create
from tally.sim.boards.command import create_api_key
from tally.sim.players.scoreboard_client import ScoreboardClient
from tests.store.emulators import dynamodb_local
from tests.test_cli import PROGRAM, TIMEOUT_SECONDS, read_until

COMPOSE = Path(__file__).parent.parent.parent / "deploy" / "compose.yaml"


def service_environment(
    service: dict[str, Any], addresses: dict[str, str], directory: Path
) -> dict[str, str]:
    """Return the environment of a compose service, with the servers of this test."""
    configured = {
        name: addresses.get(name, value) for name, value in service["environment"].items()
    }
    assert set(addresses) & set(service["environment"]), (
        "the compose file does not set these variables"
    )
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("TALLY_", "AWS_"))
    }
    return (
        inherited
        | configured
        | {"TALLY_DATA_DIR": str(directory / "data"), "TALLY_PORT": "0", "TALLY_LOG_FORMAT": "json"}
    )


@contextmanager
def run_server(command: list[str], variables: dict[str, str]) -> Iterator[str]:
    """Run the server; yield its URL and stop it cleanly at the end."""
    program = subprocess.Popen(
        [*PROGRAM, *command], env=variables, stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stderr is not None
        lines = read_until(program.stderr, '"listening"')
        yield json.loads(lines.splitlines()[-1])["data"]["url"]
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=TIMEOUT_SECONDS)
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()


@pytest.fixture
async def addresses(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    clock = SystemClock()
    with dynamodb_local() as dynamodb:
        async with (
            open_postgres(tmp_path, clock, durable=False) as postgres,
            open_valkey(tmp_path, clock) as redis,
        ):
            yield {
                "TALLY_DYNAMODB_ENDPOINT": dynamodb,
                "DATABASE_URL": postgres,
                "REDIS_URL": redis,
            }


async def wait_until_ready(client: Client, url: str) -> None:
    """Wait until all probes succeed; on a busy machine the first ones may time out."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            response = await client.get(f"{url}/health/ready").build().send()
            checks = (await response.json())["checks"]
            statuses = {name: check["status"] for name, check in checks.items()}
            if all(statuses[name] == "ok" for name in ("store", "postgresql", "redis")):
                return
            await asyncio.sleep(0.1)


async def get_json(client: Client, url: str, **headers: str) -> Any:
    return await (
        await client.get(url).headers(headers).error_for_status(True).build().send()
    ).json()


def scoreboard(client: Client, url: str, data: Path) -> ScoreboardClient:
    key = read_or_create(data / "scoreboard-internal.key")
    return ScoreboardClient(client, f"{url}/scoreboard/api/v1", key, SystemClock())


async def use_backends(client: Client, url: str, data: Path) -> None:
    """Create an API key (DynamoDB) and a score (PostgreSQL and Redis)."""
    await create_api_key(client, f"{url}/devices", read_or_create(data / "operator.token"))
    server = scoreboard(client, url, data)
    player = await server.register("ana", "a strong passphrase", "198.18.0.2")
    token = await server.complete_action("action-1", player.user.user_id, 50, {})
    await server.update_score(player.tokens.access_token, token, 40)


@pytest.mark.judge
async def test_all_backends_work_on_external_servers_and_data_survives_a_restart(
    addresses: dict[str, str], tmp_path: Path
) -> None:
    """The command of the compose file creates the tables."""
    services, data = (
        yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"],
        tmp_path / "data",
    )
    create_tables = partial(
        subprocess.run,
        [*PROGRAM, *services["tables"]["command"]],
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    await asyncio.to_thread(
        create_tables, env=service_environment(services["tables"], addresses, tmp_path)
    )
    command, variables = (
        services["tally"]["command"],
        service_environment(services["tally"], addresses, tmp_path),
    )
    async with ClientBuilder().build() as client:
        with run_server(command, variables) as url:
            await wait_until_ready(client, url)
            await use_backends(client, url, data)
        with run_server(command, variables) as url:
            operator = f"Bearer {read_or_create(data / 'operator.token').reveal()}"
            keys = await get_json(client, f"{url}/devices/api-keys", authorization=operator)
            assert [key["description"] for key in keys["items"]] == ["virtual boards"]
            board = await scoreboard(client, url, data).leaderboard()
            assert [(place.username, place.score) for place in board.items] == [("ana", 40)]
            openapi = await get_json(client, f"{url}/openapi.json")
            assert {path.split("/")[1] for path in openapi["paths"]} >= {
                "collect",
                "cricket",
                "devices",
                "scoreboard",
            }
    assert {path.suffix for path in data.iterdir()} <= {".key", ".lock", ".token"}
