"""The app's client for the cricket API, and the access tokens of its user."""

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
from tally.sim.http_client import ProblemDetail
from tally.sim.page_protection import CONTROL_HEADERS

SERVER: Final = "The server"
ISSUER: Final = "The OIDC simulator"
# Tokens are valid for an hour.
TOKEN_CACHE_SECONDS: Final = 50 * 60

TokenSource: TypeAlias = Callable[[], Awaitable[str]]


class _Followed(msgspec.Struct, frozen=True, rename="camel"):
    match_id: str
    team_id: str | None = None
    display: dict[str, Any] | None = None


class _Follows(msgspec.Struct, frozen=True, rename="camel"):
    items: list[_Followed]
    next_cursor: str | None = None


class _Match(msgspec.Struct, frozen=True, rename="camel"):
    match_id: str


class _Matches(msgspec.Struct, frozen=True):
    items: list[_Match]


@dataclass(slots=True)
class CricketClient:
    """The calls of one phone on behalf of its owner. `url` ends in /cricket.

    A call raises Unavailable or RateLimited if a retry may succeed, and Conflict, NotFound,
    Unauthenticated or Invalid otherwise. Offline, every call raises Unavailable.
    """

    client: Client
    url: str
    get_token: TokenSource
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

    async def delete_device(self, device_id: str) -> None:
        await self._call("DELETE", f"/user/device?deviceId={device_id}")

    async def delete_user(self) -> None:
        await self._call("DELETE", "/user")

    async def register_start_token(self, token: str, device_id: str) -> None:
        await self._call(
            "PUT", "/user/device/push-to-start", {"pushToStartToken": token, "deviceId": device_id}
        )

    async def register_update_token(
        self, match_id: str, device_id: str, token: str, team_id: str | None
    ) -> None:
        """Register a token; raises Conflict if the server already ended the activity."""
        body = {"deviceId": device_id, "updateToken": token, "teamId": team_id}
        await self._call("POST", f"/matches/{match_id}/activity-token", body)

    async def confirm_activity(self, match_id: str, device_id: str) -> None:
        """Confirm a started activity; raises Conflict if the server already ended it."""
        await self._call("POST", f"/matches/{match_id}/activity-started", {"deviceId": device_id})

    async def report_ended(self, match_id: str, device_id: str) -> None:
        await self._call("POST", f"/matches/{match_id}/activity-ended", {"deviceId": device_id})

    async def report_dismissed(self, match_id: str, device_id: str) -> None:
        await self._call("POST", f"/matches/{match_id}/activity-dismissed", {"deviceId": device_id})

    async def follow(self, match_id: str, team_id: str | None) -> Mapping[str, Any] | None:
        """Follow a match; returns its display state if it is live."""
        response = await self._call(
            "POST", "/user/follow/match", {"matchId": match_id, "teamId": team_id}
        )
        return response.decode(_Followed, SERVER).display

    async def unfollow(self, match_id: str) -> None:
        await self._call("DELETE", f"/user/follow/match?matchId={match_id}")

    async def follows(self) -> dict[str, str | None]:
        """The matches the user follows on any device, with the selected team."""
        follows: dict[str, str | None] = {}
        cursor: str | None = ""
        while cursor is not None:
            response = await self._call(
                "GET", f"/user/follows?limit=100{'&cursor=' if cursor else ''}{cursor}"
            )
            page = response.decode(_Follows, SERVER)
            follows |= {followed.match_id: followed.team_id for followed in page.items}
            cursor = page.next_cursor
        return follows

    async def live_matches(self) -> list[str]:
        """The ids of live matches."""
        response = await self._call("GET", "/matches/live")
        return [match.match_id for match in response.decode(_Matches, SERVER).items]

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> HttpResponse:
        self.calls += 1
        try:
            if not self.is_online:
                raise Unavailable("The phone is offline")
            request = self.client.request(method, self.url + path).bearer_auth(
                await self.get_token()
            )
            response = await fetch(
                request.body_json(dict(body)) if body is not None else request, SERVER
            )
            if response.status >= 300:
                raise _error_for(response)
        except TallyError as error:
            self.failures += 1
            self.last_error = error.message
            raise
        return response


def _error_for(response: HttpResponse) -> TallyError:
    problem = ProblemDetail.decode(response.body)
    message = problem.describe(response.status)
    retry_after = response.headers.get("retry-after", "")
    wait = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    if response.status == 429:
        return RateLimited(message, retry_after=wait or 1.0)
    if response.status in {408, 425} or response.status >= 500:
        return Unavailable(message, retry_after=wait)
    permanent = {401: Unauthenticated, 404: NotFound, 409: Conflict}
    return permanent.get(response.status, Invalid)(message, code=problem.code or None)


class _IssuedToken(msgspec.Struct, frozen=True):
    token: str


@dataclass(slots=True)
class PhoneOwner:
    """The user of a phone. `issuer` is the URL of the OIDC simulator."""

    client: Client
    issuer: str
    user_id: str
    clock: Clock
    client_id: str | None = None
    _token: str = ""
    _refresh_at: float = 0.0

    async def token(self) -> str:
        """A valid access token, cached until shortly before it expires."""
        if self.clock.monotonic() >= self._refresh_at:
            request = self.client.post(f"{self.issuer}/_sim/tokens").headers(CONTROL_HEADERS)
            response = await fetch(
                request.body_json({"sub": self.user_id, "client_id": self.client_id}), ISSUER
            )
            if response.status != 200:
                raise Unavailable(f"{ISSUER} answered a token request with {response.status}")
            self._token, self._refresh_at = (
                response.decode(_IssuedToken, ISSUER).token,
                self.clock.monotonic() + TOKEN_CACHE_SECONDS,
            )
        return self._token
