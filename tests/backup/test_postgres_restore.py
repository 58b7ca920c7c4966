"""PostgreSQL in backups: rows come back exactly, and SQL in an archive has no rights."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from tally.backup.create import create_backup
from tally.backup.dump import import_database
from tally.backup.errors import BackupFailed
from tally.backup.restore import restore_backup
from tally.embedded.postgres import find_postgres_binaries, open_postgres
from tally.scoreboard.repository.migrations import RECORDS_TABLE, known_migrations, known_tables
from tests.backup.forgery import ForgedMember, forge
from tests.backup.test_backup import CLOCK, key_of
from tests.backup.writers import create_schema

FILL = """
INSERT INTO users (username, email, password_hash) SELECT
    'player ' || n, n || '@example.com', E'tab\\t, line\\n, \\\\. and \\\\N'
    FROM generate_series(1, 50) n;
INSERT INTO scores (user_id, total_score) SELECT id, 7 FROM users;
INSERT INTO sessions (user_id, token_hash, ip_address, expires_at)
    SELECT id, md5(username), '2001:db8::1', now() FROM users;
INSERT INTO score_events
    (user_id, action_token_hash, action_id, score_delta, score_before, score_after, metadata)
    SELECT id, md5(username), username, 1, 6, 7, '{"text": "\\u00e9 \\\\ \\n"}' FROM users;
"""
# The tables of migration 6.
FILL_BOARDS = """
INSERT INTO boards (id, name, is_ascending, operator, schedule, time_zone, created_at, season,
    season_started_at, season_ends_at)
    VALUES ('laps', E'L\u00e4ps\t\\N', true, 'best', '0 0 * * MON', 'Europe/Berlin', now(), 2,
        now(), now() + interval '1 week');
INSERT INTO seasons VALUES ('laps', 1, now() - interval '1 week', now(), 50);
INSERT INTO board_scores (user_id, board, season, total_score, score_first_reached_at, is_hidden)
    SELECT id, 'laps', season, -season, now(), season = 2 FROM users, generate_series(1, 2) season;
INSERT INTO completed_actions (action_id, user_id, max_score, completed_at, expires_at, boards)
    SELECT username, id, 1, now(), now(), '{laps,"global"}' FROM users;
UPDATE score_events SET boards = '{"laps": {"season": 1, "before": null, "after": 1}}';
INSERT INTO password_reset_requests (email, requested_at, due_at)
    SELECT email, now(), now() FROM users;
INSERT INTO password_reset_tokens SELECT md5(username), id, now() FROM users;
"""


async def execute(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def contents(dsn: str) -> dict[str, list[str]]:
    """Return the rows of every table as text."""
    connection = await asyncpg.connect(dsn)
    try:
        return {
            table: [
                row["text"]
                for row in await connection.fetch(
                    f"SELECT t::text AS text FROM {table} t ORDER BY 1"  # noqa: S608  (known names)
                )
            ]
            for table in known_tables()
        }
    finally:
        await connection.close()


async def dump_with(directory: Path, sql: str, versions: int | None = None) -> bytes:
    """Return a dump, as format 1 contains it, of a database with the schema and more SQL."""
    async with open_postgres(directory, CLOCK, durable=False) as dsn:
        await create_schema(dsn, versions)
        await execute(dsn, sql)
        program = await asyncio.create_subprocess_exec(
            find_postgres_binaries() / "pg_dump",
            "--format=custom",
            f"--dbname={dsn}",
            stdout=subprocess.PIPE,
        )
        dump, _ = await program.communicate()
        assert program.returncode == 0
    return dump


async def load_as_superuser(directory: Path, dump: bytes) -> None:
    """Load a dump like earlier versions did; the outcome does not matter."""
    async with open_postgres(directory, CLOCK, durable=False) as dsn:
        program = await asyncio.create_subprocess_exec(
            find_postgres_binaries() / "pg_restore",
            f"--dbname={dsn}",
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        await program.communicate(dump)


async def test_known_tables_are_the_tables_of_the_migrations(tmp_path: Path) -> None:
    async with open_postgres(tmp_path, CLOCK, durable=False) as dsn:
        await create_schema(dsn)
        connection = await asyncpg.connect(dsn)
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        await connection.close()
    assert {row["tablename"] for row in rows} == {RECORDS_TABLE, *known_tables()}


async def test_every_row_returns_and_counters_stay_right(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with open_postgres(data, CLOCK, durable=False) as dsn:
        await create_schema(dsn)
        await execute(dsn, FILL + FILL_BOARDS)
        before = await contents(dsn)
        created = await create_backup(data, tmp_path / "backup.tar", CLOCK)
    await restore_backup(created.path, tmp_path / "other", CLOCK, key_of(data))
    async with open_postgres(tmp_path / "other", CLOCK, durable=False) as dsn:
        assert await contents(dsn) == before
        # Of the global leaderboard, and of a season whose scores are not hidden.
        assert len(before["rank_changes"]) == 50 + 50
        await execute(dsn, "DELETE FROM users WHERE username = 'player 7'")
        after = await contents(dsn)
        assert len(after["rank_changes"]) == 101
        assert len(after["password_reset_tokens"]) == 49
        await execute(dsn, "UPDATE board_scores SET is_hidden = false WHERE season = 2")
        assert len((await contents(dsn))["rank_changes"]) == 151


async def test_a_backup_fails_rather_than_omit_a_table(tmp_path: Path) -> None:
    async with open_postgres(tmp_path / "data", CLOCK, durable=False) as dsn:
        await create_schema(dsn)
        await execute(dsn, "CREATE TABLE reports (n integer)")
        with pytest.raises(BackupFailed, match=r"are not those of migration .*: reports"):
            await create_backup(tmp_path / "data", tmp_path / "backup.tar", CLOCK)
    assert not (tmp_path / "backup.tar").exists()


async def test_an_unsigned_backup_with_a_dump_of_an_older_schema_is_restored(
    tmp_path: Path,
) -> None:
    """The tables get the schema of the dump; the next start migrates them."""
    dump = await dump_with(tmp_path / "original", FILL, versions=2)
    members = [ForgedMember(name="postgres.dump", content=dump)]
    source = forge(tmp_path / "backup.tar", members, version=1)
    await restore_backup(source, tmp_path / "data", CLOCK, trust=True)
    async with open_postgres(tmp_path / "data", CLOCK, durable=False) as dsn:
        await create_schema(dsn)
        assert len((await contents(dsn))["users"]) == 50
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval(f"SELECT count(*) FROM {RECORDS_TABLE}") == len(  # noqa: S608
            known_migrations()
        )
        names = (
            "SELECT rolname FROM pg_roles WHERE rolcanlogin UNION SELECT datname FROM pg_database"
        )
        assert {row[0] for row in await connection.fetch(names)} == {
            "tally",
            "postgres",
            "template0",
            "template1",
        }
        await connection.close()


PROGRAM_FUNCTION = """
    CREATE FUNCTION run() RETURNS boolean LANGUAGE plpgsql AS $run$
        BEGIN COPY (SELECT 1) TO PROGRAM '{}'; RETURN true; END $run$;
    CREATE FUNCTION run_immutably(integer) RETURNS integer IMMUTABLE LANGUAGE plpgsql AS $run$
        BEGIN PERFORM public.run(); RETURN 1; END $run$;
"""
# Each calls the function when the dump is loaded.
ATTACKS = {
    "check constraint": "CREATE TABLE bait (n integer CHECK (run())); INSERT INTO bait VALUES (1);",
    "materialized view": "CREATE MATERIALIZED VIEW bait AS SELECT run();",
    "index": """
        CREATE TABLE bait (n integer);
        INSERT INTO bait VALUES (1);
        CREATE INDEX trap ON bait (run_immutably(n));
    """,
}


@pytest.mark.parametrize(
    "attack",
    [
        "check constraint",
        pytest.param("materialized view", marks=pytest.mark.judge),
        pytest.param("index", marks=pytest.mark.judge),
    ],
)
async def test_a_dump_cannot_run_a_program(tmp_path: Path, attack: str) -> None:
    """The same dump does so when a superuser loads it."""
    proof = tmp_path / "proof"
    program = PROGRAM_FUNCTION.format(f"cat > {proof}")
    dump = await dump_with(tmp_path / "original", program + ATTACKS[attack])
    proof.unlink()
    await load_as_superuser(tmp_path / "unprotected", dump)
    assert proof.exists()
    proof.unlink()
    members = [ForgedMember(name="postgres.dump", content=dump)]
    source = forge(tmp_path / "backup.tar", members, version=1)
    with pytest.raises(BackupFailed, match=r"pg_restore failed.*permission denied"):
        await restore_backup(source, tmp_path / "data", CLOCK, trust=True)
    assert not proof.exists()
    assert not (tmp_path / "data").exists()


async def test_a_dump_leaves_no_code_for_a_superuser_to_run(tmp_path: Path) -> None:
    """A trigger in the dump is not part of the restored database, and the rows are."""
    proof = tmp_path / "proof"
    trap = f"""
        CREATE FUNCTION run() RETURNS trigger LANGUAGE plpgsql AS $run$
            BEGIN COPY (SELECT 1) TO PROGRAM 'cat > {proof}'; RETURN NEW; END $run$;
        CREATE TRIGGER trap AFTER INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION run();
    """
    dump = await dump_with(tmp_path / "original", FILL + trap)
    members = [ForgedMember(name="postgres.dump", content=dump)]
    source = forge(tmp_path / "backup.tar", members, version=1)
    await restore_backup(source, tmp_path / "data", CLOCK, trust=True)
    async with open_postgres(tmp_path / "data", CLOCK, durable=False) as dsn:
        await execute(dsn, "UPDATE users SET updated_at = now()")
        assert len((await contents(dsn))["users"]) == 50
    assert not proof.exists()


@pytest.fixture(scope="module")
async def restricted_dsn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A database with the schema, as the role that loads dumps sees it."""
    directory = tmp_path_factory.mktemp("restricted")
    async with (
        open_postgres(directory, CLOCK, durable=False) as dsn,
        import_database(dsn) as limited,
    ):
        await create_schema(limited)
        yield limited


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE LANGUAGE c2 HANDLER plpgsql_call_handler",
        "CREATE FUNCTION f(text) RETURNS integer LANGUAGE c AS 'libc.so.6', 'system'",
        "COPY users FROM '/etc/passwd'",
        "SELECT lo_export(1, '/nonexistent/x')",
        "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION count_new_players()",
        "ALTER SYSTEM SET archive_command = 'true'",
        "SET SESSION AUTHORIZATION tally",
        "GRANT pg_execute_server_program TO tally_import",
    ],
)
async def test_the_role_that_loads_a_dump_has_no_rights(restricted_dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(restricted_dsn)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(sql)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "rows",
    [
        "\\! touch {}\n",
        "\\.\nCOPY (SELECT 1) TO PROGRAM 'touch {}';\n",
        "x'; COPY (SELECT 1) TO PROGRAM 'touch {}'; --\n",
        "\x00",
    ],
)
async def test_rows_are_data_and_nothing_else(tmp_path: Path, rows: str) -> None:
    """Neither SQL nor commands of psql have a meaning in them."""
    content = rows.format(tmp_path / "proof").encode()
    members = [
        ForgedMember(name=f"postgres/{table}.copy", content=content if table == "users" else b"")
        for table in known_tables()
    ]
    schema_version = known_migrations()[-1].version
    source = forge(tmp_path / "backup.tar", members, schema_version=schema_version)
    with suppress(BackupFailed):  # nothing follows the end mark in the second case
        await restore_backup(source, tmp_path / "data", CLOCK, trust=True)
        async with open_postgres(tmp_path / "data", CLOCK, durable=False) as dsn:
            assert (await contents(dsn))["users"] == []
    assert not (tmp_path / "proof").exists()
    assert not list(tmp_path.glob("data.restored-*"))  # noqa: ASYNC240  (a directory of the test)
