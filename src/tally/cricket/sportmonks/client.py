"""Asks SportMonks: one request, with its token, within a time, tried again if that may help, and not at all while it is failing.

The token is in the address of every request, so no address is ever logged or put into an error.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.cricket.sportmonks.budget import Budget
from tally.cricket.sportmonks.payloads import SportMonksItem, SportMonksList
from tally.errors import NotFound, RateLimited, Unavailable
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Secret

T = TypeVar("T")

WHO: Final = "SportMonks"
MAX_ANSWER: Final = 64 * 1024 * 1024
MAX_PAGES: Final = 2_000
# How long to leave it alone after a refusal that does not say.
REST_SECONDS: Final = 60.0
LONGEST_REST: Final = 3600.0
REFUSED: Final = "sportmonks_refused"


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and error.code != REFUSED


class SportMonksClient:
    """SportMonks' API, for one token."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        metrics: Metrics,
        *,
        url: str,
        token: Secret | None,
        timeout: float = 5.0,
        hourly: int = 2_000,
        attempts: int = 3,
    ) -> None:
        self._client = client
        self._clock = clock
        self._url = url
        self._token = token
        self._timeout = timedelta(seconds=timeout)
        self._budget = Budget(clock, hourly)
        self._retry = RetryPolicy(
            attempts=attempts, base=0.2, cap=2, deadline=4 * timeout, is_retryable=_may_pass
        )
        # A token that is refused is no outage: only what may pass counts.
        self.breaker = Breaker("sportmonks", clock, metrics, is_failure=_may_pass)

    async def many(self, path: str, parameters: Mapping[str, str]) -> SportMonksList:
        return await self._read(path, parameters, SportMonksList)

    async def one(self, path: str, parameters: Mapping[str, str]) -> SportMonksItem:
        """One thing, or NotFound."""
        return await self._read(path, parameters, SportMonksItem)

    async def pages(
        self, path: str, parameters: Mapping[str, str]
    ) -> AsyncIterator[list[msgspec.Raw]]:
        """Page after page of a list."""
        page, last = 1, 1
        while page <= min(last, MAX_PAGES):
            answer = await self.many(path, {**parameters, "page": str(page)})
            yield answer.data
            last = answer.meta.last_page if answer.meta is not None else 1
            page += 1

    async def _read(self, path: str, parameters: Mapping[str, str], kind: type[T]) -> T:
        async def call() -> T:
            return await self.breaker.call(lambda: self._ask(path, parameters, kind))

        return await self._retry.call(call, self._clock)

    async def _ask(self, path: str, parameters: Mapping[str, str], kind: type[T]) -> T:
        if self._token is None:
            raise Unavailable("SportMonks is not set up here", code="sportmonks_not_set_up")
        resource = path.split("/")[1]
        self._budget.take(resource)
        query = {**parameters, "api_token": self._token.reveal()}
        request = self._client.get(f"{self._url}{path}").query(query).timeout(self._timeout)
        answer = await fetch(request, WHO, MAX_ANSWER)
        self._check(answer, resource)
        return answer.decode(kind, WHO)

    def _check(self, answer: HttpResponse, resource: str) -> None:
        if answer.status == 429:
            wait = _seconds(answer.headers.get("retry-after", ""))
            self._budget.rest(resource, wait)
            raise RateLimited("SportMonks' limit is used up", retry_after=wait)
        if answer.status == 404:
            raise NotFound("SportMonks has no such thing", code="sportmonks_not_found")
        if answer.status in {400, 401, 403}:
            raise Unavailable(f"SportMonks refused the request: {answer.status}", code=REFUSED)
        if answer.status != 200:
            raise Unavailable(f"SportMonks answered with {answer.status}")


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        return REST_SECONDS
    return min(max(float(text), 1.0), LONGEST_REST)
