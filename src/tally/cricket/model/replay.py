"""Builds the feed of a replay: a recorded match at a point of its play, under another id.

Scorecards are computed from the balls. A replay bowls the balls at a constant rate.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from tally.cricket.model.feed import Ball, InningsFeed, MatchFeed, MatchStatus
from tally.cricket.model.scorecard import scorecards

# The average time from one delivery to the next.
BALL_SECONDS: Final = 35.0


def balls_at(seconds: float, speed: int, total: int) -> int:
    """Return the number of balls bowled after some seconds of a replay."""
    return max(0, min(total, int(seconds * speed / BALL_SECONDS)))


def replay_seconds(total: int, speed: int) -> float:
    """Return the duration of a replay."""
    return total * BALL_SECONDS / speed


def feed_at(
    recorded: MatchFeed, balls: Sequence[Ball], count: int, match_id: str, now: int
) -> MatchFeed:
    """Return the match after its first `count` balls; after the last, the recorded final feed."""
    if count >= len(balls):
        return replace(
            recorded, match_id=match_id, balls=tuple(balls), received_at=now, is_live=True
        )
    bowled = tuple(balls[:count])
    super_overs = frozenset(innings.number for innings in recorded.innings if innings.is_super_over)
    return replace(
        recorded,
        match_id=match_id,
        status=MatchStatus.IN_PLAY,
        status_text="Replay",
        is_live=True,
        received_at=now,
        innings=_with_declarations(scorecards(bowled, super_overs), recorded),
        note="",
        winner_team_id=None,
        draw_noresult=None,
        man_of_match=None,
        balls=bowled,
    )


def _with_declarations(
    cards: Sequence[InningsFeed], recorded: MatchFeed
) -> tuple[InningsFeed, ...]:
    """Copy declarations of finished innings from the recording: balls do not contain them."""
    recorded_innings = {innings.number: innings for innings in recorded.innings}
    last = cards[-1].number if cards else 0
    return tuple(
        replace(card, is_declared=recorded_innings[card.number].is_declared)
        if card.number < last and card.number in recorded_innings
        else card
        for card in cards
    )
