"""Secrets are returned once and never stored or logged in clear text."""

import io
from pathlib import Path

from tally.kit import logs
from tally.kit.clock import SystemClock
from tally.scoreboard.repository.database import Database
from tally.settings import Settings
from tests.scoreboard.api.harness import (
    ACTION_KEY,
    ADMIN,
    INTERNAL,
    SESSION_KEY,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis

PASSWORD = "correct horse battery"
WRONG = "a wrong password of some length"
TABLES = ("users", "scores", "sessions", "score_events", "consumed_tokens", "completed_actions")


async def test_no_secret_appears_in_rows_redis_or_logs(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Even at log level debug, and after errors."""
    stream = io.StringIO()
    logs.configure(
        Settings(log_format="json", log_level="debug", access_log=True), SystemClock(), stream
    )
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(server_settings((dsn, redis.address), tmp_path, access_log=True)) as harness,
    ):
        body = {"username": "ana", "email": "ana@example.com", "password": PASSWORD}
        data = (await harness.send("POST", "/auth/register", body)).result
        await harness.send("POST", "/auth/login", {"login": "ana", "password": WRONG})
        token, refresh_token = data["tokens"]["access_token"], data["tokens"]["refresh_token"]
        action = {"action_id": "a1", "user_id": data["user"]["user_id"], "max_score": 5}
        completed = await harness.send(
            "POST", "/internal/actions/complete", action, headers={"X-Internal-API-Key": INTERNAL}
        )
        action_token = completed.result["action_token"]
        update = {"action_token": action_token, "score_delta": 5}
        for sent in (token, token[:-2]):
            await harness.send("PATCH", "/scores", update, sent)
            await harness.send(
                "PATCH", f"/scores?token={sent}&action_token={action_token}", update, sent
            )
        redis_dump = await dump_redis(harness.scoreboard.redis.client)
        await redis.kill()
        assert (await harness.send("PATCH", "/scores", update, token)).status == 200
        renewed = (
            await harness.send("POST", "/auth/refresh", {"refresh_token": refresh_token})
        ).result
        await harness.send("POST", "/auth/refresh", {"refresh_token": refresh_token})
        rows = await dump_tables(harness.scoreboard.database)
    secrets = {
        "the password": PASSWORD,
        "a wrong password": WRONG,
        "an access token": token,
        "a refresh token": refresh_token,
        "a newer access token": renewed["access_token"],
        "a newer refresh token": renewed["refresh_token"],
        "an action token": action_token,
        "the key of game servers": INTERNAL,
        "the key of operators": ADMIN,
        "the key of action tokens": ACTION_KEY.reveal(),
        "the key of access tokens": SESSION_KEY.reveal(),
    }
    assert "argon2id" in rows
    assert b"leaderboard:global" in redis_dump
    assert stream.getvalue().count("\n") > 10
    for name, secret in secrets.items():
        assert secret not in stream.getvalue(), name
        assert secret not in rows, name
        assert secret.encode() not in redis_dump, name


async def dump_tables(database: Database) -> str:
    """Return all rows of all tables with user data."""
    return "\n".join(
        [
            str(row)
            for table in TABLES
            for row in await database.rows("test", f"SELECT * FROM {table}")  # noqa: S608
        ]
    )


async def dump_redis(client: object) -> bytes:
    """Return all keys of Redis and their values."""
    dump = b""
    async for key in client.scan_iter():  # type: ignore[attr-defined]
        dump += key + b"\n" + (await client.dump(key)) + b"\n"  # type: ignore[attr-defined]
    return dump
