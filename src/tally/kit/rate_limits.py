"""What a rate limit decides about a request, and its `RateLimit-*` headers.

A limiter returns a `RateLimitStatus` or raises `RateLimitExceeded`. A handler records the status
with `record_rate_limit`, and `ErrorMiddleware` adds the headers to the response, also to an error.
"""

import math
from typing import Final

import msgspec
from starlette.types import Scope

from tally.errors import RateLimited

SCOPE_KEY: Final = "tally.rate_limit"


class RateLimitStatus(msgspec.Struct, frozen=True, gc=False):
    """A rate limit's decision on one request.

    `reset_after` is the number of seconds until the quota is complete again, `retry_after` until
    one more request is allowed.
    """

    is_allowed: bool
    limit: int
    remaining: int
    reset_after: float
    retry_after: float = 0.0

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"ratelimit-limit", b"%d" % self.limit),
            (b"ratelimit-remaining", b"%d" % self.remaining),
            (b"ratelimit-reset", b"%d" % math.ceil(self.reset_after)),
        ]


class RateLimitExceeded(RateLimited):
    """The client sent too many requests; `rule` says how many are allowed."""

    def __init__(self, status: RateLimitStatus, rule: str) -> None:
        super().__init__(
            f"Rate limit exceeded: {rule}", retry_after=status.retry_after, limit=status.limit
        )
        self.status = status


def record_rate_limit(scope: Scope, status: RateLimitStatus) -> None:
    """Report `status` in the headers of the response."""
    scope[SCOPE_KEY] = status


def adjust_rate_limit(scope: Scope, requests: int) -> None:
    """Report that so many more requests remain than was recorded."""
    status: RateLimitStatus = scope[SCOPE_KEY]
    scope[SCOPE_KEY] = msgspec.structs.replace(status, remaining=status.remaining + requests)
