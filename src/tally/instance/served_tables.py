"""Serves Tally's own tables to DynamoDB clients: read-only, and only to the holder of the key.

Backends rely on conditions and on items that change together, which a client of the protocol does
not know, so the endpoint refuses every write. Tables of credentials are hidden. The others contain
personal data: requests must be signed with the installation's key on every address.
"""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tally.kit.clock import Clock
from tally.kit.connection_table import HttpLimits
from tally.kit.keyfile import read_or_create
from tally.kit.server import listen
from tally.settings import Settings
from tally.store.api import Engine
from tally.store.sqlite import SqliteEngine
from tally.store.wire.server import serving_store
from tally.store.wire.signing import ACCESS_KEY

DYNAMODB_KEY_FILE: Final = "dynamodb.key"
# Hashes of tokens, keys, codes and sessions, and the secrets and URLs of webhooks.
CREDENTIAL_TABLES: Final = (
    "CommitCollectSessions",
    "api_keys",
    "device_claims",
    "tally-console-sessions",
    "tally-operators",
    "tally-webhooks",
)
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServedTables:
    """A running endpoint, and the file with the secret that requests are signed with."""

    url: str
    key_file: Path

    @property
    def command(self) -> str:
        """A command that lists the tables; it reads the secret from the file."""
        return (
            f"AWS_ACCESS_KEY_ID={ACCESS_KEY}"
            f' AWS_SECRET_ACCESS_KEY="$(cat {shlex.quote(str(self.key_file))})"'
            f" AWS_DEFAULT_REGION=local aws dynamodb list-tables --endpoint-url {self.url}"
        )


@asynccontextmanager
async def serving_tables(
    engine: Engine, settings: Settings, clock: Clock, *, on_free_port: bool = False
) -> AsyncIterator[ServedTables | None]:
    """Serve the tables of the embedded engine on TALLY_STORE_PORT.

    Without a port, or with another engine, it yields None; `on_free_port` chooses a port of the
    loopback interface instead.
    """
    if not isinstance(engine, SqliteEngine) or not (settings.store_port or on_free_port):
        yield None
        return
    key_file = settings.data_dir / DYNAMODB_KEY_FILE
    secret = read_or_create(key_file)
    listening = listen(settings.host if settings.store_port else _LOOPBACK, settings.store_port)
    async with serving_store(
        engine,
        listening,
        clock=clock,
        secret=secret,
        limits=HttpLimits.of(settings),
        allowed_hosts=settings.allowed_hosts,
        is_read_only=True,
        hidden_tables=CREDENTIAL_TABLES,
    ) as url:
        yield ServedTables(url, key_file)
