"""Migrations: applied once, in order, by one process; a mismatch is rejected."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.scoreboard.repository.database import Database, open_database_pool
from tally.scoreboard.repository.metrics import StorageMetrics
from tally.scoreboard.repository.migrations import (
    Migration,
    SchemaMismatch,
    known_migrations,
    migrate,
)
from tests.scoreboard.repository.conftest import Addresses

FIRST = Migration(1, "first", "CREATE TABLE first (id INTEGER PRIMARY KEY);")
SECOND = Migration(2, "second", "CREATE TABLE second (id INTEGER); INSERT INTO first VALUES (1);")


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
