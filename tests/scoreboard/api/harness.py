"""Starts a scoreboard server with an HTTP client, and creates players on it.

player = await harness.player()
response = await harness.score(player, 50)
expect_error(await harness.send("GET", "/scores/me"), 401, "missing_token")
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec
from argon2 import PasswordHasher
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.kit.clock import Clock, ManualClock, SystemClock
from tally.kit.ids import new_uuid
from tally.kit.server import serving
from tally.scoreboard.model.accounts import ClientInfo, NewUser
from tally.scoreboard.model.scores import Score
from tally.scoreboard.wiring import Scoreboard
from tally.settings import Secret, Settings
from tests.api_response import ApiResponse

Json: TypeAlias = dict[str, Any]

API = "/scoreboard/api/v1"
INTERNAL = "the-key-of-the-game-servers-0123456789"
ADMIN = "the-key-of-the-operators-0123456789"
ACTION_KEY = Secret("a key that signs action tokens for tests")
SESSION_KEY = Secret("a key that signs access tokens for tests")
PLAYER_PASSWORD = "the password of every player"
# With little work, because tests create many players.
PLAYER_HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PLAYER_PASSWORD)
HIGH_LIMIT = 1_000_000
TIMEOUT_SECONDS = 30.0
NO_LIMITS: Json = {
    f"scoreboard_{name}": HIGH_LIMIT
    for name in ("auth_limit", "score_limit", "me_limit", "board_limit", "action_limit")
} | {"streams_per_person": 10_000, "streams_per_address": 10_000}


@dataclass(frozen=True, slots=True)
class Player:
    """A player with an account and a session."""

    user_id: str
    username: str
    token: str
    refresh_token: str


@dataclass(frozen=True, slots=True)
class ScoreboardHarness:
    """A running server and a client for it; `clock` is the server's."""

    url: str
    application: Application
    clock: Clock
    client: Client

    @property
    def scoreboard(self) -> Scoreboard:
        backend = self.application.backends["scoreboard"]
        assert isinstance(backend, Scoreboard)
        return backend

    def skip_time(self, seconds: float) -> None:
        """Move a server's `ManualClock` forward without waking its sleepers."""
        assert isinstance(self.clock, ManualClock)
        self.clock._elapsed += seconds

    async def send(
        self,
        method: str,
        path: str,
        content: object = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ApiResponse:
        """Send a request to a path of the API."""
        request_headers = dict(headers or {})
        if token is not None:
            request_headers["Authorization"] = f"Bearer {token}"
        request = self.client.request(method, f"{self.url}{API}{path}")
        if content is not None:
            request_headers["Content-Type"] = "application/json"
            request = request.body_bytes(msgspec.json.encode(content))
        return await ApiResponse.read(await request.headers(request_headers).build().send())

    async def player(self, username: str | None = None) -> Player:
        """Create a player without the cost of hashing a password."""
        name, now = username or f"player_{secrets.token_hex(6)}", self.clock.now()
        services = self.scoreboard.services
        account = NewUser(new_uuid(), name, f"{name}@example.com", PLAYER_HASH)
        user = await services.accounts.accounts.create(account, now)
        await services.leaderboard.cache.put(Score(user.user_id, name, 0, now))
        tokens = await services.sessions.open(user, ClientInfo("127.0.0.1", "tests"))
        return Player(user.user_id, name, tokens.access_token, tokens.refresh_token)

    async def complete_action(self, player: Player, max_score: int = 10_000, **more: Any) -> str:
        """Report a completed action and return the player's action token."""
        body = {"action_id": new_uuid(), "user_id": player.user_id, "max_score": max_score} | more
        response = await self.send(
            "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
        )
        assert response.status == 201, response
        return str(response.result["action_token"])

    async def update_score(
        self, player: Player, action_token: str, score_delta: int = 10
    ) -> ApiResponse:
        """Exchange an action token for points."""
        return await self.send(
            "PATCH",
            "/scores",
            {"action_token": action_token, "score_delta": score_delta},
            player.token,
        )

    async def score(self, player: Player, score_delta: int) -> Json:
        """Add points to the player's score with a new action."""
        token = await self.complete_action(player)
        data: Json = (await self.update_score(player, token, score_delta)).result
        return data

    async def admin(self, method: str, path: str) -> ApiResponse:
        return await self.send(
            method, f"/admin/leaderboard{path}", headers={"Authorization": f"Bearer {ADMIN}"}
        )

    async def leaderboard(self, query: str = "", token: str | None = None) -> Json:
        data: Json = (await self.send("GET", f"/leaderboard{query}", token=token)).result
        return data


async def wait_until(condition: Callable[[], Awaitable[bool]]) -> float:
    """Wait until the condition is true and return the seconds it took."""
    started = time.monotonic()
    while not await condition():
        assert time.monotonic() - started < TIMEOUT_SECONDS, "the condition stayed false"
        await asyncio.sleep(0.02)
    return time.monotonic() - started


def server_settings(addresses: tuple[str, str], data_dir: Any, **changes: Any) -> Settings:
    """Settings for a server on these PostgreSQL and Redis, with known keys and no limits."""
    dsn, redis = addresses
    defaults: Json = {
        "backends": ("scoreboard",),
        "data_dir": data_dir,
        "port": 0,
        "scoreboard_database_url": Secret(dsn),
        "scoreboard_redis_url": Secret(redis),
        "scoreboard_action_keys": (ACTION_KEY,),
        "scoreboard_session_keys": (SESSION_KEY,),
        "scoreboard_internal_key": Secret(INTERNAL),
        "operator_token": Secret(ADMIN),
        # Generous, so that only servers that are down time out, not a busy machine.
        "scoreboard_database_seconds": 60,
        "scoreboard_redis_milliseconds": 5_000,
    }
    return Settings(**(defaults | NO_LIMITS | changes))


@asynccontextmanager
async def run_scoreboard(
    settings: Settings, clock: Clock | None = None, *, jobs: bool = False
) -> AsyncIterator[ScoreboardHarness]:
    """Run the server on a free port with a complete leaderboard, and jobs only if requested."""
    clock = clock or SystemClock()
    async with (
        open_application(settings, clock) as application,
        serving(
            build_app(application if jobs else replace(application, jobs=())),
            on_stopping=application.drain,
        ) as url,
        ClientBuilder().no_proxy().max_connections(256).build() as client,
    ):
        harness = ScoreboardHarness(url, application, clock, client)
        await harness.scoreboard.services.cache_sync.catch_up()
        yield harness
