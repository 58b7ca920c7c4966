"""The data directory of a released Tally, in `release_0_1_0.tar.gz`, and what clients stored in it.

The archive has every file of the data directory except those of PostgreSQL and Valkey, and a dump
of the PostgreSQL database. To write one with a released version, check that version out and run
`python -m tests.e2e.release_data FILE`; keep the archives of earlier releases.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import httpx

from tally.embedded.postgres import find_postgres_binaries, open_postgres
from tally.kit.clock import SystemClock
from tests.e2e.test_readiness import serve

ARCHIVES = sorted(Path(__file__).parent.glob("release_*.tar.gz"))
DUMP = "scoreboard.sql"
BACKENDS = "devices,scoreboard,cricket,collect"
DEVICE = "AA:BB:CC:00:01:00"
BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
READINGS = 25
FIRST_MS = 4_000_000_000_000
API = "/scoreboard/api/v1"
PLAYER = {"username": "ana_99", "email": "ana@example.com", "password": "a long password"}
SCORE = 60
BOARD = {"id": "weekly", "name": "Weekly points", "reset": {"cron": "0 0 * * MON"}}


def readings(first: int, count: int) -> dict[str, object]:
    """Return a request with these readings, whose times are far ahead so that they never expire."""
    ends = [FIRST_MS + number * 60_000 for number in range(first, first + count)]
    return {
        "hardware_id": DEVICE,
        "boot_id": BOOT_ID,
        "firmware_version": "1.0.0",
        "readings": [
            {
                "batch_id": f"{DEVICE}_{BOOT_ID}_{end - 60_000}_{end}",
                "timestamp_ms": end,
                "sensors": {"bme280_temp_c": 20 + number / 4},
            }
            for number, end in enumerate(ends, start=first)
        ],
    }


def add_score(client: httpx.Client, data: Path, token: str, user_id: str, action: str) -> None:
    """Complete an action as the game server, and exchange its token as the player."""
    game_key = {"X-Internal-API-Key": (data / "scoreboard-internal.key").read_text().strip()}
    body = {"action_id": action, "user_id": user_id, "max_score": 100}
    boards = {"boards": ["global", BOARD["id"]]}
    completed = client.post(
        f"{API}/internal/actions/complete", json=body | boards, headers=game_key
    )
    update = {"action_token": completed.json()["action_token"], "score_delta": SCORE}
    player = {"Authorization": f"Bearer {token}"}
    client.patch(f"{API}/scores", json=update, headers=player).raise_for_status()


def store_data(client: httpx.Client, data: Path) -> str:
    """Store what the tests of upgrades expect; return the API key of the boards."""
    operator = {"Authorization": f"Bearer {(data / 'operator.token').read_text().strip()}"}
    created = client.post("/devices/api-keys", json={"description": "release"}, headers=operator)
    key = str(created.raise_for_status().json()["api_key"])
    sent = client.post("/devices/data", json=readings(0, READINGS), headers={"X-API-Key": key})
    assert len(sent.json()["acknowledged_batch_ids"]) == READINGS
    client.post(f"{API}/admin/boards", json=BOARD, headers=operator).raise_for_status()
    signed_in = client.post(f"{API}/auth/register", json=PLAYER).raise_for_status().json()
    add_score(client, data, signed_in["tokens"]["access_token"], signed_in["user"]["user_id"], "1")
    return key


async def dump(data: Path) -> bytes:
    """Return the PostgreSQL database of a stopped Tally as SQL."""
    async with open_postgres(data, SystemClock()) as dsn:
        program = await asyncio.create_subprocess_exec(
            find_postgres_binaries() / "pg_dump",
            "--no-owner",
            f"--dbname={dsn}",
            stdout=subprocess.PIPE,
        )
        sql, _ = await program.communicate()
    assert program.returncode == 0
    return sql


async def load(data: Path, sql: Path) -> None:
    """Create the PostgreSQL database of a data directory from a dump."""
    async with open_postgres(data, SystemClock()) as dsn:
        program = await asyncio.create_subprocess_exec(
            find_postgres_binaries() / "psql",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            f"--file={sql}",
            dsn,
            stdout=subprocess.DEVNULL,
        )
        assert await program.wait() == 0


def write_archive(file: Path) -> None:
    """Serve an empty data directory with this version, store data in it and archive it."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(file, "w:gz") as archive:
        data = Path(folder) / "data"
        with serve(Path(folder), backends=BACKENDS) as instance:
            instance.wait_for(200)
            with httpx.Client(base_url=instance.url, timeout=60) as client:
                key = store_data(client, data)
        contents = {"api.key": key.encode(), DUMP: asyncio.run(dump(data))}
        for path in sorted(data.iterdir()):
            if path.is_file() and not path.name.endswith((".lock", "-shm", ".log")):
                contents[path.name] = path.read_bytes()
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(content))


async def extract(archive: Path, directory: Path) -> str:
    """Create the data directory of an archive; return the API key of the boards."""
    data = directory / "data"
    data.mkdir(mode=0o700)
    with tarfile.open(archive) as members:
        members.extractall(data, filter="data")
    (data / DUMP).rename(directory / DUMP)
    key = (data / "api.key").read_text(encoding="utf-8")
    (data / "api.key").unlink()
    await load(data, directory / DUMP)
    return key


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
