"""A child process that writes continuously with every kind of write until it is killed.

    python -m tests.faults.crash_writers DIRECTORY [idle]

The first line of its input is the progress of each writer, `{"name": [did, tried]}`. With `idle`
there are no writers, only commands.

Each writer prints `try NAME NUMBER` before a step and `did NAME NUMBER` (or `rejected …`) after the
store has returned. Commands on its input: `ensure later` and `ensure first` change the declaration
of a table while the writers run, `close` closes the store.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from tally.store.api import BatchWrite, Delete, Get, Put
from tally.store.errors import StoreError, StoreUnavailable, TransactionCancelled
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.faults import crash_steps
from tests.faults.child_process import say
from tests.faults.crash_steps import EVENTS, READINGS, READINGS_LATER

Progress = dict[str, tuple[int, int]]
Writer = Callable[[SqliteEngine, str, int, int], Coroutine[Any, Any, None]]


async def write_single(engine: SqliteEngine, name: str, did: int, tried: int) -> None:
    """Write one item step by step."""
    number = did
    if did != tried and await _stored(engine, name) == crash_steps.single_state(name, tried):
        number = tried
        say(f"did {name} {number}")
    while True:
        number += 1
        say(f"try {name} {number}")
        step = crash_steps.single_step(name, number)
        if isinstance(step, Put):
            await engine.put(step)
        elif isinstance(step, Delete):
            await engine.delete(step)
        else:
            await engine.update(step)
        say(f"did {name} {number}")


async def _stored(engine: SqliteEngine, name: str) -> Any:
    return (await engine.get(Get(READINGS, crash_steps.single_key(name)))).item


async def write_batches(engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
    """Write several items per request."""
    number = tried
    while True:
        number += 1
        say(f"try {name} {number}")
        states = {
            position: crash_steps.batch_state(name, position, number)
            for position in range(crash_steps.BATCH_KEYS)
        }
        puts = tuple(item for item in states.values() if item is not None)
        deletes = tuple(
            crash_steps.batch_key(name, position)
            for position, item in states.items()
            if item is None
        )
        await engine.batch_write(BatchWrite(READINGS, puts, deletes))
        say(f"did {name} {number}")


async def transfer(engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
    """Run transactions on accounts that all such writers share."""
    number = tried
    while True:
        number += 1
        say(f"try {name} {number}")
        try:
            await engine.transact(crash_steps.transfer_transaction(name, number))
        except TransactionCancelled:
            say(f"rejected {name} {number}")
        else:
            say(f"did {name} {number}")


async def count_with_tokens(engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
    """Send each transaction three times, two concurrently; repeat the last one after a crash."""
    number = max(1, tried)
    while True:
        say(f"try {name} {number}")
        transaction = crash_steps.token_transaction(name, number)
        await asyncio.gather(engine.transact(transaction), engine.transact(transaction))
        say(f"did {name} {number}")
        await engine.transact(transaction)
        number += 1


async def put_pairs(engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
    """Send many independent transactions per request; the middle one is rejected."""
    number = tried
    while True:
        number += 1
        say(f"try {name} {number}")
        ends = await engine.transact_each(crash_steps.pair_transactions(name, number))
        rejected = [
            position for position, end in enumerate(ends) if isinstance(end, TransactionCancelled)
        ]
        say(f"did {name} {number}" if rejected == [2] else f"wrong {name} {number} {rejected}")


async def put_in_bulk(engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
    """Send batches of transactions of one shape."""
    number = tried
    while True:
        number += 1
        say(f"try {name} {number}")
        ends = await engine.transact_each(crash_steps.bulk_transactions(name, number))
        failed = [end for end in ends if isinstance(end, StoreError)]
        say(f"wrong {name} {number} {failed}" if failed else f"did {name} {number}")


class Events:
    """A writer of items that expire, and its sweeper."""

    def __init__(self) -> None:
        self.written = 0

    async def write(self, engine: SqliteEngine, name: str, _did: int, tried: int) -> None:
        """Put items that expire one hour apart."""
        number = self.written = tried
        while True:
            number += 1
            say(f"try {name} {number}")
            await engine.put(Put(EVENTS, crash_steps.event(number)))
            self.written = number
            say(f"did {name} {number}")

    async def sweep(self, engine: SqliteEngine, name: str, did: int, _tried: int) -> None:
        """Advance the time to shortly before the newest event."""
        passed = did
        while True:
            passed = max(passed, self.written - 20)
            say(f"try {name} {passed}")
            now = crash_steps.LATER + (passed + 1) * crash_steps.HOUR
            limit = crash_steps.SWEEP_LIMIT
            while await engine.sweep(EVENTS, now, limit) == limit:
                pass
            say(f"did {name} {passed}")


async def run_commands(engine: SqliteEngine, commands: asyncio.StreamReader) -> None:
    """Execute commands until the input ends."""
    while command := (await commands.readline()).decode().strip():
        say(f"begin {command}")
        if command == "close":
            await engine.close()
        else:
            await engine.ensure_table(READINGS_LATER if command == "ensure later" else READINGS)
        say(f"end {command}")


async def write_until_closed(
    writer: Writer, engine: SqliteEngine, name: str, progress: Progress
) -> None:
    """Run a writer until the store is closed."""
    try:
        await writer(engine, name, *progress.get(name, (0, 0)))
    except StoreUnavailable as end:
        if "closed" not in str(end):
            raise


async def main(directory: Path, *, idle: bool) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    if idle:
        async with open_sqlite(directory) as engine:
            say("open")
            await run_commands(engine, commands)
        return
    progress = msgspec.json.decode(await commands.readline(), type=Progress)
    events = Events()
    writers: dict[str, Writer] = {
        **{f"single-{number}": write_single for number in range(crash_steps.SINGLES)},
        **{f"batch-{number}": write_batches for number in range(crash_steps.BATCHES)},
        **{f"transfer-{number}": transfer for number in range(crash_steps.TRANSFERS)},
        **{f"token-{number}": count_with_tokens for number in range(crash_steps.TOKENS)},
        **{f"pair-{number}": put_pairs for number in range(crash_steps.PAIRS)},
        **dict.fromkeys(crash_steps.BULK_WRITERS, put_in_bulk),
        "event": events.write,
        "sweep": events.sweep,
    }
    async with open_sqlite(directory, clock=lambda: float(crash_steps.LATER)) as engine:
        say("open")
        tasks = [
            asyncio.ensure_future(write_until_closed(writer, engine, name, progress))
            for name, writer in writers.items()
        ]
        commands_task = asyncio.ensure_future(run_commands(engine, commands))
        await asyncio.wait([commands_task, *tasks], return_when=asyncio.FIRST_EXCEPTION)
        for task in (commands_task, *tasks):
            task.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), idle="idle" in sys.argv))
