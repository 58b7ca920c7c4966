"""Sends one message to the URL of a webhook, over a connection to a checked address.

    outcome = await sender.send(url, headers, body)

Any response with a 2xx status is a success. Redirects are not followed and bodies are not read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Final, Self, TypeAlias

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from tally.errors import Invalid
from tally.instance.webhooks.targets import (
    TargetRefused,
    WebhookTarget,
    parse_target,
    resolve_target,
)

TIMEOUT_SECONDS: Final = 15
MAX_CLIENTS: Final = 50
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

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        """Send a message; every failure is an outcome. No error text contains the URL."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                target = parse_target(url, allows_private=self._allows_private)
                client = await self._client(target, await self._resolve(target))
                request = client.post(url).headers(headers).body_bytes(body)
                async with request.build_streamed() as response:
                    return _outcome(response.status, response.headers.get("retry-after"))
        except Invalid as error:
            return Outcome(error=error.message)
        except TargetRefused as error:
            return Outcome(error=f"Address refused: {error}")
        except TimeoutError:
            return Outcome(error=f"No response within {TIMEOUT_SECONDS} s")
        except OSError as error:
            return Outcome(error=f"Host name not resolved: {error}")
        except PyreqwestError as error:
            return Outcome(error=f"Connection failed: {type(error).__name__}")

    async def _resolve_public(self, target: WebhookTarget) -> str:
        return await resolve_target(target, allows_private=self._allows_private)

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


def _outcome(status: int, retry_after: str | None) -> Outcome:
    if 200 <= status < 300:
        return Outcome(status)
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else 0.0
    return Outcome(status, f"HTTP status {status}", seconds)
