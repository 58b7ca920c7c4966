"""Example bodies of the OpenAPI document: a fictional match and its followers."""

from typing import Final

from tally.cricket.api.schemas.admin import MatchStateBody
from tally.cricket.api.schemas.matches import (
    DisplayBody,
    MatchBody,
    MatchLeagueBody,
    MatchTeamBody,
    TossBody,
)
from tally.cricket.api.schemas.reference import LeagueBody, SeasonTeamBody, TeamBody
from tally.cricket.api.schemas.scorecards import (
    BatterBody,
    BowlerBody,
    ExtrasBody,
    InningsBody,
    ScorecardBody,
    TimelineEventBody,
)
from tally.cricket.api.schemas.users import (
    ActivityBody,
    FollowBody,
    SubscriptionBody,
    UserDeviceBody,
)
from tally.cricket.model.events import AlertChoice

TIME_MS: Final = 1_794_751_200_000
START_TIME: Final = "2026-11-15T14:00:00Z"
TEAM: Final = TeamBody(
    "5", "Rovers", "ROV", "https://example.org/rov.png", "17", False, "#1b5e20", TIME_MS
)
LEAGUE: Final = LeagueBody("10", "Harbour League", "HBL", "1484", "17", "", "league", True, TIME_MS)
SEASON_TEAM: Final = SeasonTeamBody(
    "1484", "5", "10", "Rovers", "ROV", {"played": 3, "won": 2}, TIME_MS
)
MATCH: Final = MatchBody(
    match_id="65001",
    league=MatchLeagueBody("10", "HBL", "Harbour League", ""),
    season_id="1484",
    teams=[
        MatchTeamBody("5", "Rovers", "ROV", "", ["153/9 (20.0)"]),
        MatchTeamBody("6", "Gulls", "GUL", "", ["41/2 (5.3)"]),
    ],
    match_type="T20",
    start_time=START_TIME,
    status="in_play",
    is_live=True,
    is_stale=False,
    is_over=False,
    round="Final",
    venue_id="92",
    note="",
    toss=TossBody("5", "batting"),
    winner_team_id=None,
    replay_of=None,
    updated_at=TIME_MS,
)
SCORECARD: Final = ScorecardBody(
    match_id="65001",
    status="in_play",
    is_live=True,
    is_stale=False,
    is_over=False,
    note="",
    winner_team_id=None,
    innings=[
        InningsBody(
            number=1,
            team_id="5",
            is_super_over=False,
            runs=153,
            wickets=9,
            overs="20.0",
            is_declared=False,
            extras=ExtrasBody(8, 5, 1, 1, 1, 0),
            batters=[BatterBody("31", "A. Byrne", 52, 40, 6, 1, False, "bowled", "44")],
            bowlers=[BowlerBody("44", "K. Osei", "4.0", 0, 28, 3, 2, 0, False)],
        )
    ],
    updated_at=TIME_MS,
)
TIMELINE_EVENT: Final = TimelineEventBody(
    kind="fifty",
    innings=1,
    ball="14.2",
    at=TIME_MS,
    team_id="5",
    score="112/4",
    player="A. Byrne",
    title="Fifty",
    text="A. Byrne reaches 50 from 38 balls",
    is_alert=True,
)
DISPLAY_CONTENT: Final = {
    "matchId": "65001",
    "view": "neutral",
    "status": "in_play",
    "teams": [
        {"id": "5", "name": "Rovers", "code": "ROV", "score": "153/9", "overs": "20.0"},
        {
            "id": "6",
            "name": "Gulls",
            "code": "GUL",
            "score": "41/2",
            "overs": "5.3",
            "isBatting": True,
        },
    ],
    "lines": {
        "lockScreen": "ROV 153/9, GUL 41/2 · FOUR! Ames off Dunn",
        "compactLeading": "GUL 41/2",
        "compactTrailing": "(5.3)",
        "minimal": "41/2",
    },
    "timestamp": TIME_MS // 1000,
    "innings": 2,
    "lastBalls": ["1", ".", "4"],
    "runRate": "7.45",
    "need": "GUL need 113 off 87",
}
DISPLAY: Final = DisplayBody("65001", "neutral", DISPLAY_CONTENT, TIME_MS, False)
DISPLAY_EVENT: Final = {"matchId": "65001", "teamId": "neutral", "display": DISPLAY_CONTENT}
USER_DEVICE: Final = UserDeviceBody(
    "8f2c1a90b4",
    "A1B2-C3D4",
    "ios",
    "18.2",
    "4.1.0",
    True,
    TIME_MS,
    TIME_MS,
    TIME_MS // 1000 + 7_776_000,
)
FOLLOW: Final = FollowBody(
    "65001", "5", AlertChoice.ALL, TIME_MS, TIME_MS // 1000 + 172_800, DISPLAY_CONTENT
)
SUBSCRIPTION: Final = SubscriptionBody("65001", None, TIME_MS, TIME_MS // 1000 + 172_800)
ACTIVITY: Final = ActivityBody("65001", "A1B2-C3D4", "active", None, None, TIME_MS, TIME_MS)
NEW_USER_DEVICE: Final = {
    "deviceToken": "8f2c1a90b4",
    "deviceId": "A1B2-C3D4",
    "platform": "ios",
    "osVersion": "18.2",
}
MATCH_STATE: Final = MatchStateBody(
    "65001",
    "polling",
    "a1b2",
    TIME_MS,
    412,
    {"six:77": TIME_MS},
    650_010_412,
    {"neutral": "9b1c"},
    {"active": 2},
    2,
    None,
)
