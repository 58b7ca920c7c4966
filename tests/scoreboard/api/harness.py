"""A running scoreboard with its HTTP client, and players who play: what the tests of the API are written in.

player = await arena.player()
answer = await arena.score(player, 50)
expect_refused(await arena.send("GET", "/scores/me"), 401, "UNAUTHORIZED")
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgspec
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.kit.clock import Clock, ManualClock, SystemClock
from tally.kit.ids import new_uuid
from tally.kit.server import serving
from tally.scoreboard.model import NewUser, Score
from tally.scoreboard.service.sessions import Client as From
from tally.scoreboard.wiring import Scoreboard
from tally.settings import Secret, Settings

Json: TypeAlias = dict[str, Any]

API = "/scoreboard/api/v1"
INTERNAL = "the-key-of-the-game-servers-0123456789"
ADMIN = "the-key-of-the-operators-0123456789"
ACTION_KEY = Secret("a key that signs action tokens for tests")
SESSION_KEY = Secret("a key that signs access tokens for tests")
PLENTY = 1_000_000
LONG_ENOUGH = 30.0
NO_LIMITS: Json = {
    f"scoreboard_{what}": PLENTY
    for what in ("auth_limit", "score_limit", "me_limit", "board_limit", "action_limit")
} | {"scoreboard_streams_per_user": 10_000, "scoreboard_streams_per_address": 10_000}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def data(self) -> Any:
        """What is in the envelope, which must be that of a success."""
        assert self.status in {200, 201}, self
        told = self.json
        assert set(told) == {"success", "data"}, told
        assert told["success"] is True
        return told["data"]


@dataclass(frozen=True, slots=True)
class Player:
    """Somebody with an account, signed in."""

    user_id: str
    username: str
    token: str
    refresh_token: str


@dataclass(frozen=True, slots=True)
class Arena:
    """A server and how to reach it; `clock` is the server's."""

    url: str
    parts: Application
    clock: Clock
    client: Client
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def scoreboard(self) -> Scoreboard:
        backend = self.parts.backends["scoreboard"]
        assert isinstance(backend, Scoreboard)
        return backend

    def leap(self, seconds: float) -> None:
        """Be so much later, without waking whoever sleeps on the way; for servers with a clock that stands still."""
        assert isinstance(self.clock, ManualClock)
        self.clock._elapsed += seconds

    async def send(
        self,
        method: str,
        path: str,
        content: object = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer to a request at a path of the API."""
        told = dict(headers or {}) | ({} if token is None else {"Authorization": f"Bearer {token}"})
        request = self.client.request(method, f"{self.url}{API}{path}")
        if content is not None:
            told["Content-Type"] = "application/json"
            request = request.body_bytes(msgspec.json.encode(content))
        response = await request.headers(told).build().send()
        answered = Answer(
            response.status, dict(response.headers.items()), bytes(await response.bytes())
        )
        assert answered.headers["x-request-id"], "every answer has the id of its request"
        return answered

    async def player(self, username: str | None = None) -> Player:
        """A new player, without the time that a password takes."""
        name, handlers, now = (
            username or f"player_{secrets.token_hex(6)}",
            self.scoreboard.handlers,
            self.clock.now(),
        )
        account = NewUser(new_uuid(), name, f"{name}@example.com", "no password")
        user = await handlers.accounts.accounts.create(account, now)
        await handlers.scores.board.put(Score(user.user_id, name, 0, now))
        grant = await handlers.sessions.open(user, From("127.0.0.1", "tests"))
        return Player(user.user_id, name, grant.access_token, grant.refresh_token)

    async def vouch(self, player: Player, max_score: int = 10_000, **more: Any) -> str:
        """An action token for the player."""
        body = {"action_id": new_uuid(), "user_id": player.user_id, "max_score": max_score} | more
        answer = await self.send(
            "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
        )
        assert answer.status == 201, answer
        return str(answer.data["action_token"])

    async def trade(self, player: Player, action_token: str, score_delta: int = 10) -> Answer:
        """What the player gets for an action token."""
        return await self.send(
            "PATCH",
            "/scores",
            {"action_token": action_token, "score_delta": score_delta},
            player.token,
        )

    async def score(self, player: Player, score_delta: int) -> Json:
        """Points for the player, by a new action."""
        answer = await self.trade(player, await self.vouch(player), score_delta)
        found: Json = answer.data
        return found

    async def admin(self, method: str, path: str) -> Answer:
        return await self.send(
            method, f"/admin/leaderboard{path}", headers={"X-Admin-API-Key": ADMIN}
        )

    async def board(self, query: str = "", token: str | None = None) -> Json:
        found: Json = (await self.send("GET", f"/leaderboard{query}", token=token)).data
        return found


async def until(holds: Callable[[], Awaitable[bool]]) -> float:
    """The seconds until it holds, or a failure when that takes too long."""
    started = time.monotonic()
    while not await holds():
        assert time.monotonic() - started < LONG_ENOUGH, "it does not come to hold"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def settings_of(addresses: tuple[str, str], data_dir: Any, **changes: Any) -> Settings:
    """Settings of a server on these addresses, with known keys and no limits."""
    dsn, redis = addresses
    usual: Json = {
        "backends": ("scoreboard",),
        "data_dir": data_dir,
        "port": 0,
        "scoreboard_database_url": Secret(dsn),
        "scoreboard_redis_url": Secret(redis),
        "scoreboard_action_keys": (ACTION_KEY,),
        "scoreboard_session_keys": (SESSION_KEY,),
        "scoreboard_internal_key": Secret(INTERNAL),
        "scoreboard_admin_key": Secret(ADMIN),
        # A busy machine is no reason to give up: what is tested here is what happens when servers
        # are gone.
        "scoreboard_database_seconds": 60,
        "scoreboard_redis_milliseconds": 5_000,
    }
    return Settings(**(usual | NO_LIMITS | changes))


@asynccontextmanager
async def running(
    settings: Settings, clock: Clock | None = None, *, jobs: bool = False
) -> AsyncIterator[Arena]:
    """The program on a free port, with a board that is whole, and no jobs unless they are asked for."""
    clock = clock or SystemClock()
    async with (
        open_application(settings, clock) as parts,
        serving(
            build_app(parts if jobs else replace(parts, jobs=())), on_stopping=parts.drain
        ) as url,
        ClientBuilder().no_proxy().max_connections(256).build() as client,
    ):
        arena = Arena(url, parts, clock, client)
        await arena.scoreboard.catch_up.run()
        yield arena


def expect_refused(answer: Answer, status: int, code: str, **details: Any) -> None:
    """The one shape that every error has."""
    assert answer.status == status, answer
    told = answer.json
    assert set(told) == {"success", "error"}, told
    assert told["success"] is False
    assert set(told["error"]) == {"code", "message", "details"}, told
    assert told["error"]["code"] == code, told
    assert told["error"]["message"]
    assert told["error"]["details"] | details == told["error"]["details"], told
