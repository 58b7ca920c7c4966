"""A scoreboard with very many players: real servers, rows written straight into the tables, and tokens that the server believes.

Two `tally serve scoreboard` share a PostgreSQL and a Redis, which run beside them, durable, as they
do for a user; a third has no Redis.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import msgspec
from pyreqwest.client import Client, ClientBuilder

from bench.programs import Program, start_program
from tally.embedded.postgres import open_postgres
from tally.embedded.valkey import open_valkey
from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.kit.keyring import Keyring
from tally.kit.metrics import Metrics
from tally.kit.token_issuer import TokenIssuer
from tally.scoreboard.model import CompletedAction, PlayerSession
from tally.scoreboard.repository.database import Database, PoolLimits, open_database_pool
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.redis_client import open_redis
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.repository.sessions import PlayerSessionRepository
from tally.scoreboard.service.action_tokens import ActionTokens, hash_token, truncate_to_second
from tally.scoreboard.service.sessions import AUDIENCE, ISSUER
from tally.settings import Secret

API = "/scoreboard/api/v1"
_ADMIN = "the-key-of-the-operators-of-the-bench"
_KEY = "a key that signs tokens in the bench and is long"
_PLENTY = "1000000"
_AT_ONCE = 100_000

_USERS = """
INSERT INTO users (id, username, email, password_hash)
SELECT gen_random_uuid(), 'player_' || n, 'player_' || n || '@example.com', 'none' FROM generate_series($1::int, $2::int) n
"""
_SCORES = """
INSERT INTO scores (user_id, total_score, score_first_reached_at)
SELECT id, (random() * 1000000)::bigint, now() - random() * interval '90 days' FROM users
WHERE NOT EXISTS (SELECT FROM scores WHERE user_id = users.id)
"""
_ACTIONS = """
INSERT INTO completed_actions (action_id, user_id, max_score, completed_at, expires_at)
SELECT action_id, user_id::uuid, 100, $3, $4 FROM unnest($1::text[], $2::text[]) AS made (action_id, user_id)
"""


@dataclass(frozen=True, slots=True)
class Player:
    """Somebody who is signed in."""

    user_id: str
    token: str


@dataclass(frozen=True, slots=True)
class Trade:
    """A request for points that has not been sent yet."""

    player: Player
    token_hash: str
    action_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class World:
    """The servers, what they stand on, and how to reach them."""

    programs: tuple[Program, ...]
    without_redis: Program
    client: Client
    database: Database
    scores: ScoreRepository
    board: LeaderboardCache
    chance: Random

    async def fill(self, players: int) -> None:
        """So many players with a score each."""
        for first in range(1, players + 1, _AT_ONCE):
            await self.database.value("bench", _USERS, first, min(first + _AT_ONCE - 1, players))
            await self.database.value("bench", _SCORES)
        for table in ("users", "scores"):
            await self.database.value("bench", f"ANALYZE {table}")

    async def rebuild(self) -> int:
        response = await self._ask(
            "POST", "/admin/leaderboard/rebuild", {"X-Admin-API-Key": _ADMIN}, None
        )
        players: int = msgspec.json.decode(response)["data"]["players"]
        return players

    async def sign_in(self, count: int) -> list[Player]:
        """So many of the players, signed in."""
        rows = await self.database.rows("bench", "SELECT id FROM users LIMIT $1", count)
        clock, sessions = SystemClock(), PlayerSessionRepository(self.database)
        issuer = TokenIssuer(Keyring([Secret(_KEY)]), clock, issuer=ISSUER, audience=AUDIENCE)
        players, now = [], clock.now()
        for row in rows:
            user_id, session_id = str(row["id"]), new_uuid()
            token = issuer.issue(user_id, seconds=3600, sid=session_id, jti=new_uuid())
            await sessions.create(
                PlayerSession(
                    session_id, user_id, hash_token(token), None, now, now + timedelta(days=1)
                )
            )
            players.append(Player(user_id, token))
        return players

    async def trades(self, players: list[Player], count: int, points: int = 0) -> list[Trade]:
        """So many requests for points, vouched for; each player in turn."""
        tokens, now = ActionTokens(Keyring([Secret(_KEY)])), SystemClock().now()
        expires = truncate_to_second(now) + timedelta(hours=1)
        made = []
        for number in range(count):
            player, action_id = players[number % len(players)], new_uuid()
            token = tokens.issue(CompletedAction(action_id, player.user_id, 10_000, now, expires))
            body = {"action_token": token, "score_delta": points or self.chance.randint(1, 100)}
            made.append(Trade(player, hash_token(token), action_id, msgspec.json.encode(body)))
        columns = [trade.action_id for trade in made], [trade.player.user_id for trade in made]
        await self.database.value("bench", _ACTIONS, *columns, now, expires)
        return made

    async def patch(self, trade: Trade, server: Program | None = None) -> bytes:
        """Points over HTTP."""
        return await self._ask(
            "PATCH",
            "/scores",
            {"Authorization": f"Bearer {trade.player.token}"},
            trade.body,
            server,
        )

    async def get(self, path: str) -> bytes:
        return await self._ask("GET", path, {}, None)

    async def _ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None,
        server: Program | None = None,
    ) -> bytes:
        request = self.client.request(
            method, (server or self.programs[0]).url + API + path
        ).headers(headers)
        if body is not None:
            request = request.header("Content-Type", "application/json").body_bytes(body)
        response = await request.build().send()
        content = bytes(await response.bytes())
        if response.status != 200:
            raise AssertionError(
                f"{method} {path} was answered with {response.status} {content[:300]!r}"
            )
        return content


@asynccontextmanager
async def scoreboard_world(directory: Path, servers: int = 2) -> AsyncIterator[World]:
    """So many servers on one PostgreSQL and one Redis, empty, and one more that has no Redis."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(open_postgres(directory, clock))
        redis_url = await stack.enter_async_context(open_valkey(directory, clock))

        async def serve(redis: str) -> Program:
            environment = _given(directory, dsn, redis)
            return await stack.enter_async_context(
                start_program("serve", "scoreboard", "--port", "0", environment=environment)
            )

        programs = [await serve(redis_url) for _ in range(servers)]
        without_redis = await serve("unix:///nowhere")
        figures = StorageMetrics(Metrics())
        limits = PoolLimits(max_connections=10, statement_seconds=600)
        database = await stack.enter_async_context(open_database_pool(dsn, clock, figures, limits))
        redis = await stack.enter_async_context(open_redis(redis_url, clock, figures, seconds=30))
        client = await stack.enter_async_context(
            ClientBuilder().max_connections(256).timeout(timedelta(minutes=5)).build()
        )
        scores, board = ScoreRepository(database, clock), LeaderboardCache(redis)
        yield World(tuple(programs), without_redis, client, database, scores, board, Random(4))


def _given(directory: Path, dsn: str, redis_url: str) -> dict[str, str]:
    limits = ("AUTH_LIMIT", "SCORE_LIMIT", "ME_LIMIT", "BOARD_LIMIT", "ACTION_LIMIT")
    return {
        "TALLY_DATA_DIR": str(directory),
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SCOREBOARD_DATABASE_URL": dsn,
        "TALLY_SCOREBOARD_REDIS_URL": redis_url,
        "TALLY_SCOREBOARD_ADMIN_KEY": _ADMIN,
        "TALLY_SCOREBOARD_ACTION_KEYS": _KEY,
        "TALLY_SCOREBOARD_SESSION_KEYS": _KEY,
        "TALLY_SCOREBOARD_STREAMS_PER_ADDRESS": "100000",
        **{f"TALLY_SCOREBOARD_{name}": _PLENTY for name in limits},
    }
