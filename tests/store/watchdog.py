"""Runs a program while its standard input stays open: `python watchdog.py PROGRAM ARGUMENT...`.

An emulator must not outlive the tests that started it. The test process holds the other end of the
pipe; when it ends, even by `kill -9`, the kernel closes the pipe, and this program stops the
emulator.
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
