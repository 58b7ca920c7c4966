"""Migrations: applied once, in order, by one of many, and never to a database that they do not fit."""

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
async def empty(addresses: Addresses) -> AsyncIterator[Database]:
    """A database with nothing in it."""
    name = f"empty_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(addresses.dsn)
    await connection.execute(f"CREATE DATABASE {name}")
    async with open_database_pool(
        addresses.dsn.replace("/postgres?", f"/{name}?"), SystemClock(), StorageMetrics(Metrics())
    ) as database:
        yield database
    await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await connection.close()


async def tables_of(database: Database) -> set[str]:
    rows = await database.rows(
        "tables", "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    )
    return {row["tablename"] for row in rows}


async def test_the_tables_are_made_once(empty: Database) -> None:
    """All five of the design, and ours; a second time there is nothing to do."""
    assert await migrate(empty) == len(known_migrations())
    made = await tables_of(empty)
    assert {"users", "scores", "sessions", "score_events", "consumed_tokens"} <= made
    assert await migrate(empty) == 0
    assert await tables_of(empty) == made


async def test_the_columns_and_indexes_are_those_of_the_design(empty: Database) -> None:
    """Indexes that would repeat another are left out, and no index is the beginning of another."""
    await migrate(empty)
    rows = await empty.rows(
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
    nullable = await empty.value(
        "nullable",
        "SELECT is_nullable FROM information_schema.columns WHERE table_name = 'score_events' AND column_name = 'user_id'",
    )
    assert nullable == "YES"


async def test_many_that_start_at_once_migrate_once(empty: Database) -> None:
    applied = await asyncio.gather(*(migrate(empty) for _ in range(5)))
    assert sorted(applied) == [0, 0, 0, 0, len(known_migrations())]


async def test_what_is_missing_is_added_to_what_is_there(empty: Database) -> None:
    assert await migrate(empty, (FIRST,)) == 1
    assert await migrate(empty, (FIRST, SECOND)) == 1
    assert {"first", "second"} <= await tables_of(empty)


async def test_a_newer_database_is_refused(empty: Database) -> None:
    """By a sentence that says what it has, what we know, and what to do."""
    await migrate(empty, (FIRST, SECOND))
    with pytest.raises(
        SchemaMismatch,
        match=r"newer than this version of Tally: it has migration 2 \(second\).*Run a newer Tally",
    ):
        await migrate(empty, (FIRST,))


async def test_a_migration_that_was_changed_afterwards_is_refused(empty: Database) -> None:
    await migrate(empty, (FIRST,))
    with pytest.raises(SchemaMismatch, match=r"Migration 1 \(first\) was changed"):
        await migrate(empty, (replace(FIRST, sql=FIRST.sql + " -- better"),))


async def test_a_migration_that_does_not_apply_leaves_nothing_behind(empty: Database) -> None:
    """Not even those before it in the same run."""
    broken = Migration(2, "broken", "CREATE TABLE half (id INTEGER); SELECT * FROM nowhere;")
    with pytest.raises(SchemaMismatch, match=r"Migration 2 \(broken\) failed: .*nowhere"):
        await migrate(empty, (FIRST, broken))
    assert await tables_of(empty) == set()
    assert await migrate(empty, (FIRST, SECOND)) == 2


def test_the_files_are_numbered_from_one_without_a_gap_and_say_why_an_index_is_missing() -> None:
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
