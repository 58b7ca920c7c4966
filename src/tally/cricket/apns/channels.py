"""APNs channel management: one broadcast channel per match reaches all its iOS 18 followers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyreqwest.client import Client

from tally.cricket.apns.provider_token import ProviderToken
from tally.cricket.apns.requests import classify, decode_error, retry_after
from tally.cricket.model.push import BroadcastChannel, PushOutcome
from tally.errors import Conflict, Unavailable
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.retry import RetryPolicy

_PEER: Final = "APNs channel management"
# Reasons for a missing channel. The paths are fixed, so that BadPath means a missing channel too.
_NOT_FOUND_REASONS: Final = frozenset({"ChannelNotRegistered", "BadChannelId", "BadPath"})
_retry_policy: Final = RetryPolicy(
    attempts=3,
    base=0.2,
    cap=2,
    deadline=10,
    is_retryable=lambda error: isinstance(error, Unavailable),
)
# A request whose response was lost may have created a channel, and nobody would know its id to
# delete it.
_no_retries: Final = RetryPolicy(attempts=1)


class _ChannelList(msgspec.Struct, frozen=True):
    channels: tuple[str, ...] = ()


class _ChannelBody(msgspec.Struct, frozen=True, rename="kebab"):
    message_storage_policy: int


@dataclass(frozen=True, slots=True)
class ChannelManager:
    """Creates, deletes and lists the broadcast channels of the app.

    Every method raises Unavailable if APNs is unavailable and Conflict if it rejects the request.
    """

    client: Client
    url: str
    bundle_id: str
    provider: ProviderToken
    clock: Clock

    async def create(self, *, stores_latest: bool) -> str:
        body = msgspec.json.encode(
            {"message-storage-policy": int(stores_latest), "push-type": "LiveActivity"}
        )
        response = await self._request("POST", "channels", body=body, retry_policy=_no_retries)
        channel_id = (
            response.headers.get("apns-channel-id") if response.status in {200, 201} else None
        )
        if channel_id is None:
            raise _rejected(response)
        return channel_id

    async def delete(self, channel_id: str) -> bool:
        response = await self._request("DELETE", "channels", channel_id)
        if decode_error(response.body).reason in _NOT_FOUND_REASONS:
            return False
        if not 200 <= response.status < 300:
            raise _rejected(response)
        return True

    async def read(self, channel_id: str) -> BroadcastChannel | None:
        response = await self._request("GET", "channels", channel_id)
        if decode_error(response.body).reason in _NOT_FOUND_REASONS:
            return None
        if response.status != 200:
            raise _rejected(response)
        policy = response.decode(_ChannelBody, _PEER).message_storage_policy
        return BroadcastChannel(channel_id, stores_latest=policy == 1)

    async def list_ids(self) -> Sequence[str]:
        response = await self._request("GET", "all-channels")
        if response.status != 200:
            raise _rejected(response)
        return response.decode(_ChannelList, _PEER).channels

    async def _request(
        self,
        method: str,
        resource: str,
        channel_id: str | None = None,
        *,
        body: bytes = b"",
        retry_policy: RetryPolicy = _retry_policy,
    ) -> HttpResponse:
        headers = {"apns-channel-id": channel_id} if channel_id is not None else {}
        url = f"{self.url}/1/apps/{self.bundle_id}/{resource}"
        return await retry_policy.call(
            lambda: self._attempt(method, url, headers, body), self.clock
        )

    async def _attempt(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        """Send the request; retry once if the provider token has expired.

        Raises Unavailable if a later attempt may succeed.
        """
        authorization = self.provider.header()
        response = await self._send(method, url, {"authorization": authorization, **headers}, body)
        if decode_error(response.body).reason == "ExpiredProviderToken":
            self.provider.expired(authorization)
            renewed = self.provider.header()
            if renewed != authorization:
                response = await self._send(
                    method, url, {"authorization": renewed, **headers}, body
                )
        reason = decode_error(response.body).reason
        if classify(response.status, reason) is PushOutcome.RETRY:
            wait = retry_after(response.headers.get("retry-after"))
            raise Unavailable(
                f"{_PEER} is unavailable: {response.status} {reason}", retry_after=wait or None
            )
        return response

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        request = self.client.request(method, url).headers(headers)
        return await fetch(request.body_bytes(body) if body else request, _PEER)


def _rejected(response: HttpResponse) -> Conflict:
    reason = decode_error(response.body).reason or "unknown reason"
    return Conflict(
        f"{_PEER} rejected the request: {response.status} {reason}",
        code="apns_channel_refused",
        reason=reason,
    )
