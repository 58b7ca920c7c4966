"""A program that runs both servers: `python -m tests.embedded.server_program DIRECTORY`.

It reports their addresses and process ids in one line of JSON, and ends with its input.
"""

import asyncio
import json
import sys
from pathlib import Path

from tally.embedded.postgres import PostgresCluster, find_postgres_binaries
from tally.embedded.server_directory import private_directory
from tally.embedded.supervisor import Supervisor
from tally.embedded.valkey import ValkeyInstance, find_valkey_binary
from tally.kit.clock import SystemClock


async def run_servers(directory: Path) -> None:
    cluster = PostgresCluster(private_directory(directory / "postgres"), find_postgres_binaries())
    instance = ValkeyInstance(private_directory(directory / "valkey"), find_valkey_binary())
    async with (
        Supervisor(cluster.program(durable=True), SystemClock()) as postgres,
        Supervisor(instance.program(), SystemClock()) as valkey,
    ):
        report = {
            "dsn": cluster.dsn,
            "url": instance.url,
            "server_ids": [postgres.process_id, valkey.process_id],
            "owns_servers": [postgres.owns_server, valkey.owns_server],
        }
        sys.stdout.write(json.dumps(report) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(run_servers(Path(sys.argv[1])))
