"""The history of a player on the console."""

from datetime import UTC, datetime

import pytest

from tally.console.players import changed_scores
from tally.scoreboard.model.boards import BoardChange
from tally.scoreboard.model.scores import ScoreEvent

CUP = BoardChange("cup", 1, 3, 1_007)


@pytest.mark.parametrize(
    ("before", "after", "boards", "expected"),
    [
        (0, 1_007, (), ["to 1,007"]),
        (5, 12, (CUP,), ["to 12", "cup: 1,007"]),
        # An action of named boards alone, or an adjustment of one.
        (12, 12, (CUP,), ["cup: 1,007"]),
    ],
)
def test_the_history_shows_the_scores_that_changed(
    before: int, after: int, boards: tuple[BoardChange, ...], expected: list[str]
) -> None:
    event = ScoreEvent(
        event_id="e1",
        user_id=None,
        action_id="a1",
        score_delta=7,
        score_before=before,
        score_after=after,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        boards=boards,
    )
    assert changed_scores(event) == expected
