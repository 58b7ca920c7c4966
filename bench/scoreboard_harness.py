"""Starts scoreboard servers with many players, written directly to the tables.

Two `tally serve scoreboard` processes share a durable PostgreSQL and a Redis; a third has no Redis.
"""

import uuid
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
from tally.scoreboard.model.accounts import PlayerSession, RefreshState
from tally.scoreboard.model.scores import CompletedAction
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
_OPERATOR = "the-token-of-the-operators-of-the-bench"
_SIGNING_KEY = "a key that signs tokens in the bench and is long"
_HIGH_LIMIT = "1000000"
_BATCH_SIZE = 100_000

_INSERT_USERS = """
INSERT INTO users (id, username, email, password_hash)
SELECT gen_random_uuid(), 'player_' || n, 'player_' || n || '@example.com', 'none'
FROM generate_series($1::int, $2::int) n
"""
_INSERT_SCORES = """
INSERT INTO scores (user_id, total_score, score_first_reached_at)
SELECT id, (random() * 1000000)::bigint, now() - random() * interval '90 days' FROM users
WHERE NOT EXISTS (SELECT FROM scores WHERE user_id = users.id)
"""
_INSERT_ACTIONS = """
INSERT INTO completed_actions (action_id, user_id, max_score, completed_at, expires_at)
SELECT action_id, user_id::uuid, 100, $3, $4
FROM unnest($1::text[], $2::text[]) AS actions (action_id, user_id)
"""


@dataclass(frozen=True, slots=True)
class Player:
    """A player with a session."""

    user_id: str
    token: str


@dataclass(frozen=True, slots=True)
class ScoreUpdateRequest:
    """A prepared `PATCH /scores` request."""

    player: Player
    token_hash: str
    action_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ScoreboardHarness:
    """The servers, direct access to their storage, and an HTTP client."""

    programs: tuple[Program, ...]
    without_redis: Program
    client: Client
    database: Database
    scores: ScoreRepository
    cache: LeaderboardCache
    random: Random

    async def create_players(self, count: int) -> None:
        """Insert players with random scores."""
        for first in range(1, count + 1, _BATCH_SIZE):
            last = min(first + _BATCH_SIZE - 1, count)
            await self.database.value("bench", _INSERT_USERS, first, last)
            await self.database.value("bench", _INSERT_SCORES)
        for table in ("users", "scores"):
            await self.database.value("bench", f"ANALYZE {table}")

    async def rebuild(self) -> int:
        operator = {"Authorization": f"Bearer {_OPERATOR}"}
        response = await self._send("POST", "/admin/leaderboard/rebuild", operator, None)
        players: int = msgspec.json.decode(response)["players"]
        return players

    async def log_in(self, count: int) -> list[Player]:
        """Create sessions for `count` players."""
        rows = await self.database.rows("bench", "SELECT id FROM users LIMIT $1", count)
        clock, sessions = SystemClock(), PlayerSessionRepository(self.database)
        keyring = Keyring([Secret(_SIGNING_KEY)])
        issuer = TokenIssuer(keyring, clock, issuer=ISSUER, audience=AUDIENCE)
        players, now = [], clock.now()
        for row in rows:
            user_id, session_id = str(row["id"]), new_uuid()
            token = issuer.issue(
                user_id, issued_at=clock.seconds(), seconds=3600, sid=session_id, jti=new_uuid()
            )
            await sessions.create(
                PlayerSession(
                    session_id,
                    user_id,
                    hash_token(token),
                    RefreshState(None, uuid.uuid4().bytes, 0, now),
                    now,
                    now + timedelta(days=1),
                )
            )
            players.append(Player(user_id, token))
        return players

    async def prepare_updates(
        self, players: list[Player], count: int, points: int = 0
    ) -> list[ScoreUpdateRequest]:
        """Create completed actions and their requests, for the players in turn."""
        tokens, now = ActionTokens(Keyring([Secret(_SIGNING_KEY)])), SystemClock().now()
        expires_at = truncate_to_second(now) + timedelta(hours=1)
        requests = []
        for number in range(count):
            player, action_id = players[number % len(players)], new_uuid()
            action = CompletedAction(action_id, player.user_id, 10_000, now, expires_at)
            token = tokens.issue(action)
            body = {"action_token": token, "score_delta": points or self.random.randint(1, 100)}
            requests.append(
                ScoreUpdateRequest(player, hash_token(token), action_id, msgspec.json.encode(body))
            )
        action_ids = [request.action_id for request in requests]
        user_ids = [request.player.user_id for request in requests]
        await self.database.value("bench", _INSERT_ACTIONS, action_ids, user_ids, now, expires_at)
        return requests

    async def update_score(
        self, request: ScoreUpdateRequest, server: Program | None = None
    ) -> bytes:
        headers = {"Authorization": f"Bearer {request.player.token}"}
        return await self._send("PATCH", "/scores", headers, request.body, server)

    async def get(self, path: str) -> bytes:
        return await self._send("GET", path, {}, None)

    async def _send(
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
            raise AssertionError(f"{method} {path} returned {response.status} {content[:300]!r}")
        return content


@asynccontextmanager
async def run_scoreboard(directory: Path, servers: int = 2) -> AsyncIterator[ScoreboardHarness]:
    """Run servers on one empty PostgreSQL and one Redis, and one server without Redis."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        dsn = await stack.enter_async_context(open_postgres(directory, clock))
        redis_url = await stack.enter_async_context(open_valkey(directory, clock))

        async def serve(redis: str) -> Program:
            environment = _environment(directory, dsn, redis)
            return await stack.enter_async_context(
                start_program("serve", "scoreboard", "--port", "0", environment=environment)
            )

        programs = [await serve(redis_url) for _ in range(servers)]
        without_redis = await serve("unix:///nowhere")
        metrics = StorageMetrics(Metrics())
        limits = PoolLimits(max_connections=10, statement_seconds=600)
        database = await stack.enter_async_context(open_database_pool(dsn, clock, metrics, limits))
        redis = await stack.enter_async_context(open_redis(redis_url, clock, metrics, seconds=30))
        client = await stack.enter_async_context(
            ClientBuilder().max_connections(256).timeout(timedelta(minutes=5)).build()
        )
        yield ScoreboardHarness(
            tuple(programs),
            without_redis,
            client,
            database,
            ScoreRepository(database, clock),
            LeaderboardCache(redis),
            Random(4),
        )


def _environment(directory: Path, dsn: str, redis_url: str) -> dict[str, str]:
    limits = ("AUTH_LIMIT", "SCORE_LIMIT", "ME_LIMIT", "BOARD_LIMIT", "ACTION_LIMIT")
    return {
        "TALLY_DATA_DIR": str(directory),
        "TALLY_LOG_FORMAT": "json",
        "TALLY_SCOREBOARD_DATABASE_URL": dsn,
        "TALLY_SCOREBOARD_REDIS_URL": redis_url,
        "TALLY_OPERATOR_TOKEN": _OPERATOR,
        "TALLY_SCOREBOARD_ACTION_KEYS": _SIGNING_KEY,
        "TALLY_SCOREBOARD_SESSION_KEYS": _SIGNING_KEY,
        "TALLY_STREAMS_PER_ADDRESS": "100000",
        **{f"TALLY_SCOREBOARD_{name}": _HIGH_LIMIT for name in limits},
    }
