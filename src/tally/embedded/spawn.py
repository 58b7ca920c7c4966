"""Starts a program of a server as a child of this process, through `launch`."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Sequence
from pathlib import Path

from tally.embedded import launch


async def spawn(
    command: Sequence[str], directory: Path, identity: str, ends_by: signal.Signals, lock: int
) -> Process:
    """The child, whose output is piped to us.

    It ends by that signal when we end, and keeps the lock open while it lives.

    It has no input and no variables of ours, and is out of reach of the terminal's Ctrl-C, which is
    for us.
    """
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        launch.__file__,
        str(os.getpid()),
        str(int(ends_by)),
        identity,
        *command,
        cwd=directory,
        env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", os.defpath)},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
        pass_fds=(lock,),
    )
