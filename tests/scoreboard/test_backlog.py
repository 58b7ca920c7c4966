"""What waits for Redis: the latest of each player, nothing for who has left, and never more than a bound."""

from datetime import UTC, datetime, timedelta

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.model import Score
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.rate_limits import LocalSlidingWindows

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def score(user_id: str, points: int) -> Score:
    return Score(user_id, user_id, points, NOW + timedelta(seconds=points))


def test_of_each_player_the_greatest_score_waits() -> None:
    """Whatever the order in which they came."""
    backlog = Backlog()
    for points in (10, 30, 20):
        backlog.add_score(score("ana", points))
    backlog.add_score(score("ben", 5))
    assert {waiting.user_id: waiting.score for waiting in backlog.scores()} == {"ana": 30, "ben": 5}


def test_a_score_that_came_while_another_was_told_still_waits() -> None:
    backlog = Backlog()
    backlog.add_score(score("ana", 10))
    [told] = backlog.scores()
    backlog.add_score(score("ana", 20))
    backlog.mark_written(told)
    assert [waiting.score for waiting in backlog.scores()] == [20]
    backlog.mark_written(score("ana", 20))
    assert not backlog.has_pending_changes()


def test_who_has_left_is_removed_and_not_shown_again() -> None:
    backlog = Backlog()
    backlog.add_score(score("ana", 10))
    backlog.add_removed("ana")
    backlog.add_score(score("ana", 20))
    assert (backlog.scores(), backlog.removed()) == ([], ["ana"])
    backlog.mark_removed("ana")
    assert not backlog.has_pending_changes()


def test_too_many_are_let_go_and_the_board_is_to_be_rebuilt() -> None:
    backlog = Backlog(max_pending=3)
    for number in range(4):
        backlog.add_score(score(f"p{number}", number))
    assert backlog.needs_rebuild
    assert backlog.has_pending_changes()
    assert len(backlog) == 0


def test_of_too_many_void_tokens_the_oldest_are_let_go() -> None:
    backlog = Backlog(max_pending=3)
    for number in range(5):
        backlog.add_revoked_token(str(number), NOW)
    assert [token_hash for token_hash, _ in backlog.revoked_tokens()] == ["2", "3", "4"]
    assert backlog.is_revoked_token("4")
    assert not backlog.is_revoked_token("1")


async def test_a_local_window_lets_one_in_as_soon_as_the_oldest_has_left() -> None:
    clock = ManualClock()
    windows = LocalSlidingWindows(clock)
    assert [windows.hit("score", "ana", 2).is_allowed for _ in range(3)] == [True, True, False]
    await clock.advance(59.9)
    refused = windows.hit("score", "ana", 2)
    assert (refused.is_allowed, refused.remaining) == (False, 0)
    assert refused.retry_after == pytest.approx(0.1)
    await clock.advance(0.1)
    assert windows.hit("score", "ana", 2).is_allowed


def test_local_windows_are_bounded_and_forget_whom_they_have_not_seen_longest() -> None:
    windows = LocalSlidingWindows(ManualClock(), max_keys=2)
    assert windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "ben", 1).is_allowed
    assert not windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "cem", 1).is_allowed
    assert not windows.hit("score", "ana", 1).is_allowed
    assert windows.hit("score", "ben", 1).is_allowed, "forgotten when cem came"
