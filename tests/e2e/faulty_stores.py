"""Stores with faults: an engine with partial batches, and a DynamoDB proxy that throttles."""

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

THROTTLED_BODY = (
    b'{"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",'
    b' "message": "slow down"}'
)


class PartialBatchEngine:
    """Wraps an engine; batches often complete only in part."""

    def __init__(self, engine: Engine, random_source: random.Random) -> None:
        self._engine = engine
        self._random = random_source
        self.unprocessed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult:
        """Write some of the puts, or none, and return the rest as unprocessed."""
        count = self._random.choice(
            (0, len(operation.puts) // 2, len(operation.puts), len(operation.puts))
        )
        if count == len(operation.puts):
            return await self._engine.batch_write(operation)
        self.unprocessed += len(operation.puts) - count
        rest = BatchWrite(operation.table, operation.puts[count:], operation.deletes)
        if not count:
            return BatchWriteResult(rest, (await self._read_one(operation)).capacity)
        written = await self._engine.batch_write(
            BatchWrite(operation.table, operation.puts[:count], ())
        )
        return BatchWriteResult(rest, written.capacity)

    async def batch_get(self, operation: BatchGet) -> BatchGetResult:
        """Read some of the keys, or none, and return the rest as unprocessed."""
        count = self._random.choice(
            (0, len(operation.keys) // 2, len(operation.keys), len(operation.keys))
        )
        found = await self._engine.batch_get(operation)
        if count == len(operation.keys):
            return found
        names = operation.table.key_names
        retained = {tuple(key[name] for name in names) for key in operation.keys[:count]}
        items = [item for item in found.items if tuple(item[name] for name in names) in retained]
        self.unprocessed += len(operation.keys) - count
        return BatchGetResult(items, operation.keys[count:], found.capacity)

    async def _read_one(self, operation: BatchWrite) -> BatchGetResult:
        key = operation.table.primary_key(operation.puts[0])
        return await self._engine.batch_get(BatchGet(operation.table, (key,)))


@dataclass
class ThrottlingProxy:
    """The URL of the proxy, and how many requests it forwarded and throttled."""

    url: str = ""
    forwarded: int = 0
    throttled: int = 0


@asynccontextmanager
async def open_throttling_proxy(
    upstream: str, chance: random.Random, share: float
) -> AsyncIterator[ThrottlingProxy]:
    """Open a proxy that throttles the given share of the requests to `upstream`."""
    proxy = ThrottlingProxy()
    async with ClientBuilder().build() as client:

        async def forward(request: Request) -> Response:
            if chance.random() < share:
                proxy.throttled += 1
                return Response(THROTTLED_BODY, 400, media_type="application/x-amz-json-1.0")
            proxy.forwarded += 1
            headers = {
                name: value
                for name, value in request.headers.items()
                if name not in {"host", "content-length", "connection"}
            }
            forwarded_request = (
                client.post(upstream).headers(headers).body_bytes(await request.body())
            )
            response = await forwarded_request.build().send()
            retained = {
                name: value
                for name, value in response.headers.items()
                if name.lower() in {"content-type", "x-amz-crc32"}
            }
            return Response(bytes(await response.bytes()), response.status, retained)

        async with serving(Starlette(routes=[Route("/", forward, methods=["POST"])])) as url:
            proxy.url = url
            yield proxy
