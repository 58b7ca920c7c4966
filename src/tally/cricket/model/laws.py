"""The Laws of Cricket: targets, remaining balls, run rates and the end of an innings."""

from collections.abc import Sequence
from typing import Final

from tally.cricket.model.feed import InningsFeed, MatchFeed, Overs

BALLS_PER_OVER: Final = 6
ALL_OUT: Final = 10
# A super over ends when two of the three batters are out.
ALL_OUT_IN_SUPER_OVER: Final = 2


def balls_in(overs: Overs) -> int:
    return overs.overs * BALLS_PER_OVER + overs.balls


def wickets_in_hand(is_super_over: bool) -> int:
    """Return the number of wickets that end an innings."""
    return ALL_OUT_IN_SUPER_OVER if is_super_over else ALL_OUT


def is_all_out(wickets: int, is_super_over: bool) -> bool:
    return wickets >= wickets_in_hand(is_super_over)


def overs_limit(feed: MatchFeed, innings: InningsFeed) -> int | None:
    """Return the maximum number of overs of an innings; None if it has no limit."""
    if innings.is_super_over:
        return 1
    if is_chase(feed, innings) and feed.target is not None and feed.target.overs is not None:
        return feed.target.overs.overs + (feed.target.overs.balls > 0)
    return feed.total_overs


def is_chase(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the team bats last and has a target: with limited overs, the second of a pair."""
    if feed.total_overs is not None or innings.is_super_over:
        return innings.number % 2 == 0
    return innings.number == 4


def chase_target(feed: MatchFeed, innings: InningsFeed) -> int | None:
    """Return the runs that win the match or super over; None if the team does not bat last."""
    if not is_chase(feed, innings):
        return None
    if feed.target is not None and not innings.is_super_over:
        return feed.target.runs
    earlier = [
        played
        for played in feed.innings
        if played.number < innings.number and played.is_super_over == innings.is_super_over
    ]
    if innings.is_super_over:
        earlier = earlier[-1:]
    opponents = sum(played.runs for played in earlier if played.team_id != innings.team_id)
    own = sum(played.runs for played in earlier if played.team_id == innings.team_id)
    return opponents - own + 1 if earlier else None


def innings_end_reason(feed: MatchFeed, innings: InningsFeed) -> str:
    """Return all_out, target_reached, declared, overs_complete or closed for a finished innings."""
    if is_all_out(innings.wickets, innings.is_super_over):
        return "all_out"
    target = chase_target(feed, innings)
    if target is not None and innings.runs >= target:
        return "target_reached"
    if innings.is_declared:
        return "declared"
    overs = overs_limit(feed, innings)
    if overs is not None and innings.overs.overs >= overs:
        return "overs_complete"
    return "closed"


def has_ended(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the scores prove that the innings is over, before the feed reports it.

    Only a target that the feed states counts: after rain, the target may differ from the
    opponents' score plus one.
    """
    if is_all_out(innings.wickets, innings.is_super_over) or innings.is_declared:
        return True
    overs = overs_limit(feed, innings)
    if overs is not None and innings.overs.overs >= overs:
        return True
    return (
        feed.target is not None
        and is_chase(feed, innings)
        and not innings.is_super_over
        and innings.runs >= feed.target.runs
    )


def balls_left(feed: MatchFeed, innings: InningsFeed) -> int | None:
    overs = overs_limit(feed, innings)
    return None if overs is None else max(0, overs * BALLS_PER_OVER - balls_in(innings.overs))


def run_rate(runs: int, balls: int) -> str:
    """Format runs per over with two decimals; empty before the first ball."""
    if balls <= 0:
        return ""
    hundredths = (runs * BALLS_PER_OVER * 100 * 2 + balls) // (balls * 2)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def current_innings(innings: Sequence[InningsFeed]) -> InningsFeed | None:
    return max(innings, key=lambda played: played.number, default=None)
