"""Shares the pages of DynamoDB's streams between instances, through Redis.

The lock of a shard is a key that expires a few seconds after its holder stops polling. The pages
of a shard are a Redis stream of the last eight, which expires after a minute. Redis holds copies
only: while it does not respond, every instance polls the service itself.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tally.kit import logs
from tally.kit.ids import new_uuid
from tally.store.dynamodb.shared_pages import ExchangeUnavailable, SharedPage

T = TypeVar("T")
LOCK_MS: Final = 4_000
PAGES_SECONDS: Final = 60
MAX_PAGES: Final = 8
TIMEOUT_SECONDS: Final = 1.0

_LEAD: Final = """
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
"""
_PUBLISH: Final = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('xadd', KEYS[2], 'MAXLEN', ARGV[3], '*', 'page', ARGV[2])
redis.call('expire', KEYS[2], ARGV[4])
return 1
"""
_log = logs.logger()
_decoder = msgspec.msgpack.Decoder(SharedPage)


class RedisPageExchange:
    """The exchange of one instance."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._owner = new_uuid()
        self._last: dict[str, bytes] = {}
        self._is_available = True

    async def lead(self, shard: str) -> bool:
        lock, _ = _keys(shard)
        return bool(
            await self._try(lambda: self._client.eval(_LEAD, 1, lock, self._owner, LOCK_MS))
        )

    async def publish(self, shard: str, page: SharedPage) -> None:
        content = msgspec.msgpack.encode(page)
        arguments = (self._owner, content, MAX_PAGES, PAGES_SECONDS)
        await self._try(lambda: self._client.eval(_PUBLISH, 2, *_keys(shard), *arguments))

    async def pages(self, shard: str) -> list[SharedPage]:
        _, pages = _keys(shard)
        last = self._last.get(shard)
        start = b"-" if last is None else b"(" + last
        found = await self._try(lambda: self._client.xrange(pages, min=start, count=MAX_PAGES))
        if found:
            self._last[shard] = found[-1][0]
        return [_decoder.decode(fields[b"page"]) for _, fields in found]

    async def _try(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await call()
        except (RedisError, OSError, TimeoutError) as error:
            if self._is_available:
                _log.warning(
                    "Pages of streams not shared", action="stream_sharing_failed", error=error
                )
            self._is_available = False
            raise ExchangeUnavailable(str(error)) from error
        self._is_available = True
        return result


@asynccontextmanager
async def open_page_exchange(url: str) -> AsyncIterator[RedisPageExchange]:
    """Open the exchange of an instance; it connects on first use."""
    client: Any = Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        yield RedisPageExchange(client)
    finally:
        await client.aclose()


def _keys(shard: str) -> tuple[str, str]:
    """Return the keys of a shard's lock and pages; the braces keep them on one cluster node."""
    name = "tally:shard:{" + sha256(shard.encode()).hexdigest()[:32] + "}"
    return f"{name}:lock", f"{name}:pages"
