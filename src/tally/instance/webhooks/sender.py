"""Sends one message to the URL of a webhook, over a connection to a checked address.

    outcome = await sender.send(url, headers, body)

Any response with a 2xx status is a success, however its body continues. Redirects are not followed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeAlias

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import BaseResponse, Response

from tally.errors import Invalid
from tally.instance.webhooks.targets import (
    TargetRefused,
    WebhookTarget,
    parse_target,
    resolve_target,
)
from tally.kit.tasks import cancel_all

TIMEOUT_SECONDS: Final = 15
BODY_SECONDS: Final = 0.5
MAX_BODY_BYTES: Final = 65_536
MAX_CLIENTS: Final = 50
# One thread for each host whose name server is slow; see MAX_WEBHOOKS.
MAX_LOOKUPS: Final = 20
GONE: Final = 410

# Returns an address to connect to, or raises TargetRefused or OSError.
Resolve: TypeAlias = Callable[[WebhookTarget], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt; without an error, the receiver has accepted the message."""

    status: int | None = None
    error: str | None = None
    retry_after: float = 0.0

    @property
    def is_gone(self) -> bool:
        """Whether the receiver wants no more messages."""
        return self.status == GONE


class MessageSender:
    """Sends messages; keeps one client per host and address, so that connections are reused."""

    def __init__(self, *, allows_private: bool, resolve: Resolve | None = None) -> None:
        self._allows_private = allows_private
        self._resolve = resolve or self._resolve_public
        self._clients: dict[tuple[WebhookTarget, str], Client] = {}
        self._building = asyncio.Lock()
        # A look-up cannot be cancelled. With threads of their own, those that hang delay nothing
        # else, and the attempts of a host share one.
        self._threads = ThreadPoolExecutor(MAX_LOOKUPS, "webhook-look-up")
        self._lookups: dict[WebhookTarget, asyncio.Task[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
        await cancel_all(self._lookups.values())
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Send a message; every failure is an outcome. No error text contains the URL."""
        outcome: Outcome | None = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                target = parse_target(url, allows_private=self._allows_private)
                client = await self._client(target, await self._resolve(target))
                request = client.post(url).headers(headers).body_bytes(body)
                # By default, the client waits for the first 64 KB of the body.
                async with request.streamed_read_buffer_limit(0).build_streamed() as response:
                    outcome = _outcome(response)
                    await _finish_body(response)
                    return outcome
        except Invalid as error:
            return Outcome(error=error.message)
        except TargetRefused as error:
            return Outcome(error=f"Address refused: {error}")
        except TimeoutError:
            return outcome or Outcome(error=f"No response within {TIMEOUT_SECONDS} s")
        except OSError as error:
            return Outcome(error=f"Host name not resolved: {error}")
        except PyreqwestError as error:
            return Outcome(error=f"Connection failed: {type(error).__name__}")
        except ValueError:
            # The HTTP client accepts fewer host names than `parse_target`.
            return Outcome(error="The host name is not valid")

    async def _resolve_public(self, target: WebhookTarget) -> str:
        lookup = self._lookups.get(target)
        if lookup is None:
            lookup = self._lookups[target] = asyncio.create_task(self._look_up(target))
        return await asyncio.shield(lookup)

    async def _look_up(self, target: WebhookTarget) -> str:
        try:
            return await resolve_target(
                target, allows_private=self._allows_private, threads=self._threads
            )
        finally:
            del self._lookups[target]

    async def _client(self, target: WebhookTarget, address: str) -> Client:
        """Return a client that connects to this address whatever the host name resolves to."""
        key = target, address
        async with self._building:
            if key not in self._clients:
                while len(self._clients) >= MAX_CLIENTS:
                    self._clients.pop(next(iter(self._clients)))
                # Loading the root certificates takes 50 ms.
                self._clients[key] = await asyncio.to_thread(_build_client, target, address)
            return self._clients[key]


def _build_client(target: WebhookTarget, address: str) -> Client:
    return (
        ClientBuilder()
        .resolve(target.host, address, target.port)
        .no_proxy()
        .follow_redirects(False)
        .timeout(timedelta(seconds=TIMEOUT_SECONDS))
        .user_agent("tally")
        .build()
    )


async def _finish_body(response: Response) -> None:
    """Read a short body, so that the connection is reused; another one closes it."""
    with suppress(TimeoutError, PyreqwestError):
        async with asyncio.timeout(BODY_SECONDS):
            await response.body_reader.read(MAX_BODY_BYTES)


def _outcome(response: BaseResponse) -> Outcome:
    status = response.status
    if 200 <= status < 300:
        return Outcome(status)
    return Outcome(status, f"HTTP status {status}", _retry_after(response))


def _retry_after(response: BaseResponse) -> float:
    """Return the seconds in Retry-After; 0 without them, with a date, or with anything else."""
    try:
        text = response.headers.get("retry-after") or ""
    except ValueError:  # it is not ASCII
        return 0.0
    return float(text) if text.isdigit() else 0.0
