"""A recorded match as it stood at any moment of its play, under another id: what a replay shows.

The balls are all that is needed: scorecards follow from them. Between the balls of a recording the
pace is made even.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed, MatchStatus
from tally.cricket.model.scorecard import scorecards

# About what a delivery takes, from one to the next.
BALL_SECONDS: Final = 35.0


def balls_at(seconds: float, speed: int, total: int) -> int:
    """How many balls of a replay have been bowled after so many seconds."""
    return max(0, min(total, int(seconds * speed / BALL_SECONDS)))


def replay_seconds(total: int, speed: int) -> float:
    """Seconds that a replay of so many balls takes."""
    return total * BALL_SECONDS / speed


def feed_at(
    recorded: MatchFeed, balls: Sequence[Ball], count: int, match_id: str, now: int
) -> MatchFeed:
    """The match after its first `count` balls; after the last one it is as it was recorded in the end."""
    if count >= len(balls):
        return replace(
            recorded, match_id=match_id, balls=tuple(balls), received_at=now, is_live=True
        )
    bowled = tuple(balls[:count])
    supers = frozenset(innings.number for innings in recorded.innings if innings.is_super_over)
    return replace(
        recorded,
        match_id=match_id,
        status=MatchStatus.IN_PLAY,
        status_text="Replay",
        is_live=True,
        received_at=now,
        innings=_with_teams(scorecards(bowled, supers), recorded),
        note="",
        winner_team_id=None,
        draw_noresult=None,
        man_of_match=None,
        balls=bowled,
    )


def _with_teams(cards: Sequence[InningsFeed], recorded: MatchFeed) -> tuple[InningsFeed, ...]:
    """Declarations are not in the balls: an innings that is over was closed as it was recorded."""
    known = {innings.number: innings for innings in recorded.innings}
    last = cards[-1].number if cards else 0
    return tuple(
        replace(card, is_declared=known[card.number].is_declared)
        if card.number < last and card.number in known
        else card
        for card in cards
    )
