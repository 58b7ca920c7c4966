"""`tally serve` in a process that shares the data and the simulators of a test server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.collect.server_harness import (
    ADMIN,
    VERIFY,
    WEBHOOK_SECRET,
    CollectServer,
)


def server_environment(server: CollectServer) -> dict[str, str]:
    """Return the environment of a process that shares the data of a test server."""
    settings = server.application.settings
    secrets = (settings.collect_oidc_client_secret, settings.collect_strava_client_secret)
    oidc_secret, strava_secret = (secret.reveal() if secret else "" for secret in secrets)
    variables = {
        "TALLY_DATA_DIR": str(settings.data_dir),
        "TALLY_BACKENDS": "collect",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SHUTDOWN_DELAY": "0",
        "TALLY_OPERATOR_TOKEN": ADMIN,
        "TALLY_COLLECT_OIDC_ISSUER": settings.collect_oidc_issuer or "",
        "TALLY_COLLECT_OIDC_CLIENT_ID": settings.collect_oidc_client_id,
        "TALLY_COLLECT_OIDC_CLIENT_SECRET": oidc_secret,
        "TALLY_COLLECT_STRAVA_API_URL": settings.collect_strava_api_url,
        "TALLY_COLLECT_STRAVA_OAUTH_URL": settings.collect_strava_oauth_url,
        "TALLY_COLLECT_STRAVA_CLIENT_ID": settings.collect_strava_client_id,
        "TALLY_COLLECT_STRAVA_CLIENT_SECRET": strava_secret,
        "TALLY_COLLECT_STRAVA_VERIFY_TOKEN": VERIFY,
        "TALLY_COLLECT_STRAVA_SUBSCRIPTION_ID": str(settings.collect_strava_subscription_id),
        "TALLY_COLLECT_STRAVA_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "TALLY_COLLECT_STRAVA_EVENT_READS": "0",
        "TALLY_COLLECT_STRAVA_ATHLETE_EVENT_READS": "0",
    }
    return {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    } | variables


@asynccontextmanager
async def second_server(server: CollectServer) -> AsyncIterator[str]:
    """Start a second server; yield its URL and kill it on exit."""
    environment = server_environment(server)
    command = (sys.executable, "-m", "tally.cli", "serve", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    output = bytearray()
    drain = None
    try:
        url = await _address(process.stderr, output)
        drain = asyncio.create_task(process.stderr.read())
        yield f"{url}/collect"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if drain is not None:
            await drain


async def _address(stderr: asyncio.StreamReader, output: bytearray) -> str:
    async for line in stderr:
        output += line
        entry = msgspec.json.decode(line) if line.startswith(b"{") else {}
        if entry.get("action") == "listening":
            return str(entry["data"]["url"])
    raise AssertionError(f"the server did not start: {output.decode()}")
