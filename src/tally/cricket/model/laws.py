"""The laws of cricket, as far as scores and rates follow from them: targets, what is left, why an innings ended."""

from collections.abc import Sequence
from typing import Final

from tally.cricket.model.feed import InningsFeed, MatchFeed, Overs

BALLS_PER_OVER: Final = 6
ALL_OUT: Final = 10
# In a super over a side is out when two of its three batters are.
ALL_OUT_IN_SUPER_OVER: Final = 2


def balls_in(overs: Overs) -> int:
    return overs.overs * BALLS_PER_OVER + overs.balls


def wickets_in_hand(is_super_over: bool) -> int:
    """How many wickets a side has at the start."""
    return ALL_OUT_IN_SUPER_OVER if is_super_over else ALL_OUT


def is_all_out(wickets: int, is_super_over: bool) -> bool:
    return wickets >= wickets_in_hand(is_super_over)


def overs_limit(feed: MatchFeed, innings: InningsFeed) -> int | None:
    """How many overs the innings can have; None where it has no limit."""
    if innings.is_super_over:
        return 1
    if is_chase(feed, innings) and feed.target is not None and feed.target.overs is not None:
        return feed.target.overs.overs + (feed.target.overs.balls > 0)
    return feed.total_overs


def is_chase(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the side bats last, and so knows what it needs: with limited overs, the second of a pair."""
    if feed.total_overs is not None or innings.is_super_over:
        return innings.number % 2 == 0
    return innings.number == 4


def chase_target(feed: MatchFeed, innings: InningsFeed) -> int | None:
    """The runs that win the match, or the super over; None for a side that does not bat last."""
    if not is_chase(feed, innings):
        return None
    if feed.target is not None and not innings.is_super_over:
        return feed.target.runs
    rounds = [
        each
        for each in feed.innings
        if each.number < innings.number and each.is_super_over == innings.is_super_over
    ]
    if innings.is_super_over:
        rounds = rounds[-1:]
    others = sum(each.runs for each in rounds if each.team_id != innings.team_id)
    own = sum(each.runs for each in rounds if each.team_id == innings.team_id)
    return others - own + 1 if rounds else None


def innings_end_reason(feed: MatchFeed, innings: InningsFeed) -> str:
    """Why an innings that is over has ended: all_out, target_reached, declared, overs_complete, or closed otherwise."""
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
    """Whether the scores alone prove that the innings is over, before the feed says so.

    A target is believed only where the feed states it: after rain, one run more than the others
    made need not be it.
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
    """Runs an over with two digits, as scoreboards have it; empty before the first ball."""
    if balls <= 0:
        return ""
    hundredths = (runs * BALLS_PER_OVER * 100 * 2 + balls) // (balls * 2)
    return f"{hundredths // 100}.{hundredths % 100:02d}"


def current_innings(innings: Sequence[InningsFeed]) -> InningsFeed | None:
    return max(innings, key=lambda each: each.number, default=None)
