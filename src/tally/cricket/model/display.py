"""Builds display states: what a Lock Screen or page displays of a match, one state per view.

The neutral view lists the teams in the order of the fixture. A team's view lists that team first,
phrases the chase for it ("need" or "must defend") and says whether the event is good or bad for it.
Everything else is the same in all views.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tally.cricket.model.event_texts import event_mood, event_sentence, event_title
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import (
    Ball,
    BatterLine,
    BowlerLine,
    InningsFeed,
    MatchFeed,
    MatchStatus,
    Side,
)
from tally.cricket.model.laws import balls_in, balls_left, chase_target, current_innings, run_rate
from tally.cricket.model.records import NEUTRAL
from tally.cricket.model.tier0 import result_text

MAX_DISPLAYED_BALLS: Final = 12


class DisplayPart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of a display state; empty fields are omitted."""


class TeamDisplay(DisplayPart, frozen=True):
    """A team. `score` is empty until it has batted and joins two innings as `"401 & 102/3"`."""

    id: str
    name: str
    code: str
    score: str = ""
    overs: str = ""
    is_batting: bool = False


class BatterDisplay(DisplayPart, frozen=True):
    name: str
    runs: int
    balls: int
    is_on_strike: bool = False


class BowlerDisplay(DisplayPart, frozen=True):
    name: str
    figures: str
    overs: str


class EventDisplay(DisplayPart, frozen=True):
    """The displayed event; `mood` is "for", "against" or "neutral"."""

    kind: str
    title: str
    text: str = ""
    mood: str = "neutral"


class DisplayLines(DisplayPart, frozen=True):
    """One line per presentation of a Live Activity."""

    lock_screen: str
    compact_leading: str
    compact_trailing: str
    minimal: str
    expanded: str = ""


class DisplayState(DisplayPart, frozen=True):
    """The display state of a match for one view, with one field per displayed value.

    `timestamp`, in epoch seconds, never decreases within a match. `is_stale` marks scores that may
    be outdated.
    """

    match_id: str
    view: str
    status: str
    teams: tuple[TeamDisplay, TeamDisplay]
    lines: DisplayLines
    timestamp: int
    status_text: str = ""
    innings: int = 0
    is_super_over: bool = False
    batters: tuple[BatterDisplay, ...] = ()
    bowler: BowlerDisplay | None = None
    last_balls: tuple[str, ...] = ()
    run_rate: str = ""
    required_rate: str = ""
    target: int = 0
    need: str = ""
    result: str = ""
    key_event: EventDisplay | None = None
    is_stale: bool = False


def build_display(
    feed: MatchFeed,
    view: str = NEUTRAL,
    *,
    timestamp: int,
    key_event: KeyEvent | None = None,
    balls: Sequence[Ball] = (),
    is_stale: bool = False,
) -> DisplayState:
    """Build the display state of a match for a team's view or the neutral one."""
    current = current_innings(feed.innings)
    sides = (
        sorted(feed.teams, key=lambda side: side.team_id != view)
        if view != NEUTRAL
        else list(feed.teams)
    )
    teams = (_team(feed, sides[0], current), _team(feed, sides[1], current))
    need = _need(feed, current, view)
    innings = current.number if current is not None else 0
    target = chase_target(feed, current) if current is not None else None
    return DisplayState(
        feed.match_id,
        view,
        feed.status.value,
        teams,
        _lines(feed, teams, current, need, key_event),
        timestamp,
        status_text=feed.status_text,
        innings=innings,
        is_super_over=current is not None and current.is_super_over,
        batters=_batters(current, balls) if current is not None and not feed.status.is_over else (),
        bowler=_bowler(current) if current is not None and not feed.status.is_over else None,
        last_balls=tuple(
            ball_symbol(ball) for ball in balls if ball.is_delivery and ball.innings == innings
        )[-MAX_DISPLAYED_BALLS:],
        run_rate=run_rate(current.runs, balls_in(current.overs)) if current else "",
        required_rate=_required_rate(feed, current, target),
        target=target or 0,
        need=need,
        result=result_text(feed) if feed.status.is_over else "",
        key_event=_event(key_event, view, feed.winner_team_id) if key_event is not None else None,
        is_stale=is_stale,
    )


def ball_symbol(ball: Ball) -> str:
    """Return the notation of scorers: W, 4, 6, 1, ., 2wd, nb, 1b, 4lb."""
    if ball.wicket is not None and ball.wicket.counts:
        return "W"
    if ball.wides:
        return f"{ball.wides}wd" if ball.wides > 1 else "wd"
    if ball.noballs:
        return f"{ball.runs_total}nb" if ball.runs_total > 1 else "nb"
    if ball.leg_byes or ball.byes:
        return f"{ball.byes}b" if ball.byes else f"{ball.leg_byes}lb"
    return str(ball.runs_bat) if ball.runs_bat else "."


def score_text(innings: InningsFeed) -> str:
    return f"{innings.runs}/{innings.wickets}" + ("d" if innings.is_declared else "")


def short_name(side: Side) -> str:
    """Return the code of a team, or the initials of its name."""
    if side.code:
        return side.code
    words = side.name.split()
    return "".join(word[0] for word in words).upper() if len(words) > 1 else side.name[:3].upper()


def _team(feed: MatchFeed, side: Side, current: InningsFeed | None) -> TeamDisplay:
    in_super_over = current is not None and current.is_super_over
    batted = [
        innings
        for innings in feed.innings
        if innings.team_id == side.team_id and innings.is_super_over == in_super_over
    ]
    score = " & ".join(score_text(innings) for innings in batted)
    overs = str(batted[-1].overs) if batted else ""
    is_batting = current is not None and current.team_id == side.team_id and feed.status.is_running
    return TeamDisplay(side.team_id, side.name, short_name(side), score, overs, is_batting)


def _batters(innings: InningsFeed, balls: Sequence[Ball]) -> tuple[BatterDisplay, ...]:
    last = next((ball for ball in reversed(balls) if ball.innings == innings.number), None)
    strike = _on_strike(last) if last is not None else None
    lines: list[BatterLine] = [
        line for line in innings.batters if line.is_at_crease and line.how_out is None
    ]
    return tuple(
        BatterDisplay(line.name, line.runs, line.balls, line.player_id == strike)
        for line in lines[:2]
    )


def _on_strike(last: Ball) -> str | None:
    """Return who faces the next ball: odd runs and the end of an over swap the batters."""
    if last.wicket is not None:
        return None
    runs_run = last.runs_bat + last.byes + last.leg_byes + max(0, last.wides - 1)
    is_end_of_over = last.is_legal and last.number >= 6
    return last.striker_id if (runs_run % 2 == 0) != is_end_of_over else last.non_striker_id


def _bowler(innings: InningsFeed) -> BowlerDisplay | None:
    line: BowlerLine | None = next((line for line in innings.bowlers if line.is_bowling), None)
    return (
        None
        if line is None
        else BowlerDisplay(line.name, f"{line.wickets}/{line.runs}", f"{line.overs}.{line.balls}")
    )


def _required_rate(feed: MatchFeed, innings: InningsFeed | None, target: int | None) -> str:
    if innings is None or target is None or feed.status.is_over:
        return ""
    remaining = balls_left(feed, innings)
    return run_rate(max(0, target - innings.runs), remaining) if remaining else ""


def _need(feed: MatchFeed, innings: InningsFeed | None, view: str) -> str:
    """Describe what the chasing team needs, phrased for the view."""
    target = chase_target(feed, innings) if innings is not None else None
    if innings is None or target is None or feed.status.is_over or innings.runs >= target:
        return ""
    remaining = balls_left(feed, innings)
    runs = (
        f"{target - innings.runs} off {remaining}"
        if remaining is not None
        else f"{target - innings.runs}"
    )
    side = feed.side(innings.team_id)
    if view in {NEUTRAL, innings.team_id} or side is None:
        return f"{short_name(side)} need {runs}" if side is not None else f"need {runs}"
    return f"must defend {runs}"


def _event(event: KeyEvent, view: str, winner: str | None) -> EventDisplay:
    mood = event_mood(event, view, winner) if view != NEUTRAL else "neutral"
    return EventDisplay(event.kind.value, event_title(event), event_sentence(event), mood)


def _lines(
    feed: MatchFeed,
    teams: tuple[TeamDisplay, TeamDisplay],
    current: InningsFeed | None,
    need: str,
    event: KeyEvent | None,
) -> DisplayLines:
    batting = next(
        (team for team in teams if current is not None and team.id == current.team_id), None
    )
    score = (
        f"{batting.code} {score_text(current)}"
        if batting is not None and current is not None
        else "v"
    )
    overs = str(current.overs) if current is not None else ""
    scores = ", ".join(f"{team.code} {team.score}" for team in teams if team.score) or " v ".join(
        team.code for team in teams
    )
    if feed.status.is_over:
        message = result_text(feed)
    elif event is not None:
        message = f"{event_title(event)} {event_sentence(event)}"
    else:
        message = need or _status_message(feed)
    lock_screen = f"{scores} · {message}" if message else scores
    parts = (scores, f"{overs} ov" if overs else "", message, need if need != message else "")
    expanded = " · ".join(part for part in parts if part)
    return DisplayLines(
        lock_screen,
        score,
        f"({overs})" if overs else "",
        score_text(current) if current else "v",
        expanded,
    )


def _status_message(feed: MatchFeed) -> str:
    if feed.toss is not None and not feed.innings:
        side = feed.side(feed.toss.team_id)
        choice = {"batting": " and chose to bat", "bowling": " and chose to bowl"}
        return (
            f"{side.name} won the toss{choice.get(feed.toss.elected, '')}"
            if side is not None
            else ""
        )
    if feed.status is MatchStatus.POSTPONED:
        return "Match postponed"
    return feed.status_text if feed.status is not MatchStatus.IN_PLAY else ""
