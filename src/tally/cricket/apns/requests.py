"""One push request to APNs: builds URL and headers, sends it, and interprets the response."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.http import HeaderMap
from pyreqwest.response import Response

from tally.cricket.apns.provider_token import ProviderToken
from tally.cricket.model.push import NO_ANSWER, Push, PushOutcome, PushResult

_MAX_CACHED_HEADERS: Final = 64
# Reasons with status 400 that concern the token or the channel; all others concern the request.
_TOKEN_REASONS: Final = frozenset(
    {
        "BadDeviceToken",
        "DeviceTokenNotForTopic",
        "Unregistered",
        "ExpiredToken",
        "BadChannelId",
        "ChannelNotRegistered",
    }
)
# Reasons that a new provider token or a pause resolves.
_TRANSIENT_REASONS: Final = frozenset(
    {"ExpiredProviderToken", "TooManyProviderTokenUpdates", "IdleTimeout"}
)


class ApnsErrorBody(msgspec.Struct, frozen=True):
    """The JSON body of an error response."""

    reason: str = ""
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class PushRequests:
    """Sends pushes over HTTP. Pushes with equal headers share one header map."""

    url: str
    bundle_id: str
    provider: ProviderToken
    _headers: dict[tuple[object, ...], HeaderMap] = field(default_factory=dict)

    def to_device(self, push: Push) -> tuple[str, HeaderMap]:
        """Return the URL and the headers of a push to its token.

        A malformed token, which could change the path, is replaced by one that does not exist.
        """
        token = push.token if push.token.encode(errors="replace").isalnum() else "0"
        return f"{self.url}/3/device/{token}", self._device_headers(push)

    def to_channel(self, channel_id: str, push: Push) -> tuple[str, HeaderMap]:
        headers = {
            "authorization": self.provider.header(),
            "apns-channel-id": channel_id,
            "apns-push-type": "liveactivity",
            "apns-priority": str(push.priority),
            "apns-expiration": str(push.expiration),
        }
        return f"{self.url}/4/broadcasts/apps/{self.bundle_id}", HeaderMap(headers)

    def _device_headers(self, push: Push) -> HeaderMap:
        authorization = self.provider.header()
        key = (authorization, push.push_type, push.priority, push.expiration, push.collapse_id)
        headers = self._headers.get(key)
        if headers is None:
            suffix = ".push-type.liveactivity" if push.push_type == "liveactivity" else ""
            values = {
                "authorization": authorization,
                "apns-topic": self.bundle_id + suffix,
                "apns-push-type": push.push_type,
                "apns-priority": str(push.priority),
                "apns-expiration": str(push.expiration),
            }
            if push.collapse_id is not None:
                values["apns-collapse-id"] = push.collapse_id
            if len(self._headers) >= _MAX_CACHED_HEADERS:
                self._headers.clear()
            headers = self._headers[key] = HeaderMap(values)
        if push.apns_id is None:
            return headers
        with_id = headers.copy()
        with_id["apns-id"] = push.apns_id
        return with_id

    async def send(
        self, client: Client, url: str, headers: HeaderMap, payload: bytes
    ) -> PushResult:
        """Make one attempt."""
        try:
            response = await client.post(url).headers(headers).body_bytes(payload).build().send()
            if response.status == 200:
                return PushResult(PushOutcome.DELIVERED, 200, "", _apns_id(response))
            body = bytes(await response.bytes())
        except PyreqwestError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # The client reports a cancellation at the wrong moment as a broken connection.
                raise asyncio.CancelledError from error
            return PushResult(PushOutcome.RETRY, 0, NO_ANSWER)
        result = _result(response, body)
        self._update_provider_token(result, headers["authorization"])
        return result

    def _update_provider_token(self, result: PushResult, authorization: str) -> None:
        if result.reason == "ExpiredProviderToken":
            self.provider.expired(authorization)
        elif result.reason == "TooManyProviderTokenUpdates":
            self.provider.too_new(authorization)


def classify(status: int, reason: str) -> PushOutcome:
    """Map a response to an outcome; the status decides if the reason is unknown."""
    if 200 <= status < 300:
        return PushOutcome.DELIVERED
    if reason in _TOKEN_REASONS or status == 410:
        return PushOutcome.TOKEN_INVALID
    if reason in _TRANSIENT_REASONS or status in {408, 429} or status >= 500:
        return PushOutcome.RETRY
    return PushOutcome.REJECTED


def _result(response: Response, body: bytes) -> PushResult:
    error = decode_error(body)
    outcome = classify(response.status, error.reason)
    wait = retry_after(response.get_header("retry-after"))
    return PushResult(
        outcome, response.status, error.reason, _apns_id(response), wait, error.timestamp
    )


def decode_error(body: bytes) -> ApnsErrorBody:
    """Decode the body of an error response; an unreadable one has no reason."""
    try:
        return msgspec.json.decode(body, type=ApnsErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApnsErrorBody()


def retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After header; 0 if it is missing or not a number."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def _apns_id(response: Response) -> str | None:
    return response.get_header("apns-id") or response.get_header("apns-request-id")
