"""The scribe's own program: it writes what it is asked for over a socket, in groups, until the other end is gone.

`scribe.py` starts it as `python -m tally.store.sqlite.scribing PATH SOCKET`.
"""

import asyncio
import gc
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tally.store.errors import StoreError, Unavailable
from tally.store.sqlite.catalogue import Catalogue
from tally.store.sqlite.files import connect
from tally.store.sqlite.groups import Groups
from tally.store.sqlite.messages import Line, answer, asked
from tally.store.sqlite.writer import Writer

_YOUNG_OBJECTS = 50_000  # rows live for a commit, and are in no cycles


async def scribe(path: Path, descriptor: int) -> None:
    """Serve the socket until its other end says no more, and then finish what was asked for."""
    loop = asyncio.get_running_loop()
    connection = connect(path)
    catalogue = Catalogue(connection)
    connection.close()
    writer = Writer(path, loop, Groups(catalogue))
    ended = asyncio.Event()

    def on_message(message: bytes) -> None:
        number, work = asked(message)
        writer.submit(work).add_done_callback(partial(reply, number))

    def reply(number: int, done: "asyncio.Future[Any]") -> None:
        failure = done.exception()
        if failure is not None and not isinstance(failure, StoreError):
            failure = Unavailable(f"the process that writes failed: {failure!r}")  # any other error may not be fit to be sent
        line.send(answer(number, failure or done.result()))

    _, line = await loop.create_connection(lambda: Line(on_message, ended.set), sock=socket.socket(fileno=descriptor))
    line.send(b"")  # ready
    await ended.wait()
    await writer.close()
    line.close()


def main() -> None:
    path, descriptor = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # whoever stops all of Tally wants what it has begun to be done
    gc.set_threshold(_YOUNG_OBJECTS, 20, 20)
    asyncio.run(scribe(Path(path), int(descriptor)))


if __name__ == "__main__":
    main()
