"""Every line is one JSON object with the same fields, including the request that caused it."""

import asyncio
import errno
import io
import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.kit import logs
from tally.kit.clock import ManualClock
from tally.settings import Settings
from tests.kit.conftest import LogLines

FIELDS = ["timestamp", "level", "service", "requestId", "userId", "action", "message", "data"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2025, 12, 28, 12, tzinfo=UTC))


def test_a_line_has_exactly_the_specified_fields(log_lines: LogLines) -> None:
    with logs.bound(service="scoreboard-api", request_id="r-1", user_id="usr_1"):
        logs.logger().info(
            "Score updated successfully",
            action="score_update",
            scoreDelta=100,
            newScore=1500,
            rank=5,
        )
    [line] = log_lines()
    assert list(line) == FIELDS
    assert line == {
        "timestamp": "2025-12-28T12:00:00.000Z",
        "level": "info",
        "service": "scoreboard-api",
        "requestId": "r-1",
        "userId": "usr_1",
        "action": "score_update",
        "message": "Score updated successfully",
        "data": {"scoreDelta": 100, "newScore": 1500, "rank": 5},
    }


def test_unknown_fields_are_null(log_lines: LogLines) -> None:
    logs.logger().warning("Alone")
    [line] = log_lines()
    assert line["service"] == "tally"
    assert [line[name] for name in ("requestId", "userId", "action", "data")] == [
        None,
        None,
        None,
        {},
    ]


def test_a_correlation_id_is_present_if_known(log_lines: LogLines) -> None:
    with logs.bound(request_id="r-1", correlation_id="c-9"):
        logs.logger().info("Minted")
    assert log_lines()[0]["correlationId"] == "c-9"


async def test_each_task_has_its_own_context(log_lines: LogLines) -> None:
    """Concurrent requests do not share context."""

    async def request(number: int) -> None:
        logs.set_context(logs.Context(request_id=f"r-{number}"))
        await asyncio.sleep(0)
        logs.bind(user_id=f"u-{number}")
        await asyncio.sleep(0)
        logs.logger().info("Done", number=number)

    await asyncio.gather(*(request(number) for number in range(10)))
    lines = sorted(log_lines(), key=lambda line: int(line["data"]["number"]))
    assert [(line["requestId"], line["userId"]) for line in lines] == [
        (f"r-{n}", f"u-{n}") for n in range(10)
    ]


def test_an_exception_is_logged_with_a_masked_traceback(log_lines: LogLines) -> None:
    try:
        raise ValueError("no such password=hunter2")
    except ValueError:
        logs.logger().exception("It broke", action="work")
    [line] = log_lines()
    assert line["level"] == "error"
    assert "Traceback" in line["data"]["exception"]
    assert "ValueError: no such password=***" in line["data"]["exception"]


def test_an_exception_can_be_passed(log_lines: LogLines) -> None:
    logs.logger().error("It broke", exc_info=ValueError("passed"))
    assert log_lines()[0]["data"]["exception"] == "ValueError: passed"


def test_standard_library_loggers_are_forwarded(log_lines: LogLines) -> None:
    """Including warnings of uvicorn; a level between two standard levels is rounded down."""
    logging.getLogger("aiobotocore.credentials").info("Found credentials in ~/.aws/credentials.")
    logging.getLogger("uvicorn.error").warning("Invalid %s", "request")
    logging.getLogger("some.library").log(25, "Noticed")
    first, second = log_lines()
    assert (first["level"], first["message"], first["data"]) == (
        "warning",
        "Invalid request",
        {"logger": "uvicorn.error"},
    )
    assert (second["level"], second["message"]) == ("info", "Noticed")


def test_fields_of_a_standard_library_record_are_those_of_the_line(log_lines: LogLines) -> None:
    """The store logs like this."""
    fields = {"action": "store_unavailable", "error": "the disk is full"}
    logging.getLogger("tally.store").warning("Store unavailable", extra={"fields": fields})
    [line] = log_lines()
    assert (line["action"], line["data"]) == ("store_unavailable", {"error": "the disk is full"})


def test_lines_below_the_level_are_not_written(clock: ManualClock, log_lines: LogLines) -> None:
    stream = io.StringIO()
    logs.configure(Settings(log_format="json", log_level="warning"), clock, stream)
    logs.logger().info("Quiet")
    logging.getLogger("library").info("Quiet")
    logs.logger().warning("Loud")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["Loud"]


def test_the_text_format_is_readable(clock: ManualClock, log_lines: LogLines) -> None:
    """It has time, level, message and fields, with secrets masked."""
    stream = io.StringIO()
    logs.configure(Settings(log_format="text"), clock, stream)
    with logs.bound(request_id="r-1"):
        logs.logger().info(
            "Device registered", action="register", hardware="AA", api_key="hidden-value"
        )
    line = stream.getvalue()
    assert line.startswith("12:00:00.000 [info     ] Device registered")
    assert "hardware=AA" in line
    assert "requestId=r-1" in line
    assert "hidden-value" not in line


def test_auto_is_json_without_a_terminal(clock: ManualClock, log_lines: LogLines) -> None:
    stream = io.StringIO()
    logs.configure(Settings(), clock, stream)
    logs.logger().info("Hello")
    assert json.loads(stream.getvalue())["message"] == "Hello"


awkward = (
    st.text()
    | st.binary()
    | st.floats()
    | st.integers()
    | st.dates()
    | st.sets(st.integers())
    | st.none()
)


@given(st.text(), st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), awkward))
def test_any_content_is_one_line_of_json(message: str, data: dict[str, Any]) -> None:
    """Newlines, surrogates, NaN and bytes break neither the line nor the program."""
    stream = io.StringIO()
    entry = logs._Entry(ManualClock(), "tally")(None, "info", {"event": message, **data})
    stream.write(logs._render_json(None, "info", entry))
    [line] = stream.getvalue().split("\n")
    assert set(json.loads(line)) == set(FIELDS)


def test_debug_output_of_libraries_is_omitted(log_lines: LogLines) -> None:
    """It contains whole requests; info and higher levels are logged."""
    library = logging.getLogger("some.library")
    library.debug("Sending http request: Authorization=very-secret")
    library.info("Found credentials in environment variables")
    logs.logger().debug("Our own")
    assert [line["message"] for line in log_lines()] == [
        "Found credentials in environment variables",
        "Our own",
    ]


class FullStream(io.StringIO):
    """A stream on a disk that is full until `has_space` is set."""

    has_space = False

    def write(self, text: str, /) -> int:
        if not self.has_space:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_line_that_cannot_be_written_is_counted_and_does_not_fail_its_caller(
    clock: ManualClock,
) -> None:
    stream = FullStream()
    logs.configure(Settings(), clock, stream)
    logs.logger().info("First")
    logs.logger().info("Second")
    stream.has_space = True
    logs.logger().info("Third")
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in written] == ["Log lines were lost", "Third"]
    assert written[0]["data"] == {"lines": 2}


def test_a_closed_stream_does_not_fail_its_caller(clock: ManualClock) -> None:
    stream = io.StringIO()
    logs.configure(Settings(), clock, stream)
    stream.close()
    logs.logger().error("Nobody reads this")
    assert stream.closed
