"""The program of the writer process: runs batches from a socket with group commit.

`writer_process.py` starts it as
`python -m tally.store.sqlite.bulk.writer_process_main PATH DEVICE INODE SOCKET`.
It ends when the engine closes the socket.
"""

import asyncio
import gc
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tally.store.errors import StoreUnavailable
from tally.store.sqlite.bulk.group_executor import BatchingExecutor
from tally.store.sqlite.bulk.ipc import MessageConnection, decode_request, encode_response
from tally.store.sqlite.files import connect, file_identity
from tally.store.sqlite.table_registry import LayoutCache, TableRegistry, load_shapes
from tally.store.sqlite.writer_thread import WriterThread

_GC_THRESHOLD = 50_000  # rows live until the commit and have no reference cycles
_FLUSH_SECONDS = 5.0


async def serve_batches(path: Path, identity: tuple[int, int], descriptor: int) -> None:
    """Serve the socket until the engine ends sending, then complete the received batches.

    `identity` is that of the engine's database; a different file at the path is not written.
    """
    loop = asyncio.get_running_loop()
    if file_identity(path) != identity:
        return
    connection = connect(path)
    layouts = LayoutCache(load_shapes(connection, path))
    registry = TableRegistry(connection, layouts)
    connection.close()
    now = 0.0  # the engine's time, as of its last request: its clock may differ from the machine's
    executor = BatchingExecutor(registry, layouts.shapes, lambda: now)
    writer = WriterThread(path, loop, executor, identity)
    ended = asyncio.Event()

    def on_message(message: bytes) -> None:
        nonlocal now
        number, now, batch = decode_request(message, layouts)
        writer.submit(batch).add_done_callback(partial(respond, number))

    def respond(number: int, future: "asyncio.Future[Any]") -> None:
        try:
            message = encode_response(number, future.exception() or future.result())
        except Exception as error:  # noqa: BLE001 - the engine waits for a response in any case
            failure = StoreUnavailable(f"the writer process could not encode the result: {error!r}")
            message = encode_response(number, failure)
        engine.send(message)

    _, engine = await loop.create_connection(
        lambda: MessageConnection(on_message, ended.set), sock=socket.socket(fileno=descriptor)
    )
    engine.send(b"")  # ready
    await ended.wait()
    await writer.close()
    engine.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_SECONDS):
            await engine.lost.wait()  # until the responses are sent


def run_writer_process() -> None:
    """Run the process with the arguments of the command line."""
    path, device, inode, descriptor = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        # The engine ends this process; a signal to all processes must not interrupt its writes.
        signal.signal(number, signal.SIG_IGN)
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    asyncio.run(serve_batches(Path(path), (int(device), int(inode)), int(descriptor)))


if __name__ == "__main__":
    run_writer_process()
