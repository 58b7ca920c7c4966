"""Stores that do not do all they are asked to at once: batches come back by halves, and requests are told to slow down.

`Reluctant` stands in front of an engine. `throttling` stands in front of a service that speaks
DynamoDB, on a socket of its own, and sends some requests away as the service does when it has had
too many.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pyreqwest.client import ClientBuilder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.kit.server import serving
from tally.store.api import BatchGet, BatchGetResult, BatchWrite, BatchWriteResult, Engine

THROTTLED = b'{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException", "message": "slow down"}'


class Reluctant:
    """Everything goes to the engine behind, but of a batch often only a part."""

    def __init__(self, behind: Engine, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self.left_undone = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        """Writes some of the puts, or none, and says which are left."""
        keep = self._chance.choice(
            (0, len(operation.puts) // 2, len(operation.puts), len(operation.puts))
        )
        if keep == len(operation.puts):
            return await self._behind.batch_write(operation)
        self.left_undone += len(operation.puts) - keep
        rest = BatchWrite(operation.table, operation.puts[keep:], operation.deletes)
        if not keep:
            return BatchWriteResult(rest, (await self._nothing(operation)).capacity)
        done = await self._behind.batch_write(
            BatchWrite(operation.table, operation.puts[:keep], ())
        )
        return BatchWriteResult(rest, done.capacity)

    async def batch_get(self, operation: BatchGet) -> BatchGetResult:
        """Reads some of the keys, or none, and says which are left."""
        keep = self._chance.choice(
            (0, len(operation.keys) // 2, len(operation.keys), len(operation.keys))
        )
        found = await self._behind.batch_get(operation)
        if keep == len(operation.keys):
            return found
        names = operation.table.key_names
        kept = {tuple(key[name] for name in names) for key in operation.keys[:keep]}
        items = [item for item in found.items if tuple(item[name] for name in names) in kept]
        self.left_undone += len(operation.keys) - keep
        return BatchGetResult(items, operation.keys[keep:], found.capacity)

    async def _nothing(self, operation: BatchWrite) -> BatchGetResult:
        key = operation.table.primary_key(operation.puts[0])
        return await self._behind.batch_get(BatchGet(operation.table, (key,)))


@dataclass
class Throttle:
    """How it went."""

    url: str = ""
    passed: int = 0
    refused: int = 0


@asynccontextmanager
async def throttling(behind: str, chance: random.Random, share: float) -> AsyncIterator[Throttle]:
    """A socket in front of the service at `behind`, which refuses about so great a share of the requests."""
    throttle = Throttle()
    async with ClientBuilder().build() as client:

        async def forward(request: Request) -> Response:
            if chance.random() < share:
                throttle.refused += 1
                return Response(THROTTLED, 400, media_type="application/x-amz-json-1.0")
            throttle.passed += 1
            headers = {
                name: value
                for name, value in request.headers.items()
                if name not in {"host", "content-length", "connection"}
            }
            sent = client.post(behind).headers(headers).body_bytes(await request.body())
            answer = await sent.build().send()
            kept = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() in {"content-type", "x-amz-crc32"}
            }
            return Response(bytes(await answer.bytes()), answer.status, kept)

        async with serving(Starlette(routes=[Route("/", forward, methods=["POST"])])) as url:
            throttle.url = url
            yield throttle
