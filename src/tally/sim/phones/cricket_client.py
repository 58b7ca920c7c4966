"""The app's side of cricket's HTTP API: what it sends, and what the answers mean to it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
from pyreqwest.client import Client

from tally.errors import (
    Conflict,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch

WHO: Final = "The server"
ISSUER: Final = "The OIDC simulator"

TokenSource: TypeAlias = Callable[[], Awaitable[str]]


class _Told(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    error: _Told = _Told()


class _Followed(msgspec.Struct, frozen=True, rename="camel"):
    match_id: str
    team_id: str | None = None
    display: dict[str, Any] | None = None


class _Follows(msgspec.Struct, frozen=True, rename="camel"):
    follows: list[_Followed]
    next_cursor: str | None = None


class _Match(msgspec.Struct, frozen=True, rename="camel"):
    match_id: str


class _Matches(msgspec.Struct, frozen=True):
    matches: list[_Match]


@dataclass(slots=True)
class CricketClient:
    """One phone's calls, in the name of its owner.

    `url` ends in /cricket. Without a network every call is Unavailable.

    A call raises Unavailable or RateLimited where the same may work later, and Conflict, NotFound,
    Unauthenticated or Invalid where it will not.
    """

    client: Client
    url: str
    token_of: TokenSource
    is_online: bool = True
    calls: int = 0
    failures: int = 0
    last_error: str = ""

    async def register_device(
        self, device_token: str, device_id: str, os_version: str, app_version: str
    ) -> None:
        body = {"deviceToken": device_token, "deviceId": device_id, "platform": "ios"}
        await self._call(
            "POST", "/user/device", body | {"osVersion": os_version, "appVersion": app_version}
        )

    async def hand_in_start_token(self, token: str, device_id: str) -> None:
        await self._call(
            "PUT", "/user/device/push-to-start", {"pushToStartToken": token, "deviceId": device_id}
        )

    async def hand_in_update_token(
        self, match_id: str, device_id: str, token: str, team_id: str | None
    ) -> None:
        """Conflict where the server has ended this activity."""
        body = {"deviceId": device_id, "updateToken": token, "teamId": team_id}
        await self._call("POST", f"/matches/{match_id}/activity-token", body)

    async def tell_dismissed(self, match_id: str, device_id: str) -> None:
        await self._call("POST", f"/matches/{match_id}/activity-dismissed", {"deviceId": device_id})

    async def follow(self, match_id: str, team_id: str | None) -> Mapping[str, Any] | None:
        """The display state, if the match is live."""
        answer = await self._call(
            "POST", "/user/follow/match", {"matchId": match_id, "teamId": team_id}
        )
        return answer.decode(_Followed, WHO).display

    async def unfollow(self, match_id: str) -> None:
        await self._call("DELETE", f"/user/follow/match?matchId={match_id}")

    async def follows(self) -> dict[str, str | None]:
        """The matches that the person follows, on whatever device, each with the side."""
        found: dict[str, str | None] = {}
        cursor: str | None = ""
        while cursor is not None:
            answer = await self._call(
                "GET", f"/user/follows?limit=100{'&cursor=' if cursor else ''}{cursor}"
            )
            page = answer.decode(_Follows, WHO)
            found |= {followed.match_id: followed.team_id for followed in page.follows}
            cursor = page.next_cursor
        return found

    async def live(self) -> list[str]:
        """The matches that are live now."""
        answer = await self._call("GET", "/matches/live")
        return [match.match_id for match in answer.decode(_Matches, WHO).matches]

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> HttpResponse:
        self.calls += 1
        try:
            if not self.is_online:
                raise Unavailable("There is no network")
            request = self.client.request(method, self.url + path).bearer_auth(
                await self.token_of()
            )
            answer = await fetch(
                request.body_json(dict(body)) if body is not None else request, WHO
            )
            if answer.status >= 300:
                raise _trouble(answer)
        except TallyError as error:
            self.failures += 1
            self.last_error = error.message
            raise
        return answer


def _trouble(answer: HttpResponse) -> TallyError:
    try:
        told = msgspec.json.decode(answer.body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Told()
    message = f"{answer.status} {told.code} {told.message}".rstrip()
    asked = answer.headers.get("retry-after", "")
    wait = float(asked) if asked.isascii() and asked.isdigit() else None
    if answer.status == 429:
        return RateLimited(message, retry_after=wait or 1.0)
    if answer.status in {408, 425} or answer.status >= 500:
        return Unavailable(message, retry_after=wait)
    final = {401: Unauthenticated, 404: NotFound, 409: Conflict}
    return final.get(answer.status, Invalid)(message, code=told.code or None)


# Tokens are good for an hour.
KEPT_SECONDS: Final = 50 * 60


class _Made(msgspec.Struct, frozen=True):
    token: str


@dataclass(slots=True)
class PhoneOwner:
    """A person with an account.

    `issuer` is the address of the simulator, such as http://127.0.0.1:8102.
    """

    client: Client
    issuer: str
    user_id: str
    clock: Clock
    client_id: str | None = None
    _token: str = ""
    _until: float = 0.0

    async def token(self) -> str:
        """A token that holds, asked for again shortly before the last one is over."""
        if self.clock.monotonic() >= self._until:
            request = self.client.post(f"{self.issuer}/_sim/tokens")
            answer = await fetch(
                request.body_json({"sub": self.user_id, "client_id": self.client_id}), ISSUER
            )
            if answer.status != 200:
                raise Unavailable(f"{ISSUER} makes no token: {answer.status}")
            self._token, self._until = (
                answer.decode(_Made, ISSUER).token,
                self.clock.monotonic() + KEPT_SECONDS,
            )
        return self._token
