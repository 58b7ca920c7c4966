"""The HTTP client of the SportMonks API, with a time-out, retries, a circuit breaker and a budget.

The URL of every request contains the API token. Never log a URL or put one into an error.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.cricket.sportmonks.budget import RequestBudget
from tally.cricket.sportmonks.payloads import SportMonksItem, SportMonksList
from tally.errors import NotFound, RateLimited, Unavailable
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Secret

T = TypeVar("T")

SERVICE: Final = "SportMonks"
MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
MAX_PAGES: Final = 2_000
# The pause after a 429 response without Retry-After.
DEFAULT_PAUSE_SECONDS: Final = 60.0
MAX_PAUSE_SECONDS: Final = 3600.0
REJECTED: Final = "sportmonks_refused"


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and error.code != REJECTED


class SportMonksClient:
    """Sends GET requests with one API token."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        metrics: Metrics,
        budget: RequestBudget,
        *,
        url: str,
        token: Secret | None,
        timeout: float = 5.0,
        attempts: int = 3,
    ) -> None:
        self._client = client
        self._clock = clock
        self._url = url
        self._token = token
        self._timeout = timedelta(seconds=timeout)
        self._budget = budget
        self._retry = RetryPolicy(
            attempts=attempts, base=0.2, cap=2, deadline=4 * timeout, is_retryable=_is_transient
        )
        # A rejected token is a configuration error, not an outage.
        self.breaker = Breaker("sportmonks", clock, metrics, is_failure=_is_transient)

    def interval(self, resource: str) -> float:
        """Return the seconds between requests that the remaining quota of a resource allows."""
        return self._budget.interval(resource)

    async def get_list(self, path: str, parameters: Mapping[str, str]) -> SportMonksList:
        try:
            return await self._get(path, parameters, SportMonksList)
        except NotFound as error:
            raise Unavailable("SportMonks returned status 404 for a list") from error

    async def get_item(self, path: str, parameters: Mapping[str, str]) -> SportMonksItem:
        """Return one item, or raise NotFound."""
        return await self._get(path, parameters, SportMonksItem)

    async def get_pages(
        self, path: str, parameters: Mapping[str, str]
    ) -> AsyncIterator[list[msgspec.Raw]]:
        """Yield the pages of a list."""
        page, last_page = 1, 1
        while page <= min(last_page, MAX_PAGES):
            response = await self.get_list(path, {**parameters, "page": str(page)})
            yield response.data
            last_page = response.meta.last_page if response.meta is not None else 1
            page += 1

    async def _get(self, path: str, parameters: Mapping[str, str], kind: type[T]) -> T:
        async def attempt() -> T:
            return await self.breaker.call(lambda: self._send(path, parameters, kind))

        return await self._retry.call(attempt, self._clock)

    async def _send(self, path: str, parameters: Mapping[str, str], kind: type[T]) -> T:
        if self._token is None:
            raise Unavailable("SportMonks is not configured", code="sportmonks_not_set_up")
        resource = path.split("/")[1]
        await self._budget.consume(resource)
        query = {**parameters, "api_token": self._token.reveal()}
        request = self._client.get(f"{self._url}{path}").query(query).timeout(self._timeout)
        response = await fetch(request, SERVICE, MAX_RESPONSE_BYTES)
        await self._check_status(response, resource)
        return response.decode(kind, SERVICE)

    async def _check_status(self, response: HttpResponse, resource: str) -> None:
        if response.status == 429:
            wait = _pause_seconds(response.headers.get("retry-after", ""))
            await self._budget.pause(resource, wait)
            raise RateLimited("SportMonks' request quota is exhausted", retry_after=wait)
        remaining = response.headers.get("x-ratelimit-remaining", "")
        if _is_number(remaining):
            self._budget.report(resource, int(remaining))
        if response.status == 404:
            raise NotFound("SportMonks returned status 404", code="sportmonks_not_found")
        if response.status in {400, 401, 403}:
            message = f"SportMonks rejected the request with status {response.status}"
            raise Unavailable(message, code=REJECTED)
        if response.status != 200:
            raise Unavailable(f"SportMonks returned status {response.status}")


def _pause_seconds(retry_after: str) -> float:
    if not _is_number(retry_after):
        return DEFAULT_PAUSE_SECONDS
    return min(max(float(retry_after), 1.0), MAX_PAUSE_SECONDS)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
