"""Broadcast channels and their management API."""

import base64
import random
from collections.abc import Callable
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from tally.sim.apns.provider_tokens import ProviderTokenVerifier
from tally.sim.apns.push_requests import PushError, is_channel_id
from tally.sim.apns.streams import Http2Response, Http2Stream

MAX_CHANNELS: Final = 10_000

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]


class ChannelConfig(msgspec.Struct, frozen=True, rename="kebab"):
    """The configuration of a channel. Storage policy: 0 stores nothing, 1 the latest message."""

    message_storage_policy: int
    push_type: str


class ChannelList(msgspec.Struct, frozen=True):
    """The ids of all channels."""

    channels: list[str]


def error_response(
    error: PushError, headers: Headers, timestamp_ms: int | None = None
) -> Http2Response:
    """An error response in APNs format."""
    body: dict[str, object] = {"reason": error[1]}
    if timestamp_ms is not None:
        body["timestamp"] = timestamp_ms
    return Http2Response(
        error[0], (*headers, (b"content-type", b"application/json")), msgspec.json.encode(body)
    )


class ChannelRegistry:
    """The channels of one app, with handlers for the management port."""

    def __init__(
        self, bundle_id: str, token_verifier: ProviderTokenVerifier, rng: random.Random
    ) -> None:
        self.configs: dict[str, ChannelConfig] = {}
        self.max_channels = MAX_CHANNELS
        self._bundle_id = bundle_id
        self._token_verifier = token_verifier
        self._rng = rng

    def create(self, config: ChannelConfig) -> str:
        channel_id = base64.b64encode(self._rng.randbytes(16)).decode()
        self.configs[channel_id] = config
        return channel_id

    def handle(self, stream: Http2Stream) -> Http2Response:
        """Handle a request to the management port."""
        request_id = stream.headers.get(b"apns-request-id") or self._new_request_id()
        headers = ((b"apns-request-id", request_id),)
        error = self._token_verifier.verify(stream.headers.get(b"authorization"))
        if error is not None:
            return error_response(error, headers)
        method, path = (
            stream.headers.get(b":method", b"").decode("latin-1"),
            stream.headers.get(b":path", b"").decode("latin-1"),
        )
        if path == f"/1/apps/{self._bundle_id}/all-channels" and method == "GET":
            return Http2Response(200, headers, msgspec.json.encode(ChannelList(list(self.configs))))
        if path != f"/1/apps/{self._bundle_id}/channels":
            return error_response((404, "BadPath"), headers)
        handler = self._handlers().get(method)
        return (
            handler(stream, headers)
            if handler is not None
            else error_response((405, "MethodNotAllowed"), headers)
        )

    def _new_request_id(self) -> bytes:
        return str(UUID(int=self._rng.getrandbits(128), version=4)).encode()

    def _handlers(self) -> dict[str, Callable[[Http2Stream, Headers], Http2Response]]:
        return {"POST": self._create, "GET": self._read, "DELETE": self._delete}

    def _create(self, stream: Http2Stream, headers: Headers) -> Http2Response:
        try:
            config = msgspec.json.decode(stream.body, type=ChannelConfig)
        except msgspec.DecodeError:
            return error_response((400, "InvalidPushType"), headers)
        # Apple documents "LiveActivity"; public clients send it in lower case.
        if config.push_type.lower() != "liveactivity":
            return error_response((400, "InvalidPushType"), headers)
        if len(self.configs) >= self.max_channels or config.message_storage_policy not in {0, 1}:
            return error_response((400, "CannotCreateChannelConfig"), headers)
        return Http2Response(201, (*headers, (b"apns-channel-id", self.create(config).encode())))

    def _read(self, stream: Http2Stream, headers: Headers) -> Http2Response:
        channel_id, error = self._channel_id(stream)
        return (
            error_response(error, headers)
            if error
            else Http2Response(200, headers, msgspec.json.encode(self.configs[channel_id]))
        )

    def _delete(self, stream: Http2Stream, headers: Headers) -> Http2Response:
        channel_id, error = self._channel_id(stream)
        if error:
            return error_response(error, headers)
        del self.configs[channel_id]
        return Http2Response(204, headers)

    def _channel_id(self, stream: Http2Stream) -> tuple[str, PushError | None]:
        channel_id = stream.headers.get(b"apns-channel-id", b"").decode("latin-1")
        if not channel_id:
            return "", (400, "MissingChannelId")
        if not is_channel_id(channel_id):
            return "", (400, "BadChannelId")
        return channel_id, None if channel_id in self.configs else (400, "ChannelNotRegistered")
