"""The Laws of Cricket: targets, remaining balls, run rates and the end of an innings."""

import re
from collections.abc import Sequence
from typing import Final

from tally.cricket.model.feed import InningsFeed, MatchFeed, MatchStatus, Overs

BALLS_PER_OVER: Final = 6
ALL_OUT: Final = 10
# A super over ends when two of the three batters are out.
ALL_OUT_IN_SUPER_OVER: Final = 2
# With nine batters out, absent or retired, the last two bat.
LAST_PARTNERSHIP: Final = 9
# One ball can pass a target by six runs: six off a no-ball, with one run needed.
MAX_RUNS_PAST_TARGET: Final = 6
# Types of matches with unlimited overs.
MULTI_DAY_TYPES: Final = frozenset({"4day", "Test", "Test/5day"})

_BY_RUNS: Final = re.compile(r"\bby (?:an innings and )?\d+ runs?\b", re.IGNORECASE)
# Duckworth, Lewis and Stern, or Jayadevan: the result compares with a par score.
_METHOD: Final = re.compile(r"\b(?:D/?L|DLS|VJD|method)\b", re.IGNORECASE)


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
    if has_no_partner(innings):
        return "all_out"
    if is_ahead_of_par(feed, innings):
        return "closed"
    target = chase_target(feed, innings)
    if target is not None and innings.runs >= target:
        return "target_reached"
    if innings.is_declared or _must_be_declared(feed, innings):
        return "declared"
    overs = overs_limit(feed, innings)
    if overs is not None and innings.overs.overs >= overs:
        return "overs_complete"
    if _lost_by_runs(feed, innings) or _lacks_last_batter(innings):
        return "all_out"
    return "closed"


def has_no_partner(innings: InningsFeed) -> bool:
    """Whether fewer than two batters are left: the others are out, absent or retired."""
    return _unavailable(innings) >= wickets_in_hand(innings.is_super_over)


def _unavailable(innings: InningsFeed) -> int:
    if innings.is_super_over:  # Any three of the players bat, so another one replaces them.
        return innings.wickets
    kinds = [line.how_out for line in innings.batters if line.how_out is not None]
    return innings.wickets + sum(not kind.counts for kind in kinds)


def _lacks_last_batter(innings: InningsFeed) -> bool:
    """Whether the innings ended without a partner for the last batter, who is not listed."""
    not_out = sum(line.how_out is None for line in innings.batters)
    return not innings.is_super_over and not_out == 1 and _unavailable(innings) == LAST_PARTNERSHIP


def is_ahead_of_par(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the side batting second won by runs: its innings ended early, ahead of par.

    The service then states the par score as the target. A side that reaches a target wins by
    wickets, with the ball that reaches it.
    """
    if not feed.status.is_over or feed.target is None or not is_chase(feed, innings):
        return False
    if feed.winner_team_id == innings.team_id and _BY_RUNS.search(feed.note):
        return True
    return innings.runs - feed.target.runs > MAX_RUNS_PAST_TARGET


def _lost_by_runs(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the side batting last lost by runs without a revised target: it was all out.

    The service may not list the absent batter.
    """
    return (
        feed.status.is_over
        and feed.target is None
        and is_last_innings(feed, innings)
        and feed.winner_team_id not in {None, innings.team_id}
        and _BY_RUNS.search(feed.note) is not None
        and _METHOD.search(feed.note) is None
    )


def _must_be_declared(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether only a declaration explains the end, because the overs are unlimited."""
    if feed.match_type not in MULTI_DAY_TYPES or innings.is_super_over:
        return False
    return not is_last_innings(feed, innings) or feed.status is MatchStatus.INNINGS_BREAK


def is_last_innings(feed: MatchFeed, innings: InningsFeed) -> bool:
    return innings.number == max(played.number for played in feed.innings)


def has_ended(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the scores prove that the innings is over, before the feed reports it.

    Passing a stated target proves nothing: after rain it may be the par score, and play continues.
    Only the result tells.
    """
    if is_all_out(innings.wickets, innings.is_super_over) or innings.is_declared:
        return True
    is_past_target = feed.target is not None and innings.runs >= feed.target.runs
    if is_past_target and is_chase(feed, innings) and not innings.is_super_over:
        return False
    overs = overs_limit(feed, innings)
    return overs is not None and innings.overs.overs >= overs


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
