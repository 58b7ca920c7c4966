"""Runs a program for as long as its own standard input stays open: `python watched.py PROGRAM ARGUMENT...`.

An emulator must not outlive the tests that started it. Whoever starts it holds the other end of the
pipe; when that process ends, even by `kill -9`, the system closes the pipe, and the program is
stopped here. Nothing has to be remembered or swept up.
"""

import os
import subprocess
import sys
import threading

GRACE_SECONDS = 5.0


def main(command: list[str]) -> int:
    """Run the command; return its exit code."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as program:
        threading.Thread(target=_stop_at_end_of_input, args=(program,), daemon=True).start()
        return program.wait()


def _stop_at_end_of_input(program: subprocess.Popen[bytes]) -> None:
    # Read without a buffer: a thread that waits inside of one keeps the interpreter from ending.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    program.terminate()
    try:
        program.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        program.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
