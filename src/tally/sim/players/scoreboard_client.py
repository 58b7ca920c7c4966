"""The way to a scoreboard: what players and game servers send, and what the answers mean to them.

`figures` count what all players of a process did; `calling` tells which errors there are.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from pyreqwest.client import Client

from tally.errors import TallyError
from tally.kit.clock import Clock
from tally.settings import Secret
from tally.sim.http_client import (
    CallStats,
    RequestRejected,
    decode_body,
    is_cancelled,
    send_request,
    transient_error,
)

T = TypeVar("T")


class SessionTokens(msgspec.Struct, frozen=True):
    access_token: str
    refresh_token: str


class PlayerAccount(msgspec.Struct, frozen=True):
    user_id: str
    username: str


class PlayerSession(msgspec.Struct, frozen=True):
    user: PlayerAccount
    tokens: SessionTokens


class IssuedActionToken(msgspec.Struct, frozen=True):
    action_token: str


class ScoreUpdate(msgspec.Struct, frozen=True):
    new_score: int
    score_added: int
    rank: int
    updated_at: datetime


class LeaderboardRow(msgspec.Struct, frozen=True):
    rank: int
    username: str
    score: int


class LeaderboardPage(msgspec.Struct, frozen=True):
    leaderboard: list[LeaderboardRow]
    total_players: int


class _Answer(msgspec.Struct, Generic[T], frozen=True):
    data: T


@dataclass(slots=True)
class PlayerStats(CallStats):
    """What was sent and what came of it.

    `broken` counts promises that were not kept, and must stay 0.
    """

    trades: int = 0
    points: int = 0
    replays: int = 0
    cheats: int = 0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class ScoreboardClient:
    """`url` is that of the API, such as http://127.0.0.1:8080/scoreboard/api/v1; `internal_key` is the game servers'."""

    client: Client
    url: str
    internal_key: Secret
    clock: Clock
    stats: PlayerStats = field(default_factory=PlayerStats)

    async def sign_up(self, username: str, password: str, address: str) -> PlayerSession:
        """An account, made or, if it was made before, opened.

        Each player comes from an address of their own.
        """
        body = {"username": username, "email": f"{username}@players.example", "password": password}
        try:
            return await self._send("POST", "/auth/register", body, PlayerSession, address=address)
        except RequestRejected as refused:
            if refused.code != "USERNAME_TAKEN":
                raise
        return await self._send(
            "POST",
            "/auth/login",
            {"login": username, "password": password},
            PlayerSession,
            address=address,
        )

    async def refresh(self, refresh_token: str, address: str) -> SessionTokens:
        return await self._send(
            "POST",
            "/auth/refresh",
            {"refresh_token": refresh_token},
            SessionTokens,
            address=address,
        )

    async def vouch(
        self, action_id: str, user_id: str, max_score: int, metadata: dict[str, Any]
    ) -> str:
        """What the game server gets for a finished action: the token for the player."""
        body = {
            "action_id": action_id,
            "user_id": user_id,
            "max_score": max_score,
            "metadata": metadata,
        }
        key = {"X-Internal-API-Key": self.internal_key.reveal()}
        return (
            await self._send(
                "POST", "/internal/actions/complete", body, IssuedActionToken, headers=key
            )
        ).action_token

    async def trade(self, access_token: str, action_token: str, score_delta: int) -> ScoreUpdate:
        body = {"action_token": action_token, "score_delta": score_delta}
        return await self._send(
            "PATCH",
            "/scores",
            body,
            ScoreUpdate,
            headers={"Authorization": f"Bearer {access_token}"},
        )

    async def board(self, limit: int = 10) -> LeaderboardPage:
        return await self._send(
            "GET", f"/leaderboard?limit={limit}", None, LeaderboardPage, address="198.18.0.1"
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
        told = (headers or {}) | ({"X-Forwarded-For": address} if address else {})
        self.stats.requests += 1
        started = self.clock.monotonic()
        try:
            answer = await self._answer(method, path, body, kind, told)
        except RequestRejected:
            raise
        except TallyError as error:
            self.stats.failures += 1
            self.stats.last_error = error.message
            raise
        self.stats.latencies.append(self.clock.monotonic() - started)
        if is_cancelled():
            # The client may also keep a cancellation to itself, and go on with its answer.
            raise asyncio.CancelledError
        return answer

    async def _answer(
        self, method: str, path: str, body: object, kind: type[T], headers: dict[str, str]
    ) -> T:
        request = self.client.request(method, self.url + path).headers(headers)
        response, content = await send_request(request if body is None else request.body_json(body))
        if response.status >= 300:
            raise _trouble(response.status, response.headers, content)
        return decode_body(content, _Answer[kind]).data  # type: ignore[valid-type]


class _Error(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Told(msgspec.Struct, frozen=True):
    error: _Error = _Error()


def _trouble(status: int, headers: Mapping[str, str], content: bytes) -> TallyError:
    try:
        told = msgspec.json.decode(content, type=_Told).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Error()
    message = f"{status} {told.code} {told.message}".rstrip()
    return transient_error(status, headers, message) or RequestRejected(message, code=told.code)
