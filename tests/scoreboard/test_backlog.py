"""The backlog of Redis writes, and local rate-limit windows."""

from datetime import UTC, datetime, timedelta

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.model.scores import MAX_SCORE, Score
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.rate_limits import LocalSlidingWindows

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def score(user_id: str, points: int) -> Score:
    """Return a score whose revision grows with the points."""
    return Score(user_id, user_id, points, NOW + timedelta(seconds=points), revision=points)


def test_only_the_newest_score_of_each_player_is_queued() -> None:
    """In any order of arrival."""
    backlog = Backlog()
    for points in (10, 30, 20):
        backlog.add_score(score("ana", points))
    backlog.add_score(score("ben", 5))
    assert {queued.user_id: queued.score for queued in backlog.scores()} == {"ana": 30, "ben": 5}


def test_a_score_queued_during_a_write_stays_queued() -> None:
    backlog = Backlog()
    backlog.add_score(score("ana", 10))
    [written] = backlog.scores()
    backlog.add_score(score("ana", 20))
    backlog.mark_written(written)
    assert [queued.score for queued in backlog.scores()] == [20]
    backlog.mark_written(score("ana", 20))
    assert not backlog.has_pending_changes()


def test_a_removed_player_is_not_written_again() -> None:
    backlog = Backlog()
    backlog.add_score(score("ana", 10))
    backlog.add_removed("ana")
    backlog.add_score(score("ana", 20))
    assert (backlog.scores(), backlog.removed()) == ([], [("ana", MAX_SCORE)])
    backlog.mark_removed("ana", MAX_SCORE)
    assert not backlog.has_pending_changes()


def test_a_late_ban_neither_undoes_a_deletion_nor_drops_a_later_score() -> None:
    backlog = Backlog()
    backlog.add_removed("ana")
    backlog.add_removed("ana", 10)
    assert backlog.removed() == [("ana", MAX_SCORE)]
    backlog.add_score(score("ben", 20))
    backlog.add_removed("ben", 10)
    assert backlog.scores() == [score("ben", 20)]


def test_a_removal_queued_during_a_write_stays_queued() -> None:
    backlog = Backlog()
    backlog.add_removed("ana", 10)
    [(_, written)] = backlog.removed()
    backlog.add_removed("ana")
    backlog.mark_removed("ana", written)
    assert backlog.removed() == [("ana", MAX_SCORE)]


def test_an_overflow_drops_the_queue_and_requests_a_rebuild() -> None:
    backlog = Backlog(max_pending=3)
    for number in range(4):
        backlog.add_score(score(f"p{number}", number))
    assert backlog.needs_rebuild
    assert backlog.has_pending_changes()
    assert len(backlog) == 0


def test_above_the_limit_the_oldest_revocations_are_dropped() -> None:
    backlog = Backlog(max_pending=3)
    for number in range(5):
        backlog.add_revoked_token(str(number), NOW)
    assert [token_hash for token_hash, _ in backlog.revoked_tokens()] == ["2", "3", "4"]
    assert backlog.is_revoked_token("4")
    assert not backlog.is_revoked_token("1")


async def test_a_local_window_admits_a_request_when_the_oldest_leaves() -> None:
    clock = ManualClock()
    windows = LocalSlidingWindows(clock)
    assert [windows.hit("score", "ana", 2).is_allowed for _ in range(3)] == [True, True, False]
    await clock.advance(59.9)
    rejected = windows.hit("score", "ana", 2)
    assert (rejected.is_allowed, rejected.remaining) == (False, 0)
    assert rejected.retry_after == pytest.approx(0.1)
    await clock.advance(0.1)
    assert windows.hit("score", "ana", 2).is_allowed


def test_local_windows_evict_the_least_recently_used() -> None:
    windows = LocalSlidingWindows(ManualClock(), max_keys=2)
    assert windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "ben", 1).is_allowed
    assert not windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "cem", 1).is_allowed
    assert not windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "ben", 1).is_allowed, "evicted by cem"
