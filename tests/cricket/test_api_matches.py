"""The HTTP API of matches and reference data."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tally.sim.fault_injection import InjectedFault
from tests.api_response import expect_error
from tests.cricket.api_harness import ADMIN, ApiClient, ApiHarness, open_api_harness


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api_harness(tmp_path_factory.mktemp("cricket")) as opened:
        yield opened


@pytest.fixture
async def ana(server: ApiHarness) -> ApiClient:
    return server.user("ana")


async def test_requests_without_a_token_are_rejected(server: ApiHarness) -> None:
    expect_error(await server.anonymous().get("/matches"), 401, "missing_token")
    forged = ApiClient(server.client, server.url, {"Authorization": "Bearer a.b.c"})
    expect_error(await forged.get("/matches"), 401, "invalid_token")
    stranger = ApiClient(
        server.client,
        server.url,
        {"Authorization": f"Bearer {server.cognito.token_for('x', client_id='other')}"},
    )
    expect_error(await stranger.get("/matches"), 401, "invalid_token", "audience")


@pytest.mark.parametrize("claims", [{"use": "id"}, {"token_use": None}, {"token_use": "refresh"}])
async def test_only_access_tokens_authorise_requests(
    server: ApiHarness, claims: dict[str, Any]
) -> None:
    """An ID token with the same signature, audience and groups does not."""
    token = server.cognito.token_for("ana", groups=["admin"], **claims)
    client = ApiClient(server.client, server.url, {"Authorization": f"Bearer {token}"})
    for path in ("/matches", "/user/follows", "/admin/fixtures?leagueId=1"):
        expect_error(await client.get(path), 401, "invalid_token", "access token")
    assert (await server.user("ana").get("/matches")).status == 200


async def test_a_live_match_is_listed_with_names_and_scores(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(12)
    await server.sync()
    await server.poll()
    (listed,) = (await ana.get_json("/matches/live"))["items"]
    assert listed["matchId"] == str(match.match.id)
    assert listed["isLive"] is True
    assert listed["isStale"] is False
    assert [team["name"] for team in listed["teams"]] == list(match.match.teams)
    assert any(team["scores"] for team in listed["teams"])
    assert (await ana.get_json(f"/matches/{listed['matchId']}")) == listed
    assert listed in (await ana.get_json("/matches"))["items"]


async def test_stored_enrichment_survives_deleted_reference_data(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(12)
    await server.sync()
    team = (await ana.get_json("/matches"))["items"][0]["teams"][0]
    await server.admin().patch(f"/teams/{team['teamId']}", {"name": "Renamed"})
    await server.poll()
    cached = await server.cricket.repositories.cache.get(
        str(match.match.id), server.clock.seconds()
    )
    assert cached is not None
    assert cached.enrichment is not None
    assert cached.enrichment["teams"][team["teamId"]]["name"] == "Renamed"
    await server.sync()
    assert (
        await server.cricket.repositories.cache.get(str(match.match.id), server.clock.seconds())
    ) == cached


async def test_unknown_ids_are_not_found(ana: ApiClient) -> None:
    expect_error(await ana.get("/matches/404"), 404, "match_not_found")
    expect_error(await ana.get("/matches/404/display"), 404, "match_not_found")
    expect_error(await ana.get("/matches/404/events"), 404, "match_not_found")
    expect_error(await ana.get(f"/matches/{'9' * 65}"), 404, "match_not_found")
    expect_error(await ana.get("/teams/404"), 404, "team_not_found")
    expect_error(await ana.get("/leagues/404"), 404, "league_not_found")
    expect_error(await ana.get("/matches?league=nowhere"), 404, "league_not_found")
    assert (await ana.get_json("/seasons/404/teams")) == {"items": [], "nextCursor": None}


@pytest.mark.parametrize(
    "query",
    ["from=yesterday", "to=2080-13-01", "from=2080-03-02&to=2080-03-01", "limit=0", "status=odd"],
)
async def test_an_invalid_query_names_the_field(ana: ApiClient, query: str) -> None:
    response = await ana.get(f"/matches?{query}")
    expect_error(response, 400, "invalid_field")


async def test_pages_of_several_leagues_contain_every_match_once_in_order(
    server: ApiHarness, ana: ApiClient
) -> None:
    """Also if a page ends among matches with the same start time."""
    first = server.clock.now() + timedelta(hours=1)
    for league, apart in (("North", 0.0), ("South", 1800.0), ("West", 0.0)):
        server.sportmonks.schedule(17, league_name=league, first=first, apart=apart)
    await server.sync()
    found: list[Any] = []
    cursor = ""
    while True:
        page = await ana.get_json(f"/matches?limit=7{cursor}")
        assert len(page["items"]) <= 7
        found += page["items"]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
    keys = [(match["startTime"], match["matchId"]) for match in found]
    assert len(keys) == 51
    assert keys == sorted(set(keys))


async def test_a_cursor_is_valid_for_its_query_only(server: ApiHarness, ana: ApiClient) -> None:
    server.sportmonks.schedule(5, first=server.clock.now() + timedelta(hours=1))
    await server.sync()
    cursor = (await ana.get_json("/matches?limit=2"))["nextCursor"]
    response = await ana.get(f"/matches?limit=2&status=finished&cursor={cursor}")
    assert response.status == 400
    assert (await ana.get("/matches?cursor=made-up")).status == 400


async def test_matches_are_filtered_by_league_and_day(server: ApiHarness, ana: ApiClient) -> None:
    day = server.clock.now() + timedelta(days=3)
    server.sportmonks.schedule(4, league_name="Northern Cup", first=day, apart=86_400)
    await server.sync()
    (league,) = (await ana.get_json("/leagues"))["items"]
    by_code = (await ana.get_json(f"/matches?league={league['code'].lower()}"))["items"]
    by_id = (await ana.get_json(f"/matches?league={league['leagueId']}"))["items"]
    assert len(by_code) == 4
    assert by_code == by_id
    one_day = f"from={day.date()}&to={day.date()}"
    (only,) = (await ana.get_json(f"/matches?league={league['code']}&{one_day}"))["items"]
    assert only["startTime"].startswith(str(day.date()))
    finished = await ana.get_json(f"/matches?league={league['code']}&status=finished")
    assert finished["items"] == []


async def test_display_states_exist_per_team_and_neutral(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(12)
    await server.sync()
    await server.poll()
    match_id = str(match.match.id)
    neutral = await ana.get_json(f"/matches/{match_id}/display")
    teams = neutral["display"]["teams"]
    assert neutral["display"]["view"] == "neutral"
    away = await ana.get_json(f"/matches/{match_id}/display?teamId={teams[1]['id']}")
    assert [team["id"] for team in away["display"]["teams"]] == [teams[1]["id"], teams[0]["id"]]
    expect_error(await ana.get(f"/matches/{match_id}/display?teamId=7"), 400, "team_not_in_match")


async def test_an_upcoming_match_has_a_display_state(server: ApiHarness, ana: ApiClient) -> None:
    (match_id,) = server.sportmonks.schedule(1, first=server.clock.now() + timedelta(hours=2))
    await server.sync()
    shown = await ana.get_json(f"/matches/{match_id}/display")
    assert shown["display"]["status"] == "not_started"
    assert all(team["name"] for team in shown["display"]["teams"])
    assert shown == await ana.get_json(f"/matches/{match_id}/display")


async def test_scores_are_marked_stale_while_the_score_service_is_unavailable(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(12)
    await server.sync()
    await server.poll()
    match_id = str(match.match.id)
    before = await ana.get_json(f"/matches/{match_id}")
    outage = InjectedFault(path="/api/v2.0/livescores", status=503, times=None)
    server.sportmonks.faults.add(outage)
    match.deliver(3)
    server.skip_time(45)
    await _failing_poll(server)
    during = await ana.get_json(f"/matches/{match_id}")
    assert during["isStale"] is True
    assert (await ana.get_json(f"/matches/{match_id}/display"))["isStale"] is True
    assert during["teams"] == before["teams"]
    server.sportmonks.faults.clear()
    server.skip_time(60)
    await server.poll()
    after = await ana.get_json(f"/matches/{match_id}")
    assert after["isStale"] is False
    assert after["teams"] != before["teams"]


async def _failing_poll(server: ApiHarness) -> None:
    """Run a poll that fails; advance the clock for its retries."""
    polling = asyncio.ensure_future(server.cricket.live.poller.run())
    while not polling.done():
        await asyncio.sleep(0.01)
        await server.clock.advance(1)
    await polling


async def test_syncs_preserve_changes_of_administrators(server: ApiHarness, ana: ApiClient) -> None:
    server.sportmonks.schedule(3, first=server.clock.now() + timedelta(hours=1))
    await server.sync()
    admin = server.admin()
    team = (await ana.get_json("/teams"))["items"][0]
    changed = await admin.patch(f"/teams/{team['teamId']}", {"name": "Renamed", "color": "#102030"})
    assert changed.status == 200, changed
    league = (await ana.get_json("/leagues"))["items"][0]
    assert (
        await admin.patch(f"/leagues/{league['leagueId']}", {"name": "Cup", "active": False})
    ).status == 200
    await server.sync()
    assert (await ana.get_json(f"/teams/{team['teamId']}"))["name"] == "Renamed"
    kept = await ana.get_json(f"/leagues/{league['leagueId']}")
    assert (kept["name"], kept["active"]) == ("Cup", False)
    assert (await ana.get_json("/matches"))["items"] == [], (
        "the matches of a league that is not active are not listed"
    )


async def test_a_deleted_league_returns_with_the_next_sync(
    server: ApiHarness, ana: ApiClient
) -> None:
    server.sportmonks.schedule(3, first=server.clock.now() + timedelta(hours=1))
    await server.sync()
    league = (await ana.get_json("/leagues"))["items"][0]
    assert (await server.admin().delete(f"/leagues/{league['leagueId']}")).status == 204
    expect_error(await ana.get(f"/leagues/{league['leagueId']}"), 404, "league_not_found")
    expect_error(
        await server.admin().delete(f"/leagues/{league['leagueId']}"), 404, "league_not_found"
    )
    await server.sync()
    assert (await ana.get_json(f"/leagues/{league['leagueId']}"))["name"] == league["name"]


async def test_a_season_lists_its_teams(server: ApiHarness, ana: ApiClient) -> None:
    server.sportmonks.schedule(6, first=server.clock.now() + timedelta(hours=1))
    await server.sync()
    league = (await ana.get_json("/leagues"))["items"][0]
    found = (await ana.get_json(f"/seasons/{league['seasonId']}/teams"))["items"]
    playing = {
        team["teamId"]
        for match in (await ana.get_json("/matches"))["items"]
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
async def test_admin_routes_require_an_administrator(
    server: ApiHarness, ana: ApiClient, method: str, path: str, body: object
) -> None:
    expect_error(await ana.send(method, path, body), 403, "not_an_operator")
    expect_error(await server.anonymous().send(method, path, body), 401, "missing_token")
    wrong = ApiClient(server.client, server.url, {"Authorization": f"Bearer {ADMIN[::-1]}"})
    expect_error(await wrong.send(method, path, body), 401, "invalid_token")
    assert (await server.admin().send(method, path, body)).status not in {401, 403}
    admin = ApiClient(
        server.client, server.url, {"Authorization": f"Bearer {server.cognito.admin_token()}"}
    )
    assert (await admin.send(method, path, body)).status not in {401, 403}


async def test_a_manual_sync_returns_its_counts(server: ApiHarness) -> None:
    server.sportmonks.schedule(130, first=server.clock.now() + timedelta(hours=1), apart=60)
    admin = server.admin()
    first = (await admin.post("/admin/sync", {})).json["synced"]
    assert first["leagues"] == {"created": 1, "updated": 0, "unchanged": 0}
    assert first["fixtures"] == {"created": 130, "updated": 0, "unchanged": 0}
    again = (await admin.post("/admin/sync", {"what": "fixtures"})).json["synced"]
    assert again == {"fixtures": {"created": 0, "updated": 0, "unchanged": 130}}


async def test_the_fixtures_of_a_league_are_paginated(server: ApiHarness) -> None:
    server.sportmonks.schedule(23, first=server.clock.now() + timedelta(hours=1))
    await server.sync()
    admin = server.admin()
    (league,) = (await server.user("ana").get_json("/leagues"))["items"]
    path = f"/admin/fixtures?leagueId={league['leagueId']}&limit=10"
    page = await admin.get_json(path)
    found = page["items"]
    while page["nextCursor"] is not None:
        page = await admin.get_json(f"{path}&cursor={page['nextCursor']}")
        found += page["items"]
    assert len({match["matchId"] for match in found}) == len(found) == 23


async def test_administrators_see_the_pipeline_state(server: ApiHarness) -> None:
    match = server.live_match(12)
    await server.sync()
    await server.poll()
    state = await server.admin().get_json(f"/admin/matches/{match.match.id}/state")
    assert state["pollerState"] == "polling"
    assert state["lastBallId"] > 0
    assert set(state["hashes"]) == {"neutral", *(state["hashes"].keys() - {"neutral"})}
    assert len(state["hashes"]) == 3
    assert state["activities"] == {}


async def test_an_operator_holds_a_match_corrects_its_result_and_restores_follows(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(10)
    await server.sync()
    await server.poll()
    admin, path = server.admin(), f"/admin/matches/{match.match.id}"
    assert (await ana.put(f"{path}/hold", {})).status == 403
    assert (await admin.put(f"{path}/hold", {})).json["heldAt"] > 0
    assert (await admin.delete(f"{path}/hold")).json["heldAt"] is None
    body = {"note": "Match tied", "winnerTeamId": "999999999"}
    expect_error(await admin.put(f"{path}/result", body), 400, "team_not_in_match")
    corrected = await admin.put(f"{path}/result", {"note": "Match tied"})
    assert corrected.json["correctedResult"] == {"status": "finished", "note": "Match tied"}
    for _ in range(2):
        await server.poll()
    shown = await ana.get_json(f"/matches/{match.match.id}")
    assert (shown["note"], shown["isLive"], shown["isOver"]) == ("Match tied", False, True)
    assert (await admin.delete(f"{path}/result")).json["correctedResult"] is None
    assert (await admin.post(f"{path}/restore-follows", {})).json == {"restored": 0}
    expect_error(await admin.put("/admin/matches/1/hold", {}), 404, "match_not_found")


async def test_a_recorded_match_is_replayed_and_the_replay_expires(
    server: ApiHarness, ana: ApiClient
) -> None:
    match = server.live_match(10)
    await server.sync()
    await server.poll()
    admin = server.admin()
    expect_error(
        await admin.post(f"/admin/matches/{match.match.id}/replay", {}), 409, "no_recording"
    )
    match.finish()
    for _ in range(2):  # Two polls confirm the result.
        await server.poll()
    begun = await admin.post(
        f"/admin/matches/{match.match.id}/replay", {"speed": 100, "keepMinutes": 1}
    )
    assert begun.status == 201, begun
    replay_id = begun.json["matchId"]
    assert begun.json["replayOf"] == str(match.match.id)
    server.skip_time(10)
    await server.poll()
    live = {entry["matchId"]: entry for entry in (await ana.get_json("/matches/live"))["items"]}
    assert replay_id in live
    assert any(team["scores"] for team in live[replay_id]["teams"])
    server.skip_time(300)
    await server.poll()
    shown = await ana.get(f"/matches/{replay_id}")
    if shown.status == 200:
        server.skip_time(300)
        await server.poll()
        shown = await ana.get(f"/matches/{replay_id}")
    expect_error(shown, 404, "match_not_found")
