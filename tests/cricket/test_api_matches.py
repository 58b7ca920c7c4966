"""Matches and reference data as people ask for them, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tally.sim.fault_injection import InjectedFault
from tests.cricket.api_harness import ADMIN, ApiClient, ApiHarness, expect_error, open_api_harness


@pytest.fixture
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api_harness(tmp_path_factory.mktemp("cricket")) as opened:
        yield opened


@pytest.fixture
async def ana(ground: ApiHarness) -> ApiClient:
    return ground.person("ana")


async def test_without_a_token_nothing_is_told(ground: ApiHarness) -> None:
    expect_error(await ground.nobody().get("/matches"), 401, "missing_token")
    forged = ApiClient(ground.client, ground.url, {"Authorization": "Bearer a.b.c"})
    expect_error(await forged.get("/matches"), 401, "invalid_token")
    stranger = ApiClient(
        ground.client,
        ground.url,
        {"Authorization": f"Bearer {ground.cognito.token_for('x', client_id='other')}"},
    )
    expect_error(await stranger.get("/matches"), 401, "invalid_token", "audience")


async def test_a_live_match_is_listed_with_names_and_scores(
    ground: ApiHarness, ana: ApiClient
) -> None:
    match = ground.live_match(12)
    await ground.sync()
    await ground.poll()
    (listed,) = (await ana.found("/matches/live"))["matches"]
    assert listed["matchId"] == str(match.match.id)
    assert listed["isLive"] is True
    assert listed["isStale"] is False
    assert [team["name"] for team in listed["teams"]] == list(match.match.teams)
    assert any(team["scores"] for team in listed["teams"])
    assert (await ana.found(f"/matches/{listed['matchId']}")) == listed
    assert listed in (await ana.found("/matches"))["matches"]


async def test_names_that_were_noted_with_a_match_outlive_the_tables_they_came_from(
    ground: ApiHarness, ana: ApiClient
) -> None:
    match = ground.live_match(12)
    await ground.sync()
    team = (await ana.found("/matches"))["matches"][0]["teams"][0]
    await ground.operator().patch(f"/teams/{team['teamId']}", {"name": "Renamed"})
    await ground.poll()
    cached = await ground.cricket.repositories.cache.get(
        str(match.match.id), ground.clock.seconds()
    )
    assert cached is not None
    assert cached.enrichment is not None
    assert cached.enrichment["teams"][team["teamId"]]["name"] == "Renamed"
    await ground.sync()
    assert (
        await ground.cricket.repositories.cache.get(str(match.match.id), ground.clock.seconds())
    ) == cached


async def test_what_is_not_there_is_not_found(ana: ApiClient) -> None:
    expect_error(await ana.get("/matches/404"), 404, "match_not_found")
    expect_error(await ana.get("/matches/404/display"), 404, "match_not_found")
    expect_error(await ana.get("/matches/404/events"), 404, "match_not_found")
    expect_error(await ana.get(f"/matches/{'9' * 65}"), 404, "match_not_found")
    expect_error(await ana.get("/teams/404"), 404, "team_not_found")
    expect_error(await ana.get("/leagues/404"), 404, "league_not_found")
    expect_error(await ana.get("/matches?league=nowhere"), 404, "league_not_found")
    assert (await ana.found("/seasons/404/teams")) == {"teams": []}


@pytest.mark.parametrize(
    "query",
    ["from=yesterday", "to=2080-13-01", "from=2080-03-02&to=2080-03-01", "limit=0", "status=odd"],
)
async def test_a_question_that_makes_no_sense_names_what_is_wrong(
    ana: ApiClient, query: str
) -> None:
    answer = await ana.get(f"/matches?{query}")
    expect_error(answer, 400, "invalid_field")


async def test_pages_of_several_leagues_have_every_match_once_and_in_order(
    ground: ApiHarness, ana: ApiClient
) -> None:
    """Also where many matches start at the very same time, which is where a page may end."""
    first = ground.clock.now() + timedelta(hours=1)
    for league, apart in (("North", 0.0), ("South", 1800.0), ("West", 0.0)):
        ground.sportmonks.schedule(17, league_name=league, first=first, apart=apart)
    await ground.sync()
    found: list[Any] = []
    cursor = ""
    while True:
        page = await ana.found(f"/matches?limit=7{cursor}")
        assert len(page["matches"]) <= 7
        found += page["matches"]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
    keys = [(match["startTime"], match["matchId"]) for match in found]
    assert len(keys) == 51
    assert keys == sorted(set(keys))


async def test_a_cursor_is_good_for_its_own_question_alone(
    ground: ApiHarness, ana: ApiClient
) -> None:
    ground.sportmonks.schedule(5, first=ground.clock.now() + timedelta(hours=1))
    await ground.sync()
    cursor = (await ana.found("/matches?limit=2"))["nextCursor"]
    answer = await ana.get(f"/matches?limit=2&status=finished&cursor={cursor}")
    assert answer.status == 400
    assert (await ana.get("/matches?cursor=made-up")).status == 400


async def test_a_league_is_found_by_code_and_by_id_and_a_day_has_its_matches_alone(
    ground: ApiHarness, ana: ApiClient
) -> None:
    day = ground.clock.now() + timedelta(days=3)
    ground.sportmonks.schedule(4, league_name="Northern Cup", first=day, apart=86_400)
    await ground.sync()
    (league,) = (await ana.found("/leagues"))["leagues"]
    by_code = (await ana.found(f"/matches?league={league['code'].lower()}"))["matches"]
    by_id = (await ana.found(f"/matches?league={league['leagueId']}"))["matches"]
    assert len(by_code) == 4
    assert by_code == by_id
    one_day = f"from={day.date()}&to={day.date()}"
    (only,) = (await ana.found(f"/matches?league={league['code']}&{one_day}"))["matches"]
    assert only["startTime"].startswith(str(day.date()))
    assert (await ana.found(f"/matches?league={league['code']}&status=finished"))["matches"] == []


async def test_the_display_state_is_that_of_a_side_or_of_nobody(
    ground: ApiHarness, ana: ApiClient
) -> None:
    match = ground.live_match(12)
    await ground.sync()
    await ground.poll()
    match_id = str(match.match.id)
    neutral = await ana.found(f"/matches/{match_id}/display")
    teams = neutral["display"]["teams"]
    assert neutral["display"]["view"] == "neutral"
    away = await ana.found(f"/matches/{match_id}/display?teamId={teams[1]['id']}")
    assert [team["id"] for team in away["display"]["teams"]] == [teams[1]["id"], teams[0]["id"]]
    expect_error(await ana.get(f"/matches/{match_id}/display?teamId=7"), 400, "team_not_in_match")


async def test_a_match_that_has_not_begun_has_a_display_state_too(
    ground: ApiHarness, ana: ApiClient
) -> None:
    (match_id,) = ground.sportmonks.schedule(1, first=ground.clock.now() + timedelta(hours=2))
    await ground.sync()
    shown = await ana.found(f"/matches/{match_id}/display")
    assert shown["display"]["status"] == "not_started"
    assert all(team["name"] for team in shown["display"]["teams"])
    assert shown == await ana.found(f"/matches/{match_id}/display")


async def test_while_the_score_service_is_away_the_last_scores_are_served_and_marked_stale(
    ground: ApiHarness, ana: ApiClient
) -> None:
    match = ground.live_match(12)
    await ground.sync()
    await ground.poll()
    match_id = str(match.match.id)
    before = await ana.found(f"/matches/{match_id}")
    outage = InjectedFault(path="/api/v2.0/livescores", status=503, times=None)
    ground.sportmonks.faults.add(outage)
    match.deliver(3)
    ground.pass_time(45)
    await _trouble(ground)
    during = await ana.found(f"/matches/{match_id}")
    assert during["isStale"] is True
    assert (await ana.found(f"/matches/{match_id}/display"))["isStale"] is True
    assert during["teams"] == before["teams"]
    ground.sportmonks.faults.clear()
    ground.pass_time(60)
    await ground.poll()
    after = await ana.found(f"/matches/{match_id}")
    assert after["isStale"] is False
    assert after["teams"] != before["teams"]


async def _trouble(ground: ApiHarness) -> None:
    """A poll that fails; its retries wait on a clock that has to be moved."""
    polling = asyncio.ensure_future(ground.cricket.live.poller.run())
    while not polling.done():
        await asyncio.sleep(0.01)
        await ground.clock.advance(1)
    await polling


async def test_operators_change_teams_and_leagues_and_a_sync_leaves_that_alone(
    ground: ApiHarness, ana: ApiClient
) -> None:
    ground.sportmonks.schedule(3, first=ground.clock.now() + timedelta(hours=1))
    await ground.sync()
    operator = ground.operator()
    team = (await ana.found("/teams"))["teams"][0]
    changed = await operator.patch(
        f"/teams/{team['teamId']}", {"name": "Renamed", "color": "#102030"}
    )
    assert changed.status == 200, changed
    league = (await ana.found("/leagues"))["leagues"][0]
    assert (
        await operator.patch(f"/leagues/{league['leagueId']}", {"name": "Cup", "active": False})
    ).status == 200
    await ground.sync()
    assert (await ana.found(f"/teams/{team['teamId']}"))["name"] == "Renamed"
    kept = await ana.found(f"/leagues/{league['leagueId']}")
    assert (kept["name"], kept["active"]) == ("Cup", False)
    assert (await ana.found("/matches"))["matches"] == [], (
        "the matches of a league that is not active are not listed"
    )


async def test_a_deleted_league_is_gone_until_the_next_sync(
    ground: ApiHarness, ana: ApiClient
) -> None:
    ground.sportmonks.schedule(3, first=ground.clock.now() + timedelta(hours=1))
    await ground.sync()
    league = (await ana.found("/leagues"))["leagues"][0]
    assert (await ground.operator().delete(f"/leagues/{league['leagueId']}")).status == 204
    expect_error(await ana.get(f"/leagues/{league['leagueId']}"), 404, "league_not_found")
    expect_error(
        await ground.operator().delete(f"/leagues/{league['leagueId']}"), 404, "league_not_found"
    )
    await ground.sync()
    assert (await ana.found(f"/leagues/{league['leagueId']}"))["name"] == league["name"]


async def test_the_teams_of_a_season_are_those_that_play_it(
    ground: ApiHarness, ana: ApiClient
) -> None:
    ground.sportmonks.schedule(6, first=ground.clock.now() + timedelta(hours=1))
    await ground.sync()
    league = (await ana.found("/leagues"))["leagues"][0]
    found = (await ana.found(f"/seasons/{league['seasonId']}/teams"))["teams"]
    playing = {
        team["teamId"]
        for match in (await ana.found("/matches"))["matches"]
        for team in match["teams"]
    }
    assert {team["teamId"] for team in found} == playing


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/teams/1", {"name": "x"}),
        ("PATCH", "/leagues/1", {"active": True}),
        ("DELETE", "/leagues/1", None),
        ("GET", "/admin/fixtures?leagueId=1", None),
        ("POST", "/admin/sync", {}),
        ("GET", "/admin/matches/1/state", None),
        ("POST", "/admin/matches/1/replay", {}),
    ],
)
async def test_operators_routes_are_for_operators(
    ground: ApiHarness, ana: ApiClient, method: str, path: str, body: object
) -> None:
    expect_error(await ana.send(method, path, body), 403, "not_an_operator")
    expect_error(await ground.nobody().send(method, path, body), 401, "missing_token")
    wrong = ApiClient(ground.client, ground.url, {"X-Admin-Key": ADMIN[::-1]})
    expect_error(await wrong.send(method, path, body), 401, "invalid_api_key")
    admin = ApiClient(
        ground.client, ground.url, {"Authorization": f"Bearer {ground.cognito.admin_token()}"}
    )
    assert (await admin.send(method, path, body)).status not in {401, 403}


async def test_a_sync_by_hand_says_what_it_did(ground: ApiHarness) -> None:
    ground.sportmonks.schedule(130, first=ground.clock.now() + timedelta(hours=1), apart=60)
    operator = ground.operator()
    first = (await operator.post("/admin/sync", {})).json["synced"]
    assert first["leagues"] == {"created": 1, "updated": 0, "unchanged": 0}
    assert first["fixtures"] == {"created": 130, "updated": 0, "unchanged": 0}
    again = (await operator.post("/admin/sync", {"what": "fixtures"})).json["synced"]
    assert again == {"fixtures": {"created": 0, "updated": 0, "unchanged": 130}}


async def test_operators_page_through_the_fixtures_of_a_league(ground: ApiHarness) -> None:
    ground.sportmonks.schedule(23, first=ground.clock.now() + timedelta(hours=1))
    await ground.sync()
    operator = ground.operator()
    (league,) = (await ground.person("ana").found("/leagues"))["leagues"]
    path = f"/admin/fixtures?leagueId={league['leagueId']}&limit=10"
    page = await operator.found(path)
    found = page["matches"]
    while page["nextCursor"] is not None:
        page = await operator.found(f"{path}&cursor={page['nextCursor']}")
        found += page["matches"]
    assert len({match["matchId"] for match in found}) == len(found) == 23


async def test_operators_see_what_the_pipeline_remembers(ground: ApiHarness) -> None:
    match = ground.live_match(12)
    await ground.sync()
    await ground.poll()
    state = await ground.operator().found(f"/admin/matches/{match.match.id}/state")
    assert state["pollerState"] == "polling"
    assert state["lastBallId"] > 0
    assert set(state["hashes"]) == {"neutral", *(state["hashes"].keys() - {"neutral"})}
    assert len(state["hashes"]) == 3
    assert state["activities"] == {}


async def test_a_recorded_match_is_played_again_and_its_replay_goes_when_its_time_is_over(
    ground: ApiHarness, ana: ApiClient
) -> None:
    match = ground.live_match(10)
    await ground.sync()
    await ground.poll()
    operator = ground.operator()
    expect_error(
        await operator.post(f"/admin/matches/{match.match.id}/replay", {}), 409, "no_recording"
    )
    match.finish()
    await ground.poll()
    begun = await operator.post(
        f"/admin/matches/{match.match.id}/replay", {"speed": 100, "keepMinutes": 1}
    )
    assert begun.status == 201, begun
    replay_id = begun.json["matchId"]
    assert begun.json["replayOf"] == str(match.match.id)
    ground.pass_time(10)
    await ground.poll()
    live = {each["matchId"]: each for each in (await ana.found("/matches/live"))["matches"]}
    assert replay_id in live
    assert any(team["scores"] for team in live[replay_id]["teams"])
    ground.pass_time(300)
    await ground.poll()
    shown = await ana.get(f"/matches/{replay_id}")
    if shown.status == 200:
        ground.pass_time(300)
        await ground.poll()
        shown = await ana.get(f"/matches/{replay_id}")
    expect_error(shown, 404, "match_not_found")
