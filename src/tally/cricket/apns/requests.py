"""One request to Apple and its answer: headers out, a verdict back."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.http import HeaderMap
from pyreqwest.response import Response

from tally.cricket.apns.model import NO_ANSWER, Outcome, Push, Verdict, outcome_of
from tally.cricket.apns.provider import ProviderToken

_MAX_REMEMBERED: Final = 64


class Told(msgspec.Struct, frozen=True):
    """The body of an answer that is not a success."""

    reason: str = ""
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Puts pushes on the wire. The headers of pushes that are alike are made once."""

    url: str
    bundle_id: str
    provider: ProviderToken
    _headers: dict[tuple[object, ...], HeaderMap] = field(default_factory=dict)

    def to_device(self, push: Push) -> tuple[str, HeaderMap]:
        """The address and the headers of a push.

        What cannot be a token, and would lead elsewhere, is a token that nobody has.
        """
        token = push.token if push.token.encode(errors="replace").isalnum() else "0"
        return f"{self.url}/3/device/{token}", self._headers_of(push)

    def to_channel(self, channel_id: str, push: Push) -> tuple[str, HeaderMap]:
        headers = {
            "authorization": self.provider.header(),
            "apns-channel-id": channel_id,
            "apns-push-type": "liveactivity",
            "apns-priority": str(push.priority),
            "apns-expiration": str(push.expiration),
        }
        return f"{self.url}/4/broadcasts/apps/{self.bundle_id}", HeaderMap(headers)

    def _headers_of(self, push: Push) -> HeaderMap:
        authorization = self.provider.header()
        key = (authorization, push.push_type, push.priority, push.expiration, push.collapse_id)
        headers = self._headers.get(key)
        if headers is None:
            suffix = ".push-type.liveactivity" if push.push_type == "liveactivity" else ""
            made = {
                "authorization": authorization,
                "apns-topic": self.bundle_id + suffix,
                "apns-push-type": push.push_type,
                "apns-priority": str(push.priority),
                "apns-expiration": str(push.expiration),
            }
            if push.collapse_id is not None:
                made["apns-collapse-id"] = push.collapse_id
            if len(self._headers) >= _MAX_REMEMBERED:
                self._headers.clear()
            headers = self._headers[key] = HeaderMap(made)
        if push.apns_id is None:
            return headers
        own = headers.copy()
        own["apns-id"] = push.apns_id
        return own

    async def send(self, client: Client, url: str, headers: HeaderMap, payload: bytes) -> Verdict:
        """Send it once."""
        try:
            response = await client.post(url).headers(headers).body_bytes(payload).build().send()
            if response.status == 200:
                return Verdict(Outcome.DELIVERED, 200, "", _id_in(response))
            body = bytes(await response.bytes())
        except PyreqwestError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # The client takes a cancellation at the wrong moment for a broken connection.
                raise asyncio.CancelledError from error
            return Verdict(Outcome.RETRY, 0, NO_ANSWER)
        verdict = _judged(response, body)
        self._heed(verdict, headers["authorization"])
        return verdict

    def _heed(self, verdict: Verdict, authorization: str) -> None:
        """Do about the provider's token what the answer says of it."""
        if verdict.reason == "ExpiredProviderToken":
            self.provider.expired(authorization)
        elif verdict.reason == "TooManyProviderTokenUpdates":
            self.provider.too_new(authorization)


def _judged(response: Response, body: bytes) -> Verdict:
    told = read_told(body)
    outcome = outcome_of(response.status, told.reason)
    wait = retry_after(response.get_header("retry-after"))
    return Verdict(outcome, response.status, told.reason, _id_in(response), wait, told.timestamp)


def read_told(body: bytes) -> Told:
    try:
        return msgspec.json.decode(body, type=Told)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Told()


def retry_after(header: str | None) -> float:
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def _id_in(response: Response) -> str | None:
    return response.get_header("apns-id") or response.get_header("apns-request-id")
