"""Broadcast channels: made, read, listed and deleted on the management port."""

import base64
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import msgspec

from tally.sim.apns.provider_tokens import ProviderTokenVerifier
from tally.sim.apns.push_requests import PushError, is_channel_id
from tally.sim.apns.streams import Http2Response, Http2Stream

MAX_CHANNELS: Final = 10_000


class ChannelConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The body that makes a channel. The policy is 0 for nothing kept, 1 for the latest message."""

    message_storage_policy: int
    push_type: str


class ChannelList(msgspec.Struct, frozen=True):
    channels: list[str]


def error_response(
    trouble: PushError, headers: tuple[tuple[bytes, bytes], ...], timestamp_ms: int | None = None
) -> Http2Response:
    """An error as Apple puts it."""
    told: dict[str, object] = {"reason": trouble[1]}
    if timestamp_ms is not None:
        told["timestamp"] = timestamp_ms
    return Http2Response(
        trouble[0], (*headers, (b"content-type", b"application/json")), msgspec.json.encode(told)
    )


class ChannelRegistry:
    """The channels of one app."""

    def __init__(
        self, bundle_id: str, providers: ProviderTokenVerifier, rng: random.Random
    ) -> None:
        self.known: dict[str, ChannelConfig] = {}
        self.most = MAX_CHANNELS
        self._bundle_id = bundle_id
        self._providers = providers
        self._chance = rng

    def create(self, wanted: ChannelConfig) -> str:
        channel = base64.b64encode(self._chance.randbytes(16)).decode()
        self.known[channel] = wanted
        return channel

    def handle(self, exchange: Http2Stream) -> Http2Response:
        """Answer a request to the management port."""
        asked = exchange.headers.get(b"apns-request-id")
        request_id = asked or str(UUID(int=self._chance.getrandbits(128), version=4)).encode()
        headers = ((b"apns-request-id", request_id),)
        trouble = self._providers.trouble(exchange.headers.get(b"authorization"))
        if trouble is not None:
            return error_response(trouble, headers)
        method, path = (
            exchange.headers.get(b":method", b"").decode("latin-1"),
            exchange.headers.get(b":path", b"").decode("latin-1"),
        )
        if path == f"/1/apps/{self._bundle_id}/all-channels" and method == "GET":
            return Http2Response(200, headers, msgspec.json.encode(ChannelList(list(self.known))))
        if path != f"/1/apps/{self._bundle_id}/channels":
            return error_response((404, "BadPath"), headers)
        one = self._by_method().get(method)
        return (
            one(exchange, headers)
            if one is not None
            else error_response((405, "MethodNotAllowed"), headers)
        )

    def _by_method(
        self,
    ) -> dict[str, Callable[[Http2Stream, tuple[tuple[bytes, bytes], ...]], Http2Response]]:
        return {"POST": self._make, "GET": self._read, "DELETE": self._delete}

    def _make(
        self, exchange: Http2Stream, headers: tuple[tuple[bytes, bytes], ...]
    ) -> Http2Response:
        try:
            wanted = msgspec.json.decode(exchange.body, type=ChannelConfig)
        except msgspec.DecodeError:
            return error_response((400, "InvalidPushType"), headers)
        if wanted.push_type != "LiveActivity":
            return error_response((400, "InvalidPushType"), headers)
        if len(self.known) >= self.most or wanted.message_storage_policy not in {0, 1}:
            return error_response((400, "CannotCreateChannelConfig"), headers)
        return Http2Response(201, (*headers, (b"apns-channel-id", self.create(wanted).encode())))

    def _read(
        self, exchange: Http2Stream, headers: tuple[tuple[bytes, bytes], ...]
    ) -> Http2Response:
        channel, trouble = self._named(exchange)
        return (
            error_response(trouble, headers)
            if trouble
            else Http2Response(200, headers, msgspec.json.encode(self.known[channel]))
        )

    def _delete(
        self, exchange: Http2Stream, headers: tuple[tuple[bytes, bytes], ...]
    ) -> Http2Response:
        channel, trouble = self._named(exchange)
        if trouble:
            return error_response(trouble, headers)
        del self.known[channel]
        return Http2Response(204, headers)

    def _named(self, exchange: Http2Stream) -> tuple[str, PushError | None]:
        channel = exchange.headers.get(b"apns-channel-id", b"").decode("latin-1")
        if not channel:
            return "", (400, "MissingChannelId")
        if not is_channel_id(channel):
            return "", (400, "BadChannelId")
        return channel, None if channel in self.known else (400, "ChannelNotRegistered")
