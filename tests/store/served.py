"""Serves an embedded store over DynamoDB's protocol, for clients that block."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from tally.kit.clock import Clock
from tally.kit.connection_table import HttpLimits
from tally.settings import Secret
from tally.store.sqlite import open_sqlite
from tally.store.wire.server import serving_store

AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=any/20260101/local/dynamodb/aws4_request,"
    " SignedHeaders=host, Signature=0"
)


@contextlib.contextmanager
def served_store(
    folder: Path,
    *,
    secret: Secret | None = None,
    limits: HttpLimits | None = None,
    clock: Clock | None = None,
) -> Iterator[str]:
    """Run a server in a thread with its own event loop; yields its URL."""
    ready = threading.Event()
    state: dict[str, Any] = {}

    async def serve() -> None:
        stop = asyncio.Event()
        async with (
            open_sqlite(folder) as engine,
            serving_store(engine, secret=secret, limits=limits, clock=clock) as url,
        ):
            state.update(url=url, stop=stop, loop=asyncio.get_running_loop())
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60.0), "the server did not start"
    try:
        yield state["url"]
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(60.0)
        assert not thread.is_alive()


@contextlib.contextmanager
def dynamodb_command(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run `tally dynamodb` on a data directory; yields its URL and the process."""
    command = [sys.executable, "-m", "tally.cli", "dynamodb", "--port", "0", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = (line.partition("DynamoDB endpoint: ")[2] for line in process.stdout)
            yield next(found for found in lines if found).strip(), process
        finally:
            process.terminate()
            process.wait(60.0)


def boto3_resource(url: str, secret: str = "any") -> Any:  # noqa: S107 - any credentials do
    return boto3.resource(
        "dynamodb",
        endpoint_url=url,
        region_name="local",
        aws_access_key_id="tally",
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


def call(url: str, operation: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """Send a request as it is; return the status and the decoded body."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - our own server
        url,
        payload,
        {
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": AUTHORIZATION,
            "X-Amz-Date": "20260101T000000Z",
            **headers,
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=60.0) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
