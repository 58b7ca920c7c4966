"""A client for the scoreboard API, for players and game servers.

`stats` counts the requests of all players; `tally.sim.http_client` defines the errors.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.errors import TallyError
from tally.kit.clock import Clock
from tally.settings import Secret
from tally.sim.http_client import (
    CallStats,
    ProblemDetail,
    ServerRejection,
    decode_body,
    is_cancelled,
    send_request,
    transient_error,
)

T = TypeVar("T")


class PlayerTokens(msgspec.Struct, frozen=True):
    """The access and refresh token of a session."""

    access_token: str
    refresh_token: str


class PlayerAccount(msgspec.Struct, frozen=True):
    """A registered user."""

    user_id: str
    username: str


class PlayerLogin(msgspec.Struct, frozen=True):
    """The response to a registration or login."""

    user: PlayerAccount
    tokens: PlayerTokens


class IssuedActionToken(msgspec.Struct, frozen=True):
    """The response to a completed action."""

    action_token: str


class ScoreUpdate(msgspec.Struct, frozen=True):
    """The response to a score update."""

    new_score: int
    score_added: int
    rank: int
    updated_at: datetime


class LeaderboardRow(msgspec.Struct, frozen=True):
    """A player on the leaderboard."""

    rank: int
    username: str
    score: int


class LeaderboardTop(msgspec.Struct, frozen=True):
    """The top of the leaderboard."""

    items: list[LeaderboardRow]
    total_players: int


@dataclass(slots=True)
class PlayerStats(CallStats):
    """Counts of games and of checks; `violations` must stay 0."""

    games: int = 0
    points: int = 0
    replays: int = 0
    cheats: int = 0
    violations: int = 0


@dataclass(frozen=True, slots=True)
class ScoreboardClient:
    """The API at `url`, for example http://127.0.0.1:8080/scoreboard/api/v1."""

    client: Client
    url: str
    internal_key: Secret
    clock: Clock
    stats: PlayerStats = field(default_factory=PlayerStats)

    async def register(self, username: str, password: str, address: str) -> PlayerLogin:
        """Register a player at an IP address, or log in if the account exists."""
        body = {"username": username, "email": f"{username}@players.example", "password": password}
        try:
            return await self._send("POST", "/auth/register", body, PlayerLogin, address=address)
        except ServerRejection as error:
            if error.code != "username_taken":
                raise
        return await self._send(
            "POST",
            "/auth/login",
            {"login": username, "password": password},
            PlayerLogin,
            address=address,
        )

    async def refresh(self, refresh_token: str, address: str) -> PlayerTokens:
        return await self._send(
            "POST",
            "/auth/refresh",
            {"refresh_token": refresh_token},
            PlayerTokens,
            address=address,
        )

    async def complete_action(
        self,
        action_id: str,
        user_id: str,
        max_score: int,
        metadata: dict[str, Any],
        boards: tuple[str, ...] = ("global",),
    ) -> str:
        """Report a completed action as the game server; returns the action token."""
        body = {
            "action_id": action_id,
            "user_id": user_id,
            "max_score": max_score,
            "metadata": metadata,
            "boards": boards,
        }
        key = {"X-Internal-API-Key": self.internal_key.reveal()}
        return (
            await self._send(
                "POST", "/internal/actions/complete", body, IssuedActionToken, headers=key
            )
        ).action_token

    async def update_score(
        self, access_token: str, action_token: str, score_delta: int
    ) -> ScoreUpdate:
        body = {"action_token": action_token, "score_delta": score_delta}
        return await self._send(
            "PATCH",
            "/scores",
            body,
            ScoreUpdate,
            headers={"Authorization": f"Bearer {access_token}"},
        )

    async def leaderboard(self, limit: int = 10) -> LeaderboardTop:
        return await self._send(
            "GET", f"/leaderboard?limit={limit}", None, LeaderboardTop, address="198.18.0.1"
        )

    async def _send(
        self,
        method: str,
        path: str,
        body: object,
        kind: type[T],
        *,
        headers: dict[str, str] | None = None,
        address: str | None = None,
    ) -> T:
        all_headers = (headers or {}) | ({"X-Forwarded-For": address} if address else {})
        self.stats.requests += 1
        started = self.clock.monotonic()
        try:
            response = await self._request(method, path, body, kind, all_headers)
        except ServerRejection:
            raise
        except TallyError as error:
            self.stats.failures += 1
            self.stats.last_error = error.message
            raise
        self.stats.latencies.append(self.clock.monotonic() - started)
        if is_cancelled():
            # pyreqwest may swallow a cancellation and return the response.
            raise asyncio.CancelledError
        return response

    async def _request(
        self, method: str, path: str, body: object, kind: type[T], headers: dict[str, str]
    ) -> T:
        request = self.client.request(method, self.url + path).headers(headers)
        response, content = await send_request(request if body is None else request.body_json(body))
        if response.status >= 300:
            raise _error_for(response.status, response.headers, content)
        return decode_body(content, kind)


def _error_for(status: int, headers: Mapping[str, str], content: bytes) -> TallyError:
    problem = ProblemDetail.decode(content)
    message = problem.describe(status)
    return transient_error(status, headers, message) or ServerRejection(message, code=problem.code)
