"""Payload structs of the SportMonks cricket API v2.0, with the fields that the gateway uses.

Only indispensable fields are required. Numbers may be sent as text. Overs are exact decimals,
because a float cannot represent 19.4. A relation that the response does not include is None.
Structs have as many fields as the gateway reads.
"""

from decimal import Decimal

import msgspec


class SportMonksTeam(msgspec.Struct, frozen=True):
    id: int
    name: str
    code: str | None = None
    image_path: str | None = None
    country_id: int | None = None
    national_team: bool | None = None


class SportMonksLeague(msgspec.Struct, frozen=True):
    id: int
    name: str
    code: str | None = None
    season_id: int | None = None
    country_id: int | None = None
    image_path: str | None = None
    type: str | None = None


class SportMonksSeason(msgspec.Struct, frozen=True):
    id: int
    league_id: int | None = None
    name: str | None = None
    teams: list[SportMonksTeam] | None = None


class SportMonksPlayer(msgspec.Struct, frozen=True):
    id: int
    fullname: str | None = None
    firstname: str | None = None
    lastname: str | None = None


class SportMonksScore(msgspec.Struct, frozen=True):
    """The result of a ball or how a batter was out; `name` carries most of the information."""

    name: str
    id: int | None = None
    runs: int | None = None
    four: bool | None = None
    six: bool | None = None
    bye: int | None = None
    leg_bye: int | None = None
    noball: int | None = None
    noball_runs: int | None = None
    is_wicket: bool | None = None
    ball: bool | None = None
    out: bool | None = None


class SportMonksRun(msgspec.Struct, frozen=True):
    """The total of an innings."""

    team_id: int
    inning: int
    score: int | None = None
    wickets: int | None = None
    overs: Decimal | None = None


class SportMonksScoreboard(msgspec.Struct, frozen=True):
    """The extras or the total of an innings."""

    scoreboard: str
    type: str | None = None
    team_id: int | None = None
    wide: int | None = None
    noball_runs: int | None = None
    bye: int | None = None
    leg_bye: int | None = None
    penalty: int | None = None


class SportMonksBatting(msgspec.Struct, frozen=True):
    scoreboard: str
    player_id: int
    team_id: int | None = None
    sort: int | None = None
    active: bool | None = None
    ball: int | None = None
    score: int | None = None
    four_x: int | None = None
    six_x: int | None = None
    bowling_player_id: int | None = None
    catch_stump_player_id: int | None = None
    runout_by_id: int | None = None
    score_id: int | None = None
    batsman: SportMonksPlayer | None = None
    result: SportMonksScore | None = None


class SportMonksBowling(msgspec.Struct, frozen=True):
    scoreboard: str
    player_id: int
    team_id: int | None = None
    sort: int | None = None
    active: bool | None = None
    overs: Decimal | None = None
    medians: int | None = None
    runs: int | None = None
    wickets: int | None = None
    wide: int | None = None
    noball: int | None = None
    bowler: SportMonksPlayer | None = None


class SportMonksBall(msgspec.Struct, frozen=True):
    id: int
    ball: Decimal
    scoreboard: str
    team_id: int
    score: SportMonksScore
    batsman_id: int
    bowler_id: int
    batsman_one_on_creeze_id: int | None = None
    batsman_two_on_creeze_id: int | None = None
    batsmanout_id: int | None = None
    catchstump_id: int | None = None
    runout_by_id: int | None = None
    updated_at: str | None = None
    batsman: SportMonksPlayer | None = None
    bowler: SportMonksPlayer | None = None


class SportMonksFixture(msgspec.Struct, frozen=True):
    """A match with the relations that the response includes."""

    id: int
    league_id: int
    localteam_id: int
    visitorteam_id: int
    starting_at: str
    season_id: int | None = None
    round: str | None = None
    type: str | None = None
    status: str | None = None
    note: str | None = None
    venue_id: int | None = None
    toss_won_team_id: int | None = None
    elected: str | None = None
    winner_team_id: int | None = None
    draw_noresult: str | None = None
    super_over: bool | None = None
    rpc_overs: str | int | float | None = None
    rpc_target: str | int | float | None = None
    man_of_match_id: int | None = None
    localteam: SportMonksTeam | None = None
    visitorteam: SportMonksTeam | None = None
    league: SportMonksLeague | None = None
    manofmatch: SportMonksPlayer | None = None
    lineup: list[SportMonksPlayer] | None = None
    runs: list[SportMonksRun] | None = None
    scoreboards: list[SportMonksScoreboard] | None = None
    batting: list[SportMonksBatting] | None = None
    bowling: list[SportMonksBowling] | None = None
    balls: list[SportMonksBall] | None = None


class SportMonksId(msgspec.Struct, frozen=True):
    """The id of an item whose other fields are malformed."""

    id: int


class SportMonksPagination(msgspec.Struct, frozen=True):
    current_page: int = 1
    last_page: int = 1


class SportMonksList(msgspec.Struct, frozen=True):
    """A list response. Items are decoded one by one, so that a malformed one affects no other."""

    data: list[msgspec.Raw]
    meta: SportMonksPagination | None = None


class SportMonksItem(msgspec.Struct, frozen=True):
    data: msgspec.Raw
