"""Migrations: applied once, in order, by one process; a mismatch is rejected."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.model.scores import ScoreChange
from tally.scoreboard.repository.database import Database, open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import (
    Migration,
    SchemaMismatch,
    known_migrations,
    migrate,
)
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tally.scoreboard.repository.scores import ScoreRepository
from tests.scoreboard.repository.conftest import Addresses

FIRST = Migration(1, "first", "CREATE TABLE first (id INTEGER PRIMARY KEY);")
SECOND = Migration(2, "second", "CREATE TABLE second (id INTEGER); INSERT INTO first VALUES (1);")
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DEPARTED = "dddddddd-dddd-dddd-dddd-dddddddddddd"
# Players with equal scores, one of them banned, an action that is not scored yet, and a band of
# ranks that begins at a player who was deleted.
VERSION_5 = """
INSERT INTO users (username, email, password_hash)
    SELECT 'player_' || n, n || '@example.com', 'hash' FROM generate_series(1, 2500) n;
INSERT INTO scores (user_id, total_score, score_first_reached_at)
    SELECT id, length(md5(username || 'x')) + ascii(md5(username)), '2026-03-01T00:00:00Z'
    FROM users WHERE username <> 'player_2500';
INSERT INTO banned_scores (user_id, total_score, score_first_reached_at, revision, banned_at)
    SELECT id, 70, '2026-03-01T00:00:00Z', 3, now() FROM users WHERE username = 'player_2500';
INSERT INTO score_events
    (user_id, action_token_hash, action_id, score_delta, score_before, score_after)
    SELECT id, 'used', 'scored', 1, 0, 1 FROM users WHERE username = 'player_1';
INSERT INTO completed_actions
    (action_id, user_id, max_score, metadata, completed_at, expires_at)
    SELECT 'pending', id, 10, '{"level": 3}', '2026-03-02', '2026-03-03' FROM users
    WHERE username = 'player_1';
INSERT INTO rank_bands VALUES
    ('global', 0, 100, '2026-03-01', 'dddddddd-dddd-dddd-dddd-dddddddddddd', 7);
"""
RANKS = """
SELECT user_id::text, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC
) AS rank FROM scores
"""


@pytest.fixture
async def empty_database(addresses: Addresses) -> AsyncIterator[Database]:
    """A database without tables."""
    name = f"empty_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(addresses.dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    async with open_database_pool(
        addresses.dsn.replace("/postgres?", f"/{name}?"), SystemClock(), StorageMetrics(Metrics())
    ) as database:
        yield database
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


async def table_names(database: Database) -> set[str]:
    rows = await database.rows(
        "tables", "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    return {row["tablename"] for row in rows}


async def test_migrations_are_applied_once(empty_database: Database) -> None:
    """A second run has nothing to do."""
    assert await migrate(empty_database) == len(known_migrations())
    tables = await table_names(empty_database)
    assert {"users", "scores", "sessions", "score_events", "consumed_tokens"} <= tables
    assert await migrate(empty_database) == 0
    assert await table_names(empty_database) == tables


async def test_the_schema_has_the_specified_indexes(empty_database: Database) -> None:
    """No index is a prefix of another."""
    await migrate(empty_database)
    rows = await empty_database.rows(
        "indexes",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    )
    names = {row["indexname"] for row in rows}
    assert {
        "idx_scores_leaderboard",
        "idx_sessions_user_id",
        "idx_sessions_token_hash",
        "idx_sessions_expires_at",
        "idx_score_events_user_created",
        "idx_score_events_action_token",
        "idx_score_events_created",
        "idx_consumed_tokens_expires",
    } <= names
    plain = [
        (row["tablename"], row["indexdef"].partition(" USING btree ")[2].strip("()"))
        for row in rows
        if "WHERE" not in row["indexdef"]
    ]
    repeated = [
        (table, one)
        for table, one in plain
        for other, two in plain
        if table == other and one != two and two.startswith(one + ",")
    ]
    assert repeated == []
    nullable = await empty_database.value(
        "nullable",
        "SELECT is_nullable FROM information_schema.columns"
        " WHERE table_name = 'score_events' AND column_name = 'user_id'",
    )
    assert nullable == "YES"


async def test_boards_are_added_to_a_database_with_data(empty_database: Database) -> None:
    """Scores and ranks stay, and an action of the version before still counts."""
    await migrate(empty_database, known_migrations()[:5])
    async with empty_database.use("test") as connection:
        await connection.execute(VERSION_5)
    tables = {"users", "scores", "banned_scores", "completed_actions", "score_events"}
    before = {table: await count(empty_database, table) for table in tables}
    assert await migrate(empty_database) == len(known_migrations()) - 5
    assert {table: await count(empty_database, table) for table in tables} == before
    bands = await empty_database.rows("test", "SELECT user_id::text, players FROM rank_bands")
    assert sorted(band["players"] for band in bands) == [0, 499, 1000, 1000]
    assert DEPARTED not in {band["user_id"] for band in bands}

    scores = ScoreRepository(empty_database, SystemClock())
    player = await empty_database.value(
        "test", "SELECT id::text FROM users WHERE username = $1", "player_1"
    )
    score = await scores.find(player)
    assert score is not None
    change = ScoreChange(
        "hash", "pending", player, 10, NOON + timedelta(1), at=NOON, client_info={}
    )
    applied = await scores.apply(change)
    assert (applied.score_before, applied.score_after) == (score.score, score.score + 10)
    assert applied.boards == ()
    for _ in range(2):
        for row in (await empty_database.rows("test", RANKS))[::250]:
            found = await scores.standing(row["user_id"])
            assert found is not None
            assert (found[0].rank, found[1]) == (row["rank"], 2499)
        await RankBandRepository(empty_database).maintain()


async def count(database: Database, table: str) -> int:
    return int(await database.value("test", f"SELECT count(*) FROM {table}"))  # noqa: S608


async def test_concurrent_migrations_are_applied_once(empty_database: Database) -> None:
    applied = await asyncio.gather(*(migrate(empty_database) for _ in range(5)))
    assert sorted(applied) == [0, 0, 0, 0, len(known_migrations())]


async def test_pending_migrations_are_applied(empty_database: Database) -> None:
    assert await migrate(empty_database, (FIRST,)) == 1
    assert await migrate(empty_database, (FIRST, SECOND)) == 1
    assert {"first", "second"} <= await table_names(empty_database)


async def test_a_newer_database_is_rejected(empty_database: Database) -> None:
    """The message says what it has, what this version knows, and what to do."""
    await migrate(empty_database, (FIRST, SECOND))
    with pytest.raises(
        SchemaMismatch,
        match=r"newer than this version of Tally: it has migration 2 \(second\).*Run a newer Tally",
    ):
        await migrate(empty_database, (FIRST,))


async def test_a_migration_changed_after_it_was_applied_is_rejected(
    empty_database: Database,
) -> None:
    await migrate(empty_database, (FIRST,))
    with pytest.raises(SchemaMismatch, match=r"Migration 1 \(first\) was changed"):
        await migrate(empty_database, (replace(FIRST, sql=FIRST.sql + " -- better"),))


async def test_a_failed_migration_is_rolled_back(empty_database: Database) -> None:
    """Including the migrations before it in the same run."""
    broken = Migration(2, "broken", "CREATE TABLE half (id INTEGER); SELECT * FROM nowhere;")
    with pytest.raises(SchemaMismatch, match=r"Migration 2 \(broken\) failed: .*nowhere"):
        await migrate(empty_database, (FIRST, broken))
    assert await table_names(empty_database) == set()
    assert await migrate(empty_database, (FIRST, SECOND)) == 2


def test_migrations_are_numbered_without_gaps_and_explain_omitted_indexes() -> None:
    known = known_migrations()
    assert [migration.version for migration in known] == list(range(1, len(known) + 1))
    assert all(re.fullmatch(r"[a-z_]+", migration.name) for migration in known)
    for left_out in (
        "users(username)",
        "users(email)",
        "scores(total_score DESC)",
        "scores(user_id)",
    ):
        assert left_out in known[0].sql
