"""The scribe's own program: it writes what it is asked for over a socket, in groups, until the other end is gone.

`scribe.py` starts it as `python -m tally.store.sqlite.writer_process_main PATH DEVICE INODE SOCKET`.
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
from tally.store.sqlite.files import connect, file_identity
from tally.store.sqlite.group_executor import BatchingExecutor
from tally.store.sqlite.ipc import MessageConnection, decode_request, encode_response
from tally.store.sqlite.table_registry import TableRegistry
from tally.store.sqlite.writer_thread import WriterThread

_YOUNG_OBJECTS = 50_000  # rows live for a commit, and are in no cycles
_LAST_WORDS_SECONDS = 5.0


async def serve(path: Path, file: tuple[int, int], descriptor: int) -> None:
    """Serve the socket until its other end says no more, and then finish what was asked for.

    `file` is the identity of the engine's database: another one that is at the path by now is not
    to be written.
    """
    loop = asyncio.get_running_loop()
    if file_identity(path) != file:
        return
    connection = connect(path)
    catalogue = TableRegistry(connection)
    connection.close()
    writer = WriterThread(path, loop, BatchingExecutor(catalogue), file)
    ended = asyncio.Event()

    def on_message(message: bytes) -> None:
        number, work = decode_request(message)
        writer.submit(work).add_done_callback(partial(reply, number))

    def reply(number: int, done: "asyncio.Future[Any]") -> None:
        try:
            message = encode_response(number, done.exception() or done.result())
        except Exception as error:  # noqa: BLE001  (whatever cannot be sent, somebody waits for an answer)
            message = encode_response(
                number, StoreUnavailable(f"what became of it cannot be told: {error!r}")
            )
        line.send(message)

    _, line = await loop.create_connection(
        lambda: MessageConnection(on_message, ended.set), sock=socket.socket(fileno=descriptor)
    )
    line.send(b"")  # ready
    await ended.wait()
    await writer.close()
    line.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_SECONDS):
            await line.lost.wait()  # until the answers are sent


def run_writer_process() -> None:
    path, device, inode, descriptor = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(
            number, signal.SIG_IGN
        )  # whoever stops all of Tally wants what it has begun to be done
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
    asyncio.run(serve(Path(path), (int(device), int(inode)), int(descriptor)))


if __name__ == "__main__":
    run_writer_process()
