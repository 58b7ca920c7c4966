"""Runs the parser process for a file, a few at a time, and ends it when it takes too long."""

import asyncio
import os
import sys
from typing import Final

import msgspec

from tally.collect.activity_files.outcome import ParseOutcome
from tally.collect.model.files import ParsedFile, too_complex
from tally.errors import Invalid, TooLarge, Unavailable
from tally.kit import logs

MAX_PARSERS: Final = 2
CPU_SECONDS: Final = 30
WALL_SECONDS: Final = 90
MEMORY_BYTES: Final = 768 * 1024 * 1024
# The parser gets no other variables, so that it sees no secret of the server.
PASSED_VARIABLES: Final = ("SYSTEMROOT", "LANG", "LC_ALL")

_log = logs.logger()
_decoder = msgspec.json.Decoder(ParseOutcome)


class FileParser:
    """Parses activity files in processes of their own."""

    def __init__(
        self, max_bytes: int, *, cpu_seconds: int = CPU_SECONDS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._cpu_seconds = cpu_seconds
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(MAX_PARSERS)

    async def parse(self, content: bytes) -> ParsedFile:
        """Return the summary of a file; Invalid or TooLarge say what is wrong with it."""
        async with self._slots:
            output = await self._run(content)
        try:
            outcome = _decoder.decode(output)
        except (msgspec.DecodeError, UnicodeDecodeError):
            outcome = ParseOutcome()
        if outcome.failure is not None:
            kind = TooLarge if outcome.failure.is_too_large else Invalid
            raise kind(outcome.failure.message, code=outcome.failure.code)
        if outcome.parsed is None:
            raise too_complex("The file takes too long to parse, or needs too much memory")
        return outcome.parsed

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-m",
                "tally.collect.activity_files",
                *map(str, (self._max_bytes, self._cpu_seconds, self._memory_bytes)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
            )
        except OSError as error:  # no memory, or no file descriptors
            _log.warning("Parser process not started", action="file_parser_failed", error=error)
            raise Unavailable("The parser could not be started", retry_after=1) from error

    async def _run(self, content: bytes) -> bytes:
        """Return what the process wrote; nothing if it was killed."""
        process = await self._start()
        try:
            async with asyncio.timeout(WALL_SECONDS):
                output, _ = await process.communicate(content)
        except TimeoutError:
            output = b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            _log.warning(
                "Parser process failed", action="file_parser_failed", status=process.returncode
            )
            return b""
        return output
