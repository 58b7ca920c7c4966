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
from tally.sim.calling import Calls, Refused, decoded, is_cancelled, passing_trouble, sent

T = TypeVar("T")


class Tokens(msgspec.Struct, frozen=True):
    access_token: str
    refresh_token: str


class User(msgspec.Struct, frozen=True):
    user_id: str
    username: str


class SignedIn(msgspec.Struct, frozen=True):
    user: User
    tokens: Tokens


class Vouched(msgspec.Struct, frozen=True):
    action_token: str


class Traded(msgspec.Struct, frozen=True):
    new_score: int
    score_added: int
    rank: int
    updated_at: datetime


class Place(msgspec.Struct, frozen=True):
    rank: int
    username: str
    score: int


class Board(msgspec.Struct, frozen=True):
    leaderboard: list[Place]
    total_players: int


class _Answer(msgspec.Struct, Generic[T], frozen=True):
    data: T


@dataclass(slots=True)
class Figures(Calls):
    """What was sent and what came of it.

    `broken` counts promises that were not kept, and must stay 0.
    """

    trades: int = 0
    points: int = 0
    replays: int = 0
    cheats: int = 0
    broken: int = 0


@dataclass(frozen=True, slots=True)
class ScoreboardServer:
    """`url` is that of the API, such as http://127.0.0.1:8080/scoreboard/api/v1; `internal_key` is the game servers'."""

    client: Client
    url: str
    internal_key: Secret
    clock: Clock
    figures: Figures = field(default_factory=Figures)

    async def sign_up(self, username: str, password: str, address: str) -> SignedIn:
        """An account, made or, if it was made before, opened.

        Each player comes from an address of their own.
        """
        body = {"username": username, "email": f"{username}@players.example", "password": password}
        try:
            return await self._send("POST", "/auth/register", body, SignedIn, address=address)
        except Refused as refused:
            if refused.code != "USERNAME_TAKEN":
                raise
        return await self._send(
            "POST",
            "/auth/login",
            {"login": username, "password": password},
            SignedIn,
            address=address,
        )

    async def refresh(self, refresh_token: str, address: str) -> Tokens:
        return await self._send(
            "POST", "/auth/refresh", {"refresh_token": refresh_token}, Tokens, address=address
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
            await self._send("POST", "/internal/actions/complete", body, Vouched, headers=key)
        ).action_token

    async def trade(self, access_token: str, action_token: str, score_delta: int) -> Traded:
        body = {"action_token": action_token, "score_delta": score_delta}
        return await self._send(
            "PATCH", "/scores", body, Traded, headers={"Authorization": f"Bearer {access_token}"}
        )

    async def board(self, limit: int = 10) -> Board:
        return await self._send(
            "GET", f"/leaderboard?limit={limit}", None, Board, address="198.18.0.1"
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
        self.figures.requests += 1
        started = self.clock.monotonic()
        try:
            answer = await self._answer(method, path, body, kind, told)
        except Refused:
            raise
        except TallyError as error:
            self.figures.failures += 1
            self.figures.last_trouble = error.message
            raise
        self.figures.seconds.append(self.clock.monotonic() - started)
        if is_cancelled():
            # The client may also keep a cancellation to itself, and go on with its answer.
            raise asyncio.CancelledError
        return answer

    async def _answer(
        self, method: str, path: str, body: object, kind: type[T], headers: dict[str, str]
    ) -> T:
        request = self.client.request(method, self.url + path).headers(headers)
        response, content = await sent(request if body is None else request.body_json(body))
        if response.status >= 300:
            raise _trouble(response.status, response.headers, content)
        return decoded(content, _Answer[kind]).data  # type: ignore[valid-type]


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
    return passing_trouble(status, headers, message) or Refused(message, code=told.code)
