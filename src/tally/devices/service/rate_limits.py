"""A rate limit that all instances share, at the cost of few writes.

An instance leases tokens of a bucket in the store, and spends them in its memory. A client with few
requests costs no write: an instance grants a tenth of the burst by itself, and takes it from the
bucket with the next lease. An instance does not know what others have taken since its last lease,
so several instances may exceed the limit by up to a tenth each. One instance is exact.
"""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Final

from tally.devices.repository.rate_limits import BucketChanged, TokenBucketRepository
from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.rate_limits import RateLimitExceeded, RateLimitStatus

FREE_SHARE: Final = 10  # one token of so many is granted without a lease
LEASES_PER_BURST: Final = 20
MAX_ATTEMPTS: Final = 20
# A bucket that is full this much later than possible was written by a clock that was ahead.
MAX_SKEW_US: Final = 5_000_000
ITEM_SECONDS: Final = 3_600


@dataclass(slots=True)
class _TokenBucket:
    """What this instance knows of a bucket. Times are epoch microseconds."""

    leased: int = 0
    leased_until: int = 0
    free_used: int = 0
    free_until: int = 0
    denied_until: int = 0
    full_at: int | None = None
    is_loaded: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedRateLimiter:
    """Allows `per_second` requests on average and bursts of `burst`, on all instances together."""

    def __init__(
        self,
        buckets: TokenBucketRepository,
        clock: Clock,
        *,
        per_second: float,
        burst: int,
        rule: str,
        max_keys: int = 100_000,
    ) -> None:
        self._repository = buckets
        self._clock = clock
        self._burst = burst
        self._step_us = 1e6 / per_second
        self._window_us = round(burst * self._step_us)
        self._free = burst // FREE_SHARE
        self._lease_size = max(1, burst // LEASES_PER_BURST)
        self._rule = rule
        self._max_keys = max_keys
        self._buckets: dict[str, _TokenBucket] = {}

    async def take(self, key: str) -> RateLimitStatus:
        """Take a token and return what remains, or raise RateLimitExceeded."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._add(key)
        status = self._take_local(bucket)
        if status is not None:
            return status
        async with bucket.lock:
            return self._take_local(bucket) or await self._lease(key, bucket)

    def _now_us(self) -> int:
        return self._clock.time_ns() // 1000

    def _take_local(self, bucket: _TokenBucket) -> RateLimitStatus | None:
        """Take a leased or a free token; None if this instance has none."""
        now = self._now_us()
        if now < bucket.denied_until <= now + self._window_us:
            raise self._exceeded(bucket, now)
        if bucket.leased and now < bucket.leased_until:
            bucket.leased -= 1
            return self._status(bucket, now)
        if now >= max(bucket.free_until, bucket.full_at or 0):
            bucket.free_used, bucket.free_until = 0, now + self._window_us
        used = (self._start(bucket, now) - now) / self._step_us + bucket.free_used
        if bucket.free_used < self._free and used + 1 <= self._burst + 1e-6:
            bucket.free_used += 1
            return self._status(bucket, now)
        return None

    async def _lease(self, key: str, bucket: _TokenBucket) -> RateLimitStatus:
        """Take a token, the free ones that were spent, and some more from the shared bucket."""
        if not bucket.is_loaded:
            bucket.full_at, bucket.is_loaded = await self._repository.full_at(key), True
        for _ in range(MAX_ATTEMPTS):
            now = self._now_us()
            start = self._start(bucket, now)
            available = self._burst - math.ceil((start - now) / self._step_us - 1e-6)
            spent = bucket.free_used
            count = min(spent + self._lease_size, available)
            if count <= spent:
                allowed_at = start - (self._burst - spent - 1) * self._step_us
                bucket.denied_until = max(now + 1, math.floor(allowed_at))
                raise self._exceeded(bucket, now)
            full_at = start + round(count * self._step_us)
            expires_at = full_at // 1_000_000 + ITEM_SECONDS
            try:
                await self._repository.move(key, bucket.full_at, full_at, expires_at)
            except BucketChanged as changed:
                known = changed.full_at_us
                bucket.full_at = await self._repository.full_at(key) if known is None else known
                continue
            bucket.full_at = full_at
            bucket.leased, bucket.leased_until = count - spent - 1, now + self._window_us
            bucket.free_used = max(0, bucket.free_used - spent)
            return self._status(bucket, now)
        raise Unavailable("Too many instances share this rate limit", retry_after=1)

    def _start(self, bucket: _TokenBucket, now: int) -> int:
        """Return the time from which tokens are taken: when the bucket is full, or now."""
        full_at = bucket.full_at or 0
        return now if full_at > now + self._window_us + MAX_SKEW_US else max(now, full_at)

    def _status(self, bucket: _TokenBucket, now: int, wait: float = 0.0) -> RateLimitStatus:
        """Describe what this instance knows; unspent tokens count as available."""
        used = (self._start(bucket, now) - now) / self._step_us + bucket.free_used
        if now < bucket.leased_until:
            used -= bucket.leased
        used = min(max(used, 0.0), self._burst)
        remaining = 0 if wait else int(self._burst - used + 1e-6)
        reset_after = used * self._step_us / 1e6
        return RateLimitStatus(not wait, self._burst, remaining, reset_after, wait)

    def _exceeded(self, bucket: _TokenBucket, now: int) -> RateLimitExceeded:
        wait = (bucket.denied_until - now) / 1e6
        return RateLimitExceeded(self._status(bucket, now, wait), self._rule)

    def _add(self, key: str) -> _TokenBucket:
        if len(self._buckets) >= self._max_keys:
            self._evict()
        bucket = self._buckets[key] = _TokenBucket()
        return bucket

    def _evict(self) -> None:
        """Forget the buckets that are not in use, or the oldest one."""
        now = self._now_us()
        idle = [
            key
            for key, bucket in self._buckets.items()
            if now >= max(bucket.free_until, bucket.leased_until) and not bucket.lock.locked()
        ]
        for key in idle or [next(iter(self._buckets))]:
            del self._buckets[key]
