"""Jobs and their locks: retention, rebuild after a backlog overflow, one instance at a time."""

import io
import json
from datetime import timedelta
from pathlib import Path

from tally.kit.clock import ManualClock
from tally.kit.jobs import JobOutcome
from tally.scoreboard.repository.locks import AdvisoryLocks
from tally.scoreboard.service import retention
from tests.scoreboard.api.harness import (
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.servers import SharedServers

TABLES = ("sessions", "consumed_tokens", "score_events", "completed_actions")


async def count_rows(harness: ScoreboardHarness) -> dict[str, int]:
    database = harness.scoreboard.database
    return {
        table: await database.value("test", f"SELECT count(*) FROM {table}")  # noqa: S608 - our tables
        for table in TABLES
    }


async def test_old_rows_are_deleted_after_their_retention(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Used tokens an hour after expiry, sessions a day after expiry, events after 90 days."""
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path), ManualClock()
    ) as harness:
        await harness.score(await harness.player(), 5)
        run = harness.scoreboard.services.retention.run
        await run()
        assert await count_rows(harness) == dict.fromkeys(TABLES, 1)
        harness.skip_time(300 + 3600 - 1)
        await run()
        assert (await count_rows(harness))["consumed_tokens"] == 1
        harness.skip_time(2)
        await run()
        assert await count_rows(harness) == {
            "sessions": 1,
            "consumed_tokens": 0,
            "score_events": 1,
            "completed_actions": 1,
        }
        harness.skip_time(timedelta(days=31).total_seconds())
        await run()
        assert await count_rows(harness) == {
            "sessions": 0,
            "consumed_tokens": 0,
            "score_events": 1,
            "completed_actions": 1,
        }
        harness.skip_time(timedelta(days=60).total_seconds())
        await run()
        assert await count_rows(harness) == dict.fromkeys(TABLES, 0)


async def test_revoked_sessions_are_deleted_a_day_later(
    shared_servers: SharedServers, tmp_path: Path, log: io.StringIO
) -> None:
    """Their addresses stay known for a month, and the log has the number of all deleted rows."""
    async with run_scoreboard(
        server_settings(await shared_servers.allocate(), tmp_path), ManualClock()
    ) as harness:
        player, run = await harness.player(), harness.scoreboard.services.retention.run
        await harness.score(player, 5)
        assert (await harness.send("POST", "/auth/logout", token=player.token)).status == 204
        harness.skip_time(86_399)
        await run()
        assert (await count_rows(harness))["sessions"] == 1
        harness.skip_time(2)
        await run()
        assert (await count_rows(harness))["sessions"] == 0
        accounts = harness.scoreboard.services.accounts.accounts
        for is_known in (True, False):
            credentials = await accounts.find_credentials(player.username, "127.0.0.1")
            assert credentials is not None
            assert credentials.is_known_address is is_known
            harness.skip_time(timedelta(days=30).total_seconds())
            await run()
    deleted = [json.loads(line) for line in log.getvalue().splitlines() if "rows_deleted" in line]
    assert [entry["data"]["usedActions"] for entry in deleted[:2]] == [1, 0]
    assert deleted[1]["data"]["sessions"] == 1


async def test_old_rows_are_deleted_in_batches(fresh_harness: ScoreboardHarness) -> None:
    """All of them, with at most one batch per statement."""
    count = 2 * retention.BATCH_SIZE + 7
    await fresh_harness.scoreboard.database.value(
        "test",
        "INSERT INTO consumed_tokens (token_hash, user_id, expires_at)"
        " SELECT 'old-' || n, gen_random_uuid(), now() - interval '1 day'"
        " FROM generate_series(1, $1) n",
        count,
    )
    await fresh_harness.scoreboard.services.retention.run()
    assert (await count_rows(fresh_harness))["consumed_tokens"] == 0
    sample_value = fresh_harness.application.metrics.registry.get_sample_value
    data = {"server": "postgresql", "call": "delete_expired_tokens", "outcome": "ok"}
    assert sample_value("tally_scoreboard_storage_call_duration_seconds_count", data) == 3


async def test_a_backlog_overflow_triggers_a_rebuild(
    fresh_harness: ScoreboardHarness,
) -> None:
    """The dropped scores come from PostgreSQL, and reads stay correct meanwhile."""
    players = [await fresh_harness.player() for _ in range(5)]
    for player in players:
        await fresh_harness.score(player, 5)
    expected = await fresh_harness.leaderboard()
    cache_sync = fresh_harness.scoreboard.services.cache_sync
    await fresh_harness.scoreboard.redis.client.zremrangebyrank("leaderboard:global", 0, 2)
    cache_sync.backlog.needs_rebuild = True
    assert await fresh_harness.leaderboard() == expected, (
        "read from PostgreSQL while Redis lacks changes"
    )
    await cache_sync.catch_up()
    assert not cache_sync.backlog.has_pending_changes()
    assert await fresh_harness.leaderboard() == expected
    assert (await fresh_harness.admin("GET", "/drift")).result["found"] == 0


async def test_a_lock_has_one_owner(fresh_harness: ScoreboardHarness) -> None:
    """Until it is released; locks with other names are independent."""
    one, two = (AdvisoryLocks(fresh_harness.scoreboard.database) for _ in range(2))
    try:
        assert await one.acquire("job", 30)
        assert not await one.acquire("job", 30)
        assert not await two.acquire("job", 30)
        assert await two.acquire("another job", 30)
        assert await one.extend("job", 30)
        assert not await two.extend("job", 30)
        await one.release("job")
        assert not await one.extend("job", 30)
        assert await two.acquire("job", 30)
    finally:
        await release_all(one, two)


async def test_a_lock_is_released_with_its_connection(fresh_harness: ScoreboardHarness) -> None:
    """Its former owner notices when extending it."""
    one, two = (AdvisoryLocks(fresh_harness.scoreboard.database) for _ in range(2))

    async def is_lost() -> bool:
        return not await one.extend("job", 30)

    try:
        assert await one.acquire("job", 30)
        await fresh_harness.scoreboard.database.rows(
            "test",
            "SELECT pg_terminate_backend(pid) FROM pg_locks"
            " JOIN pg_database ON pg_database.oid = pg_locks.database"
            " WHERE locktype = 'advisory' AND datname = current_database()",
        )
        await wait_until(is_lost)
        assert await two.acquire("job", 30)
    finally:
        await release_all(one, two)


async def release_all(*holders: AdvisoryLocks) -> None:
    for locks in holders:
        for name in ("job", "another job"):
            await locks.release(name)


async def test_jobs_require_their_lock(fresh_harness: ScoreboardHarness) -> None:
    """A job that another instance runs is skipped."""
    runner = fresh_harness.application.job_runner()
    for name in ("scoreboard-catch-up", "scoreboard-verify", "scoreboard-retention"):
        assert (await runner.run(name)).outcome is JobOutcome.SUCCEEDED
    elsewhere = AdvisoryLocks(fresh_harness.scoreboard.database)
    assert await elsewhere.acquire("scoreboard-verify", 30)
    assert (await runner.run("scoreboard-verify")).outcome is JobOutcome.LOCKED_ELSEWHERE
    await elsewhere.release("scoreboard-verify")
    assert (await runner.run("scoreboard-verify")).outcome is JobOutcome.SUCCEEDED
