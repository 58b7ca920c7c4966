"""Broadcast channels: made, read, listed and deleted on the management port."""

import base64
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from tally.sim.apns.exchange import Answer, Exchange
from tally.sim.apns.keys import Providers
from tally.sim.apns.requests import Trouble, is_channel_id

MAX_CHANNELS: Final = 10_000


class Wanted(msgspec.Struct, frozen=True, rename="kebab"):
    """The body that makes a channel. The policy is 0 for nothing kept, 1 for the latest message."""

    message_storage_policy: int
    push_type: str


class Listed(msgspec.Struct, frozen=True):
    channels: list[str]


def refusal(
    trouble: Trouble, headers: tuple[tuple[bytes, bytes], ...], timestamp_ms: int | None = None
) -> Answer:
    """An error as Apple puts it."""
    told: dict[str, object] = {"reason": trouble[1]}
    if timestamp_ms is not None:
        told["timestamp"] = timestamp_ms
    return Answer(
        trouble[0], (*headers, (b"content-type", b"application/json")), msgspec.json.encode(told)
    )


class Channels:
    """The channels of one app."""

    def __init__(self, bundle_id: str, providers: Providers, chance: random.Random) -> None:
        self.known: dict[str, Wanted] = {}
        self.most = MAX_CHANNELS
        self._bundle_id = bundle_id
        self._providers = providers
        self._chance = chance

    def create(self, wanted: Wanted) -> str:
        channel = base64.b64encode(self._chance.randbytes(16)).decode()
        self.known[channel] = wanted
        return channel

    def handle(self, exchange: Exchange) -> Answer:
        """Answer a request to the management port."""
        asked = exchange.headers.get(b"apns-request-id")
        request_id = asked or str(UUID(int=self._chance.getrandbits(128), version=4)).encode()
        headers = ((b"apns-request-id", request_id),)
        trouble = self._providers.trouble(exchange.headers.get(b"authorization"))
        if trouble is not None:
            return refusal(trouble, headers)
        method, path = (
            exchange.headers.get(b":method", b"").decode("latin-1"),
            exchange.headers.get(b":path", b"").decode("latin-1"),
        )
        if path == f"/1/apps/{self._bundle_id}/all-channels" and method == "GET":
            return Answer(200, headers, msgspec.json.encode(Listed(list(self.known))))
        if path != f"/1/apps/{self._bundle_id}/channels":
            return refusal((404, "BadPath"), headers)
        one = self._by_method().get(method)
        return (
            one(exchange, headers)
            if one is not None
            else refusal((405, "MethodNotAllowed"), headers)
        )

    def _by_method(
        self,
    ) -> dict[str, Callable[[Exchange, tuple[tuple[bytes, bytes], ...]], Answer]]:
        return {"POST": self._make, "GET": self._read, "DELETE": self._delete}

    def _make(self, exchange: Exchange, headers: tuple[tuple[bytes, bytes], ...]) -> Answer:
        try:
            wanted = msgspec.json.decode(exchange.body, type=Wanted)
        except msgspec.DecodeError:
            return refusal((400, "InvalidPushType"), headers)
        if wanted.push_type != "LiveActivity":
            return refusal((400, "InvalidPushType"), headers)
        if len(self.known) >= self.most or wanted.message_storage_policy not in {0, 1}:
            return refusal((400, "CannotCreateChannelConfig"), headers)
        return Answer(201, (*headers, (b"apns-channel-id", self.create(wanted).encode())))

    def _read(self, exchange: Exchange, headers: tuple[tuple[bytes, bytes], ...]) -> Answer:
        channel, trouble = self._named(exchange)
        return (
            refusal(trouble, headers)
            if trouble
            else Answer(200, headers, msgspec.json.encode(self.known[channel]))
        )

    def _delete(self, exchange: Exchange, headers: tuple[tuple[bytes, bytes], ...]) -> Answer:
        channel, trouble = self._named(exchange)
        if trouble:
            return refusal(trouble, headers)
        del self.known[channel]
        return Answer(204, headers)

    def _named(self, exchange: Exchange) -> tuple[str, Trouble | None]:
        channel = exchange.headers.get(b"apns-channel-id", b"").decode("latin-1")
        if not channel:
            return "", (400, "MissingChannelId")
        if not is_channel_id(channel):
            return "", (400, "BadChannelId")
        return channel, None if channel in self.known else (400, "ChannelNotRegistered")
