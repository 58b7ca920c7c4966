"""The parser process: reads a file from standard input and writes its summary as JSON."""

import hashlib
import resource
import sys
import zlib
from typing import Final

import msgspec

from tally.collect.activity_files.fit import parse_fit
from tally.collect.activity_files.outcome import ParseFailure, ParseOutcome
from tally.collect.activity_files.xml_files import parse_xml
from tally.collect.model.files import ParsedFile
from tally.errors import Invalid, TallyError, TooLarge

FILE_ID_LENGTH: Final = 32
SNIFFED_BYTES: Final = 4096


def parse(body: bytes, max_bytes: int) -> ParsedFile:
    """Detect the format of a file and parse it. The content decides, not a name or media type."""
    content = _decompress(body, max_bytes) if body.startswith(b"\x1f\x8b") else body
    file_id = hashlib.sha256(content).hexdigest()[:FILE_ID_LENGTH]
    if content[8:12] == b".FIT":
        return parse_fit(content, file_id)
    if _is_xml(content):
        return parse_xml(content, file_id)
    hint = "; extract the archive first" if content.startswith(b"PK") else ""
    raise Invalid(f"The file must be FIT, GPX or TCX{hint}", code="unknown_file_format")


def _is_xml(content: bytes) -> bool:
    """Whether the content starts with a tag, in UTF-8, UTF-16 or with a byte order mark."""
    start = content[:SNIFFED_BYTES].lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")
    return start.startswith(b"<")


def _decompress(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=31)
    try:
        content = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise Invalid(f"The file is not valid gzip: {error}", code="malformed_gzip") from error
    if len(content) > max_bytes:
        raise TooLarge(f"The decompressed file must be at most {max_bytes} bytes", limit=max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise Invalid("The file must be exactly one gzip member", code="malformed_gzip")
    return content


def parse_to_json(body: bytes, max_bytes: int) -> bytes:
    """Return the outcome as JSON, whatever the file does to its parser."""
    try:
        outcome = ParseOutcome(parsed=parse(body, max_bytes))
    except TallyError as error:
        failure = ParseFailure(error.code, error.message, isinstance(error, TooLarge))
        outcome = ParseOutcome(failure=failure)
    except (MemoryError, RecursionError):
        message = "The file needs too much memory"
        outcome = ParseOutcome(failure=ParseFailure("file_too_complex", message, is_too_large=True))
    except Exception as error:  # noqa: BLE001  (parsers raise anything for a damaged file)
        message = f"The file is damaged: {type(error).__name__}"
        outcome = ParseOutcome(failure=ParseFailure("corrupt_file", message))
    return msgspec.json.encode(outcome)


def _limit_resources(cpu_seconds: int, memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # macOS does not enforce it
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def run_parser() -> None:
    max_bytes, cpu_seconds, memory_bytes = map(int, sys.argv[1:4])
    _limit_resources(cpu_seconds, memory_bytes)
    sys.stdout.buffer.write(parse_to_json(sys.stdin.buffer.read(), max_bytes))


if __name__ == "__main__":
    run_parser()
