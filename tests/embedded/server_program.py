"""A program that holds both servers, to be killed: `python -m tests.embedded.server_program FOLDER`.

It says their addresses and process numbers in one line of JSON, and ends when its input does.
"""

import asyncio
import json
import sys
from pathlib import Path

from tally.embedded.postgres import Cluster, find_postgres_binaries
from tally.embedded.server_directory import private_directory
from tally.embedded.supervisor import Supervisor
from tally.embedded.valkey import Instance
from tally.embedded.valkey import program as valkey_program
from tally.kit.clock import SystemClock


async def hold(directory: Path) -> None:
    cluster = Cluster(private_directory(directory / "postgres"), find_postgres_binaries())
    instance = Instance(private_directory(directory / "valkey"), valkey_program())
    async with (
        Supervisor(cluster.program(durable=True), SystemClock()) as postgres,
        Supervisor(instance.program(), SystemClock()) as valkey,
    ):
        told = {
            "dsn": cluster.dsn,
            "url": instance.url,
            "processes": [postgres.process_id, valkey.process_id],
            "ours": [postgres.is_ours, valkey.is_ours],
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(hold(Path(sys.argv[1])))
