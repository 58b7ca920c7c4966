"""`tally serve` as a real process beside a club, on the club's own data and with the club's Strava and issuer."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.collect.club import ADMIN, SUBSCRIPTION, VERIFY, Club


@asynccontextmanager
async def second_server(club: Club) -> AsyncIterator[str]:
    """Where the second server of the club answers; killed at the end."""
    settings = club.parts.settings
    secrets = (settings.collect_oidc_client_secret, settings.collect_strava_client_secret)
    oidc_secret, strava_secret = (secret.reveal() if secret else "" for secret in secrets)
    given = {
        "TALLY_DATA_DIR": str(settings.data_dir),
        "TALLY_BACKENDS": "collect",
        "TALLY_LOG_FORMAT": "json",
        "TALLY_COLLECT_ADMIN_TOKEN": ADMIN,
        "TALLY_COLLECT_OIDC_ISSUER": settings.collect_oidc_issuer or "",
        "TALLY_COLLECT_OIDC_CLIENT_ID": settings.collect_oidc_client_id,
        "TALLY_COLLECT_OIDC_CLIENT_SECRET": oidc_secret,
        "TALLY_COLLECT_STRAVA_URL": settings.collect_strava_url,
        "TALLY_COLLECT_STRAVA_CLIENT_ID": settings.collect_strava_client_id,
        "TALLY_COLLECT_STRAVA_CLIENT_SECRET": strava_secret,
        "TALLY_COLLECT_STRAVA_VERIFY_TOKEN": VERIFY,
        "TALLY_COLLECT_STRAVA_SUBSCRIPTION_ID": str(SUBSCRIPTION),
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
    } | given
    words = (sys.executable, "-m", "tally.cli", "serve", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *words, env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = bytearray()
    reading = None
    try:
        url = await _address(process.stderr, said)
        reading = asyncio.create_task(process.stderr.read())
        yield f"{url}/collect"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if reading is not None:
            await reading


async def _address(output: asyncio.StreamReader, said: bytearray) -> str:
    async for line in output:
        said += line
        told = msgspec.json.decode(line) if line.startswith(b"{") else {}
        if told.get("action") == "listening":
            return str(told["data"]["url"])
    raise AssertionError(f"it did not start: {said.decode()}")
