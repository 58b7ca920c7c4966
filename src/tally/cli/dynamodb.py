"""`tally dynamodb`: serves an embedded store over DynamoDB's protocol."""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from tally.cli.startup import explained_errors, load_settings
from tally.instance.served_tables import DYNAMODB_KEY_FILE
from tally.kit import logs
from tally.kit.keyfile import read_or_create
from tally.kit.server import listen, run_until_stopped, socket_url
from tally.settings import SettingsError
from tally.store.sqlite import open_sqlite
from tally.store.wire.server import is_loopback, serving_store
from tally.store.wire.signing import ACCESS_KEY

_MEMORY_DIRECTORY: Final = Path("/dev/shm")  # noqa: S108 - the directory in it is private

DynamoDBHost = Annotated[str, typer.Option("--host", help="Address to listen on.")]
DynamoDBPort = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")]
DataDirectory = Annotated[
    Path | None, typer.Option("--data", help="Directory of the database; default TALLY_DATA_DIR.")
]
InMemory = Annotated[
    bool, typer.Option("--in-memory", help="Keep the database in memory; it ends with the server.")
]


def serve_dynamodb(
    host: DynamoDBHost = "127.0.0.1",
    port: DynamoDBPort = 8000,
    data: DataDirectory = None,
    in_memory: InMemory = False,
) -> None:
    settings = load_settings()
    with explained_errors(), ExitStack() as stack:
        if in_memory and data is not None:
            raise SettingsError(["--in-memory and --data exclude each other"])
        directory = data or settings.data_dir
        if in_memory:
            parent = _MEMORY_DIRECTORY if _MEMORY_DIRECTORY.is_dir() else None
            temporary = tempfile.TemporaryDirectory(prefix="tally-dynamodb-", dir=parent)
            directory = Path(stack.enter_context(temporary))
        listening = listen(host, port)
        secret = None if is_loopback(listening) else read_or_create(directory / DYNAMODB_KEY_FILE)

        async def serve_until(stop: asyncio.Event) -> None:
            async with (
                open_sqlite(directory) as engine,
                serving_store(
                    engine, listening, secret=secret, allowed_hosts=settings.allowed_hosts
                ),
            ):
                url = socket_url(listening)
                logs.logger().info("Listening", action="listening", url=url)
                typer.echo(f"DynamoDB endpoint: {url}")
                if secret is not None:
                    key_file = directory / DYNAMODB_KEY_FILE
                    typer.echo(f"Sign requests with access key {ACCESS_KEY}; secret in {key_file}")
                await stop.wait()

        run_until_stopped(serve_until)
