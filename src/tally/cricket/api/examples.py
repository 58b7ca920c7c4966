"""The bodies that the OpenAPI document shows: one made-up match, and those who follow it."""

from typing import Final

from tally.cricket.api import schemas

MS: Final = 1_794_751_200_000
STARTS: Final = "2026-11-15T14:00:00Z"
TEAM: Final = schemas.TeamBody(
    "5", "Rovers", "ROV", "https://example.org/rov.png", "17", False, "#1b5e20", MS
)
LEAGUE: Final = schemas.LeagueBody(
    "10", "Harbour League", "HBL", "1484", "17", "", "league", True, MS
)
SEASON_TEAM: Final = schemas.SeasonTeamBody(
    "1484", "5", "10", "Rovers", "ROV", {"played": 3, "won": 2}, MS
)
MATCH: Final = schemas.MatchBody(
    match_id="65001",
    league=schemas.LeagueOfMatch("10", "HBL", "Harbour League", ""),
    season_id="1484",
    teams=[
        schemas.Playing("5", "Rovers", "ROV", "", ["153/9 (20.0)"]),
        schemas.Playing("6", "Gulls", "GUL", "", ["41/2 (5.3)"]),
    ],
    match_type="T20",
    start_time=STARTS,
    status="in_play",
    is_live=True,
    is_stale=False,
    is_over=False,
    round="Final",
    venue_id="92",
    note="",
    toss=schemas.TossBody("5", "batting"),
    winner_team_id=None,
    replay_of=None,
    updated_at=MS,
)
SHOWN: Final = {
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
    "timestamp": MS // 1000,
    "innings": 2,
    "lastBalls": ["1", ".", "4"],
    "runRate": "7.45",
    "need": "GUL need 113 off 87",
}
DISPLAY: Final = schemas.DisplayBody("65001", "neutral", SHOWN, MS, False)
DEVICE: Final = schemas.DeviceBody(
    "8f2c1a90b4", "A1B2-C3D4", "ios", "18.2", "4.1.0", True, MS, MS, MS // 1000 + 7_776_000
)
FOLLOW: Final = schemas.FollowBody("65001", "5", MS, MS // 1000 + 172_800, SHOWN)
SUBSCRIPTION: Final = schemas.SubscriptionBody("65001", None, MS, MS // 1000 + 172_800)
ACTIVITY: Final = schemas.ActivityBody("65001", "A1B2-C3D4", "active", None, None, MS, MS)
NEW_DEVICE: Final = {
    "deviceToken": "8f2c1a90b4",
    "deviceId": "A1B2-C3D4",
    "platform": "ios",
    "osVersion": "18.2",
}
STATE: Final = schemas.MatchState(
    "65001",
    "polling",
    "a1b2",
    MS,
    412,
    {"six:77": MS},
    650_010_412,
    {"neutral": "9b1c"},
    {"active": 2},
    2,
    None,
)
