"""Tier 0: detects events from scores only.

Scores imply events: a batter with 62 runs has scored a fifty, a bowler with four wickets has taken
a third and a fourth. This module derives all events that a scorecard implies; `history` finds the
new ones. Scores do not show the order of two fifties within a poll, or a batter who was on fire
only between two polls.
"""

from collections.abc import Iterator
from typing import Any, Final

from tally.cricket.model.events import EventKind, KeyEvent
from tally.cricket.model.feed import (
    BatterLine,
    BowlerLine,
    InningsFeed,
    MatchFeed,
    MatchStatus,
    WicketKind,
)
from tally.cricket.model.laws import has_ended, innings_end_reason

BOWLER_ON_FIRE_WICKETS: Final = 3
ON_FIRE_RUNS: Final = 30
ON_FIRE_RUNS_PER_BALL: Final = 2
OPENERS: Final = 2
MILESTONES: Final = ((50, EventKind.FIFTY), (90, EventKind.NINETIES), (100, EventKind.HUNDRED))


def milestones(before: int, after: int) -> Iterator[EventKind]:
    """Yield the milestones that a batter passes between two scores."""
    for runs, kind in MILESTONES:
        if before < runs <= after:
            yield kind


def is_on_fire(runs: int, balls: int) -> bool:
    return runs >= ON_FIRE_RUNS and runs >= balls * ON_FIRE_RUNS_PER_BALL


def innings_events(innings: InningsFeed) -> Iterator[KeyEvent]:
    """Yield the events that the scorecard of an innings implies."""
    lines = sorted(innings.batters, key=lambda line: line.sort)
    for order, line in enumerate(lines, 1):
        yield from _batter(innings, line, order)
    for line in lines:
        if line.how_out is not None and line.how_out.counts:
            details: dict[str, Any] = {
                "player": line.name,
                "runs": line.runs,
                "balls": line.balls,
                "reason": line.how_out.value,
            }
            bowler_name = next(
                (bowler.name for bowler in innings.bowlers if bowler.player_id == line.bowler_id),
                "",
            )
            other = bowler_name if line.how_out.is_credited_to_bowler else ""
            yield _event(innings, EventKind.WICKET, line.player_id, other=other, **details)
    for bowler_line in innings.bowlers:
        yield from _bowler(innings, bowler_line)


def _batter(innings: InningsFeed, line: BatterLine, order: int) -> Iterator[KeyEvent]:
    details: dict[str, Any] = {"player": line.name, "runs": line.runs, "balls": line.balls}
    has_batted = line.how_out not in {None, WicketKind.ABSENT}
    if order > OPENERS and (line.is_at_crease or line.balls or has_batted):
        yield _event(innings, EventKind.NEW_BATTER, line.player_id, player=line.name)
    for kind in milestones(0, line.runs):
        yield _event(innings, kind, line.player_id, **details)
    if is_on_fire(line.runs, line.balls):
        yield _event(innings, EventKind.BATTER_ON_FIRE, line.player_id, **details)


def _bowler(innings: InningsFeed, line: BowlerLine) -> Iterator[KeyEvent]:
    for count in range(BOWLER_ON_FIRE_WICKETS, line.wickets + 1):
        details: dict[str, Any] = {"player": line.name, "count": count, "runs": line.runs}
        yield _event(innings, EventKind.BOWLER_ON_FIRE, f"{line.player_id}:{count}", **details)


def is_innings_over(feed: MatchFeed, innings: InningsFeed) -> bool:
    """Whether the next innings has started, the feed reports the end, or the scores prove it."""
    last = max(played.number for played in feed.innings)
    if innings.number < last or feed.status.is_over or has_ended(feed, innings):
        return True
    return (
        feed.status is MatchStatus.INNINGS_BREAK
        and innings.number == last
        and innings.overs > (0, 0)
    )


def innings_end_event(feed: MatchFeed, innings: InningsFeed) -> KeyEvent:
    """Return the event for the end of an innings."""
    side = feed.side(innings.team_id)
    return KeyEvent(
        kind=EventKind.INNINGS_END,
        innings=innings.number,
        over=innings.overs.overs,
        number=innings.overs.balls,
        team_id=innings.team_id,
        score=f"{innings.runs}/{innings.wickets}",
        player=side.name if side else "",
        runs=innings.runs,
        count=innings.wickets,
        reason=innings_end_reason(feed, innings),
        is_super_over=innings.is_super_over,
    )


def match_end_event(feed: MatchFeed) -> KeyEvent:
    """Return the event for the end of the match, with the result."""
    last = max(feed.innings, key=lambda played: played.number, default=None)
    score = f"{last.runs}/{last.wickets}" if last else ""
    return KeyEvent(
        kind=EventKind.MATCH_END,
        innings=last.number if last else 0,
        score=score,
        reason=result_text(feed),
    )


def result_text(feed: MatchFeed) -> str:
    """Return the result as text: the note of the service, or a standard text."""
    if feed.note:
        return feed.note
    winner = feed.side(feed.winner_team_id or "")
    if winner is not None:
        return f"{winner.name} won"
    if feed.status is MatchStatus.FINISHED:
        return {"draw": "Match drawn", "noresult": "No result"}.get(
            feed.draw_noresult or "", "Match finished"
        )
    return {
        MatchStatus.CANCELLED: "Match cancelled",
        MatchStatus.ABANDONED: "Match abandoned",
    }.get(feed.status, "")


def _event(innings: InningsFeed, kind: EventKind, subject: str, **details: Any) -> KeyEvent:
    score, is_super_over = f"{innings.runs}/{innings.wickets}", innings.is_super_over
    common: dict[str, Any] = {
        "innings": innings.number,
        "team_id": innings.team_id,
        "is_super_over": is_super_over,
    }
    return KeyEvent(kind=kind, subject=subject, score=score, **common, **details)
