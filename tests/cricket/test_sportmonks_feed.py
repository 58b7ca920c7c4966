"""Matches from the simulator through the gateway have the scores that were played."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from tally.cricket.model.feed import (
    InningsFeed,
    MatchFeed,
    MatchStatus,
    Overs,
    Target,
    Toss,
    WicketKind,
)
from tally.cricket.sportmonks import payloads
from tally.cricket.sportmonks.translation import translate_match
from tally.kit.clock import ManualClock
from tally.sim.sportmonks.cricsheet import bundled_match, read_match
from tally.sim.sportmonks.match import Match
from tally.sim.sportmonks.mistakes import Misreport, Mistakes
from tally.sim.sportmonks.playback import MatchPlayback
from tests.cricket.sportmonks_harness import open_sportmonks
from tests.recorded import NAMES, expected, recorded
from tests.sim.match_files import AWAY, HOME, build_match, delivery, documents, innings

EXTRAS = {
    "wides": "wides",
    "noballs": "noballs",
    "byes": "byes",
    "legbyes": "leg_byes",
    "penalty": "penalty",
}


def expect_consistent(feed: MatchFeed) -> None:
    """Check that totals match the balls, the batters and the extras."""
    assert feed.balls is not None
    ids = [ball.id for ball in feed.balls]
    assert ids == sorted(set(ids))
    for card in feed.innings:
        balls = [ball for ball in feed.balls if ball.innings == card.number]
        assert card.extras is not None
        assert sum(batter.runs for batter in card.batters) + card.extras.total == card.runs
        assert sum(ball.runs_total for ball in balls) == card.runs
        assert sum(ball.wicket is not None and ball.wicket.counts for ball in balls) == card.wickets
        assert sum(ball.runs_against_bowler for ball in balls) == sum(
            bowler.runs for bowler in card.bowlers
        )
        credited = sum(
            ball.wicket is not None and ball.wicket.is_credited_to_bowler for ball in balls
        )
        assert credited == sum(bowler.wickets for bowler in card.bowlers)


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_match_is_translated_exactly(name: str) -> None:
    """Totals match in every poll; the final scorecards match the reference."""
    async with open_sportmonks(recorded(name)) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        match.step()
        last = len(match.steps) - 1  # the result; coverage ends after it
        while match.position < last:
            match.step(min(7, last - match.position))
            expect_consistent(await scores.feed_of(match))
        expect_scorecards(await scores.feed_of(match), name)


def expect_scorecards(feed: MatchFeed, name: str) -> None:
    wanted = expected(name)
    assert feed.note == wanted["result"]
    assert feed.is_super_over == wanted["super_over"]
    assert feed.status is (
        MatchStatus.ABANDONED if wanted["result"] == "No result" else MatchStatus.FINISHED
    )
    for card, expected_card in zip(feed.innings, wanted["innings"], strict=True):
        side = feed.side(card.team_id)
        assert side is not None
        assert side.name == expected_card["team"]
        expect_innings(card, expected_card)


def expect_innings(card: InningsFeed, expected_card: Mapping[str, Any]) -> None:
    assert (card.number, card.is_super_over, card.runs, card.wickets, str(card.overs)) == tuple(
        expected_card[field] for field in ("innings", "super_over", "runs", "wickets", "overs")
    )
    assert card.extras is not None
    found = {
        theirs: getattr(card.extras, ours)
        for theirs, ours in EXTRAS.items()
        if getattr(card.extras, ours)
    }
    assert found == expected_card["extras"]
    assert [
        (
            batter.name,
            batter.runs,
            batter.balls,
            batter.fours,
            batter.sixes,
            "not out" if batter.how_out is None else batter.how_out.value,
        )
        for batter in card.batters
    ] == [
        tuple(line[field] for field in ("name", "runs", "balls", "fours", "sixes", "how_out"))
        for line in expected_card["batters"]
    ]
    bowler_fields = ("name", "wickets", "runs", "overs", "maidens", "wides", "noballs")
    assert [
        (
            bowler.name,
            bowler.wickets,
            bowler.runs,
            f"{bowler.overs}.{bowler.balls}",
            bowler.maidens,
            bowler.wides,
            bowler.noballs,
        )
        for bowler in card.bowlers
    ] == [tuple(line[field] for field in bowler_fields) for line in expected_card["bowlers"]]


async def test_every_ball_of_the_bundled_match_is_translated() -> None:
    async with open_sportmonks(bundled_match()) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        seen = 0
        while match.deliver():
            feed = await scores.feed_of(match)
            expect_consistent(feed)
            assert feed.balls is not None
            seen += 1
            assert len(feed.balls) == seen
            assert feed.status in {MatchStatus.IN_PLAY, MatchStatus.INNINGS_BREAK}
            assert feed.is_live
            at_crease = [batter.name for batter in feed.innings[-1].batters if batter.is_at_crease]
            assert len(at_crease) == (2 if feed.balls[-1].wicket is None else 1)
            assert [bowler.name for bowler in feed.innings[-1].bowlers if bowler.is_bowling] == [
                feed.balls[-1].bowler_name
            ]
        assert seen > 90
        feed = await scores.feed_of(match)
        assert (feed.total_overs, feed.target) == (8, None)


async def test_balls_are_included_for_marquee_leagues_in_one_request() -> None:
    async with open_sportmonks(bundled_match(1)) as scores:
        (marquee,) = scores.sportmonks.playbacks.values()
        other = scores.sportmonks.add(build_match(innings(HOME, [delivery(4)] * 6)))
        other.deliver(3)
        assert [feed.balls for feed in (await scores.gateway.live()).feeds] == [None]
        assert scores.polls == 1
        marquee.deliver(2)
        poll = await scores.gateway.live()
        assert [None if feed.balls is None else len(feed.balls) for feed in poll.feeds] == [2, None]
        assert poll.match_ids == {"1", "77"}
        assert (
            scores.polls == 3
        )  # a second request includes balls as soon as a marquee match is live
        await scores.gateway.live()
        assert scores.polls == 4


async def test_one_match_can_be_requested() -> None:
    async with open_sportmonks(bundled_match(1)) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        match.step(len(match.steps))
        assert (await scores.gateway.live()).match_ids == frozenset()
        feed = await scores.gateway.match("1")
        assert feed is not None
        assert feed.balls is not None
        assert (feed.status, feed.man_of_match, feed.winner_team_id) == (
            MatchStatus.FINISHED,
            "S Winterbourne",
            str(match.match.team_id("Harbour Herons")),
        )
        assert await scores.gateway.match("2") is None


async def test_the_toss_is_known_before_the_match_starts() -> None:
    async with open_sportmonks(bundled_match(1)) as scores:
        (match,) = scores.sportmonks.playbacks.values()
        match.step()
        feed = await scores.feed_of(match)
        assert (feed.status, feed.is_live, feed.innings, feed.balls) == (
            MatchStatus.NOT_STARTED,
            False,
            (),
            (),
        )
        assert feed.toss is not None
        assert (feed.toss.team_id, feed.toss.elected) == (
            str(match.match.team_id("Meadow Hares")),
            "bowling",
        )
        assert feed.starts_at == "2026-01-01T00:30:00Z"


@pytest.mark.parametrize(
    ("text", "status", "is_live"),
    [
        ("Lunch", MatchStatus.BREAK, True),
        ("Tea Break", MatchStatus.BREAK, True),
        ("Stump Day 3", MatchStatus.BREAK, True),
        ("Int.", MatchStatus.DELAYED, True),
        ("Delayed", MatchStatus.DELAYED, True),
        ("Postp.", MatchStatus.POSTPONED, False),
        ("Cancl.", MatchStatus.CANCELLED, False),
        ("Aban.", MatchStatus.ABANDONED, False),
        ("4th Innings", MatchStatus.IN_PLAY, True),
        ("Something new", MatchStatus.DELAYED, True),
    ],
)
def test_every_status_is_mapped(text: str, status: MatchStatus, is_live: bool) -> None:
    broadcast = MatchPlayback(bundled_match(), ManualClock())
    broadcast.deliver()
    broadcast.status = text
    feed = feed_of(broadcast)
    assert (feed.status, feed.status_text, feed.is_live) == (status, text, is_live)


def feed_of(broadcast: MatchPlayback) -> MatchFeed:
    """Translate a fixture without a socket."""
    return translate_match(
        msgspec.json.decode(
            msgspec.json.encode(broadcast.fixture()), type=payloads.SportMonksFixture, strict=False
        ),
        0,
    )


def translate(match: Match) -> MatchFeed:
    broadcast = MatchPlayback(match, ManualClock())
    broadcast.finish()
    return feed_of(broadcast)


def test_a_correction_has_the_id_of_its_ball() -> None:
    broadcast = MatchPlayback(
        bundled_match(),
        ManualClock(),
        mistakes=Mistakes(wrong={1: Misreport("dot", until=1)}, twice=frozenset({0})),
    )
    broadcast.deliver(2)
    before = feed_of(broadcast).balls
    broadcast.deliver(1)
    after = feed_of(broadcast).balls
    assert before is not None
    assert after is not None
    assert [ball.id for ball in before] == [ball.id for ball in after[:2]]
    assert (before[1].runs_bat, after[1].runs_bat, after[1].is_boundary_four) == (0, 4, True)
    assert before[1].updated_at != after[1].updated_at


def test_kinds_of_wickets_are_translated() -> None:
    kinds = {
        "bowled": WicketKind.BOWLED,
        "caught": WicketKind.CAUGHT,
        "caught and bowled": WicketKind.CAUGHT_AND_BOWLED,
        "lbw": WicketKind.LBW,
        "stumped": WicketKind.STUMPED,
        "hit wicket": WicketKind.HIT_WICKET,
        "run out": WicketKind.RUN_OUT,
        "obstructing the field": WicketKind.OBSTRUCTING,
        "handled the ball": WicketKind.HANDLED_BALL,
        "hit the ball twice": WicketKind.HIT_TWICE,
        "timed out": WicketKind.TIMED_OUT,
        "retired out": WicketKind.RETIRED_OUT,
        "retired hurt": WicketKind.RETIRED_HURT,
        "retired not out": WicketKind.RETIRED_NOT_OUT,
        "something new": WicketKind.OTHER,
    }
    balls = [
        delivery(batter=f"{kind} batter", wickets=[{"kind": kind, "player_out": f"{kind} batter"}])
        for kind in kinds
    ]
    feed = translate(build_match(innings(HOME, balls)))
    assert feed.balls is not None
    assert [ball.wicket and ball.wicket.kind for ball in feed.balls] == list(kinds.values())
    how = {batter.name: batter.how_out for batter in feed.innings[0].batters}
    assert [how[f"{kind} batter"] for kind in kinds] == list(kinds.values())


def test_a_wicket_without_a_ball_is_not_a_delivery() -> None:
    both = [
        {"kind": "caught", "player_out": "A Player"},
        {"kind": "timed out", "player_out": "C Player"},
    ]
    feed = translate(build_match(innings(HOME, [delivery(wickets=both)])))
    assert feed.balls is not None
    assert [(ball.is_delivery, ball.is_legal, ball.runs_total) for ball in feed.balls] == [
        (True, True, 0),
        (False, False, 0),
    ]
    assert [ball.wicket and ball.wicket.counts for ball in feed.balls] == [True, True]
    assert feed.innings[0].wickets == 2


def test_a_revised_target_has_overs_and_balls() -> None:
    chase = innings(AWAY, [delivery(1)], target={"runs": 90, "overs": 11.3})
    feed = translate(
        build_match(
            innings(HOME, [delivery(1)]),
            chase,
            outcome={"winner": HOME, "by": {"runs": 3}, "method": "D/L"},
        )
    )
    assert feed.target is not None
    assert (feed.target.runs, feed.target.overs, feed.total_overs) == (90, Overs(11, 3), 20)


@given(documents)
@settings(max_examples=40)
def test_any_match_is_consistent(made: dict[str, object]) -> None:
    broadcast = MatchPlayback(read_match(msgspec.json.encode(made)), ManualClock())
    while broadcast.position < len(broadcast.steps):
        broadcast.step(9)
        feed = feed_of(broadcast)
        assert [card.number for card in feed.innings] == list(range(1, len(feed.innings) + 1))
        for card in feed.innings:
            assert card.extras is not None
            assert sum(batter.runs for batter in card.batters) + card.extras.total == card.runs


# Numbers as text, nulls, whole overs, no line-up, and relations that are not included.
SPARSE_FIXTURE: Mapping[str, Any] = {
    "resource": "fixtures",
    "id": 28_001,
    "league_id": "3",
    "season_id": None,
    "round": None,
    "localteam_id": 37,
    "visitorteam_id": 36,
    "starting_at": "2026-08-06T12:00:00.000000Z",
    "type": "T20I",
    "live": True,
    "status": "2nd Innings",
    "note": None,
    "toss_won_team_id": 37,
    "elected": None,
    "super_over": False,
    "rpc_overs": "17.3",
    "rpc_target": 120,
    "localteam_dl_data": {"score": None, "overs": None, "wickets_out": None},
    "runs": [
        {"team_id": 37, "inning": 1, "score": 127, "wickets": 9, "overs": 20, "pp1": "1-6"},
        {"team_id": 36, "inning": 2, "score": None, "wickets": None, "overs": None},
    ],
    "batting": [
        {
            "scoreboard": "S1",
            "player_id": 5,
            "sort": 1,
            "score": 50,
            "ball": "44",
            "rate": 113,
            "bowling_player_id": 9,
        },
        {
            "scoreboard": "S1",
            "player_id": 6,
            "sort": 2,
            "score": 8,
            "ball": 7,
            "runout_by_id": 9,
            "active": False,
        },
        {
            "scoreboard": "S1",
            "player_id": 7,
            "sort": 3,
            "score": 3,
            "ball": 4,
            "active": True,
            "result": {"name": "Not Out"},
        },
    ],
    "bowling": [
        {
            "scoreboard": "S1",
            "player_id": 9,
            "team_id": 36,
            "overs": 3.2,
            "medians": 0,
            "runs": 16,
            "rate": 4.8,
        }
    ],
    "weather_report": [],
}


def test_an_incomplete_fixture_is_translated() -> None:
    feed = translate_match(
        msgspec.json.decode(
            msgspec.json.encode(SPARSE_FIXTURE), type=payloads.SportMonksFixture, strict=False
        ),
        5,
    )
    first, second = feed.innings
    assert (feed.league_id, feed.season_id, feed.note, feed.balls) == ("3", "", "", None)
    assert feed.target == Target(120, Overs(17, 3))
    assert feed.toss == Toss("37", "")
    assert (first.runs, first.overs, first.extras) == (127, Overs(20, 0), None)
    assert (second.runs, second.wickets, second.overs) == (0, 0, Overs(0, 0))
    assert [batter.how_out for batter in first.batters] == [
        WicketKind.OTHER,
        WicketKind.RUN_OUT,
        None,
    ]
    assert [batter.is_at_crease for batter in first.batters] == [False, False, True]
    assert [(bowler.overs, bowler.balls, bowler.name) for bowler in first.bowlers] == [(3, 2, "")]
