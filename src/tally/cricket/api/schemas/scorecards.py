"""Schemas of scorecards and timelines."""

from tally.cricket.api.schemas.fields import CamelCaseBody, PageLimit
from tally.cricket.model.event_texts import event_sentence, event_title
from tally.cricket.model.events import KeyEvent
from tally.cricket.model.feed import BatterLine, BowlerLine, Extras, InningsFeed
from tally.cricket.service.queries.matches import MatchView
from tally.kit.body import StrictStruct


class TimelineQuery(StrictStruct, frozen=True):
    limit: PageLimit = 50
    cursor: str | None = None


class BatterBody(CamelCaseBody, frozen=True):
    """A batter. `howOut` is null while the batter is not out, `bowlerId` if no bowler has part."""

    player_id: str
    name: str
    runs: int
    balls: int
    fours: int
    sixes: int
    is_at_crease: bool
    how_out: str | None
    bowler_id: str | None


class BowlerBody(CamelCaseBody, frozen=True):
    """A bowler. `overs` is as scorers write it: 3.2 is three overs and two balls."""

    player_id: str
    name: str
    overs: str
    maidens: int
    runs: int
    wickets: int
    wides: int
    noballs: int
    is_bowling: bool


class ExtrasBody(CamelCaseBody, frozen=True):
    total: int
    wides: int
    noballs: int
    byes: int
    leg_byes: int
    penalty: int


class InningsBody(CamelCaseBody, frozen=True):
    """An innings. `extras` is null if the score service does not report them."""

    number: int
    team_id: str
    is_super_over: bool
    runs: int
    wickets: int
    overs: str
    is_declared: bool
    extras: ExtrasBody | None
    batters: list[BatterBody]
    bowlers: list[BowlerBody]


class ScorecardBody(CamelCaseBody, frozen=True):
    """`innings` is empty before the start, and 30 days after a match. `updatedAt` is then null."""

    match_id: str
    status: str
    is_live: bool
    is_stale: bool
    is_over: bool
    note: str
    winner_team_id: str | None
    innings: list[InningsBody]
    updated_at: int | None


class TimelineEventBody(CamelCaseBody, frozen=True):
    """A key event. `ball` is null if the event follows from the score only.

    `at` is the time of its publication in epoch milliseconds, null if that was not recorded.
    """

    kind: str
    innings: int
    ball: str | None
    at: int | None
    team_id: str
    score: str
    player: str
    title: str
    text: str
    is_alert: bool


class TimelinePage(CamelCaseBody, frozen=True):
    items: list[TimelineEventBody]
    next_cursor: str | None


def scorecard_body(view: MatchView) -> ScorecardBody:
    fixture, cached = view.fixture, view.cached
    innings = () if cached is None else cached.feed.innings
    return ScorecardBody(
        match_id=fixture.match_id,
        status=fixture.status.value,
        is_live=fixture.is_live,
        is_stale=view.is_stale,
        is_over=view.is_over,
        note=fixture.note,
        winner_team_id=fixture.winner_team_id,
        innings=[_innings_body(played) for played in innings],
        updated_at=None if cached is None or not innings else cached.cached_at,
    )


def timeline_event_body(event: KeyEvent) -> TimelineEventBody:
    return TimelineEventBody(
        kind=event.kind.value,
        innings=event.innings,
        ball=f"{event.over}.{event.number}" if event.ball_id else None,
        at=event.at or None,
        team_id=event.team_id,
        score=event.score,
        player=event.player,
        title=event_title(event),
        text=event_sentence(event),
        is_alert=event.kind.is_alert,
    )


def _innings_body(innings: InningsFeed) -> InningsBody:
    return InningsBody(
        number=innings.number,
        team_id=innings.team_id,
        is_super_over=innings.is_super_over,
        runs=innings.runs,
        wickets=innings.wickets,
        overs=str(innings.overs),
        is_declared=innings.is_declared,
        extras=None if innings.extras is None else _extras_body(innings.extras),
        batters=[_batter_body(batter) for batter in innings.batters],
        bowlers=[_bowler_body(bowler) for bowler in innings.bowlers],
    )


def _extras_body(extras: Extras) -> ExtrasBody:
    return ExtrasBody(
        extras.total, extras.wides, extras.noballs, extras.byes, extras.leg_byes, extras.penalty
    )


def _batter_body(batter: BatterLine) -> BatterBody:
    return BatterBody(
        player_id=batter.player_id,
        name=batter.name,
        runs=batter.runs,
        balls=batter.balls,
        fours=batter.fours,
        sixes=batter.sixes,
        is_at_crease=batter.is_at_crease,
        how_out=None if batter.how_out is None else batter.how_out.value,
        bowler_id=batter.bowler_id,
    )


def _bowler_body(bowler: BowlerLine) -> BowlerBody:
    return BowlerBody(
        player_id=bowler.player_id,
        name=bowler.name,
        overs=f"{bowler.overs}.{bowler.balls}",
        maidens=bowler.maidens,
        runs=bowler.runs,
        wickets=bowler.wickets,
        wides=bowler.wides,
        noballs=bowler.noballs,
        is_bowling=bowler.is_bowling,
    )
