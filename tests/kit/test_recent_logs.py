"""The buffer of recent log lines: bounded, masked, and filtered."""

import io
from collections.abc import Iterator

import pytest
import structlog

from tally.kit import logs
from tally.kit.clock import ManualClock
from tally.kit.recent_logs import RecentLogs, keep_recent_logs
from tally.settings import Settings


@pytest.fixture
def recent() -> Iterator[RecentLogs]:
    before = structlog.get_config()
    logs.configure(Settings(log_level="info"), ManualClock(), io.StringIO())
    yield keep_recent_logs()
    structlog.configure(**before)


def messages(found: list[object]) -> list[str]:
    return [str(line["message"]) for line in found if isinstance(line, dict)]


def test_lines_are_found_by_request_level_and_text_newest_first(recent: RecentLogs) -> None:
    log = logs.logger()
    for request_id in ("first", "second"):
        with logs.bound(request_id=request_id):
            log.info("Request received", path=f"/{request_id}")
            log.warning("Request failed")
    log.debug("Below the level")
    assert messages([*recent.find(limit=3)]) == [
        "Request failed",
        "Request received",
        "Request failed",
    ]
    assert len(recent.find(limit=9)) == 4
    of_first = recent.find(request_id="first", limit=9)
    assert messages([*of_first]) == ["Request failed", "Request received"]
    assert {line["requestId"] for line in of_first} == {"first"}
    assert messages([*recent.find(level="warning", limit=9)]) == ["Request failed"] * 2
    assert len(recent.find(text="/SECOND", limit=9)) == 1


def test_kept_lines_have_no_secrets(recent: RecentLogs) -> None:
    logs.logger().info("Sign-in with Bearer abcdefgh", token="do-not-keep")
    [line] = recent.find(limit=9)
    assert line["data"] == {"token": "***"}
    assert "abcdefgh" not in str(line)


def test_the_oldest_lines_are_dropped() -> None:
    recent = RecentLogs(limit=2)
    for number in range(3):
        recent(None, "", {"message": number, "level": "info", "requestId": None})
    assert [line["message"] for line in recent.find(limit=9)] == [2, 1]
