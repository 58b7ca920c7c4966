"""Broadcast channels at Apple: one for each match, so that one request reaches everyone who follows it on iOS 18."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyreqwest.client import Client

from tally.cricket.apns.model import Channel, Outcome, outcome_of
from tally.cricket.apns.provider import ProviderToken
from tally.cricket.apns.requests import read_told, retry_after
from tally.errors import Conflict, Unavailable
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.retry import RetryPolicy

WHO: Final = "Apple's channel management"
# What a missing channel is called; a path that is not there can only be a channel that is gone.
_GONE: Final = frozenset({"ChannelNotRegistered", "BadChannelId", "BadPath"})
_patience: Final = RetryPolicy(
    attempts=3,
    base=0.2,
    cap=2,
    deadline=10,
    is_retryable=lambda error: isinstance(error, Unavailable),
)
# A request whose answer was lost may have made a channel already: what nobody knows the id of is
# never deleted.
_once: Final = RetryPolicy(attempts=1)


class _Listed(msgspec.Struct, frozen=True):
    channels: tuple[str, ...] = ()


class _Described(msgspec.Struct, frozen=True, rename="kebab"):
    message_storage_policy: int


@dataclass(frozen=True, slots=True)
class Channels:
    """The channels of our app.

    All calls: Unavailable where Apple is away, Conflict where it refuses.
    """

    client: Client
    url: str
    bundle_id: str
    provider: ProviderToken
    clock: Clock

    async def create(self, *, keeps_latest: bool) -> str:
        body = msgspec.json.encode(
            {"message-storage-policy": int(keeps_latest), "push-type": "LiveActivity"}
        )
        answer = await self._called("POST", "channels", body=body, patience=_once)
        channel_id = answer.headers.get("apns-channel-id") if answer.status in {200, 201} else None
        if channel_id is None:
            raise _refused(answer)
        return channel_id

    async def delete(self, channel_id: str) -> bool:
        answer = await self._called("DELETE", "channels", channel_id)
        if read_told(answer.body).reason in _GONE:
            return False
        if not 200 <= answer.status < 300:
            raise _refused(answer)
        return True

    async def read(self, channel_id: str) -> Channel | None:
        answer = await self._called("GET", "channels", channel_id)
        if read_told(answer.body).reason in _GONE:
            return None
        if answer.status != 200:
            raise _refused(answer)
        return Channel(channel_id, answer.decode(_Described, WHO).message_storage_policy == 1)

    async def every(self) -> Sequence[str]:
        answer = await self._called("GET", "all-channels")
        if answer.status != 200:
            raise _refused(answer)
        return answer.decode(_Listed, WHO).channels

    async def _called(
        self,
        method: str,
        what: str,
        channel_id: str | None = None,
        *,
        body: bytes = b"",
        patience: RetryPolicy = _patience,
    ) -> HttpResponse:
        headers = {"apns-channel-id": channel_id} if channel_id is not None else {}
        url = f"{self.url}/1/apps/{self.bundle_id}/{what}"
        return await patience.call(lambda: self._sent(method, url, headers, body), self.clock)

    async def _sent(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        """Send once; with a new token at once where Apple calls the old one expired.

        Unavailable where it may work later.
        """
        authorization = self.provider.header()
        answer = await self._asked(method, url, {"authorization": authorization, **headers}, body)
        if read_told(answer.body).reason == "ExpiredProviderToken":
            self.provider.expired(authorization)
            if self.provider.header() != authorization:
                answer = await self._asked(
                    method, url, {"authorization": self.provider.header(), **headers}, body
                )
        reason = read_told(answer.body).reason
        if outcome_of(answer.status, reason) is Outcome.RETRY:
            wait = retry_after(answer.headers.get("retry-after"))
            raise Unavailable(
                f"{WHO} cannot do it now: {answer.status} {reason}", retry_after=wait or None
            )
        return answer

    async def _asked(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        request = self.client.request(method, url).headers(headers)
        return await fetch(request.body_bytes(body) if body else request, WHO)


def _refused(answer: HttpResponse) -> Conflict:
    reason = read_told(answer.body).reason or "no reason given"
    return Conflict(
        f"{WHO} refuses: {answer.status} {reason}", code="apns_channel_refused", reason=reason
    )
