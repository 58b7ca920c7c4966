"""Following a team follows its fixtures, on SQLite and DynamoDB Local."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActiveMatch, Fixture, TeamFollow
from tally.cricket.repository.follows import MAX_ADDED
from tally.cricket.service.activities import team_follows
from tests.api_response import expect_error
from tests.cricket.api_harness import ApiClient, ApiHarness, open_api_harness_on
from tests.store.emulators import engines

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=engines("local"))
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiHarness]:
    async with open_api_harness_on(request.param, tmp_path_factory.mktemp("teams")) as opened:
        opened.live_match(12)
        await opened.sync()
        await opened.poll()
        yield opened


@pytest.fixture
def ana(server: ApiHarness) -> ApiClient:
    return server.user(f"ana-{next(_numbers)}")


async def schedule(server: ApiHarness) -> Fixture:
    """Schedule and sync a fixture; return it."""
    scheduled = server.sportmonks.scheduled
    (any_id,) = server.sportmonks.schedule(1, first=server.clock.now() + timedelta(hours=30))
    match_id = 900_000 + next(_numbers)
    scheduled[match_id] = {**scheduled.pop(any_id), "id": match_id}
    await server.sync()
    fixture = await server.cricket.repositories.fixtures.get(str(match_id))
    assert fixture is not None
    return fixture


async def add_new_fixtures(server: ApiHarness) -> None:
    await server.cricket.services.team_follows.add_new_fixtures()


async def finish(server: ApiHarness, match_id: str) -> None:
    """Finish a match, which deletes its follows."""
    repositories, now = server.cricket.repositories, server.clock.milliseconds()
    await repositories.matches.create(
        ActiveMatch(match_id=match_id, last_updated_at=now, owner="instance")
    )
    await repositories.fixtures.update(match_id, status=MatchStatus.FINISHED, updated_at=now)
    await server.cricket.live.orchestrator.process(match_id)


async def followed(user: ApiClient) -> dict[str, Any]:
    """Return the teams that follow each of a user's matches: None for the user's own."""
    items = (await user.get_json("/user/follows?limit=100"))["items"]
    return {item["matchId"]: item["viaTeamId"] for item in items}


async def test_fixtures_of_a_followed_team_are_followed(server: ApiHarness, ana: ApiClient) -> None:
    """Those that are scheduled already at once, later ones by the job."""
    first = await schedule(server)
    team = first.home_team_id
    made = await ana.put(f"/user/follow/team/{team}", None)
    assert (made.status, made.json["teamId"]) == (200, team)
    assert (await followed(ana))[first.match_id] == team
    assert (await ana.get_json(f"/user/follow/{first.match_id}"))["teamId"] == team
    second = await schedule(server)
    assert team in second.team_ids
    await add_new_fixtures(server)
    assert (await followed(ana))[second.match_id] == team
    assert await server.cricket.repositories.fixtures.pending(10) == []
    assert (await ana.put(f"/user/follow/team/{team}", None)).json == made.json
    assert (await ana.get_json("/user/follows/teams"))["items"] == [made.json]


async def test_a_live_match_of_a_followed_team_starts_at_once(
    server: ApiHarness, ana: ApiClient
) -> None:
    (live,) = (await ana.get_json("/matches/live"))["items"]
    device = {"deviceToken": "ab" * 32, "deviceId": "PHONE", "platform": "ios"}
    assert (await ana.post("/user/device", device)).status == 200
    start = {"pushToStartToken": "cd" * 80, "deviceId": "PHONE"}
    await ana.put("/user/device/push-to-start", start)
    server.apns.devices.accepts_any_token = True
    await ana.put(f"/user/follow/team/{live['teams'][1]['teamId']}", None)
    [push] = server.apns.log.for_target("cd" * 80)
    assert (push.status, b'"event":"start"' in push.payload) == (200, True)


async def test_unfollowing_a_team_keeps_the_follows_that_the_user_made(
    server: ApiHarness, ana: ApiClient
) -> None:
    by_team, own = await schedule(server), await schedule(server)
    team = own.home_team_id
    await ana.post(f"/user/follow/{own.match_id}", {"alerts": "result"})
    await ana.put(f"/user/follow/team/{team}", None)
    follow = await ana.get_json(f"/user/follow/{own.match_id}")
    assert (follow["alerts"], follow["viaTeamId"]) == ("result", None)
    assert by_team.match_id in await followed(ana)
    for _ in range(2):
        assert (await ana.delete(f"/user/follow/team/{team}")).status == 204
        assert list(await followed(ana)) == [own.match_id]
    await schedule(server)
    await add_new_fixtures(server)
    assert list(await followed(ana)) == [own.match_id]
    assert (await ana.get_json("/user/follows/teams"))["items"] == []


async def test_a_restoration_respects_unfollowed_teams_and_deleted_users(
    server: ApiHarness, ana: ApiClient
) -> None:
    """A match that a team added returns with this team, or with its opponent; others return."""
    fixture = await schedule(server)
    home, away = fixture.team_ids
    switching_id = f"fan-{next(_numbers)}"
    switches = server.user(switching_id)
    stays, leaves, deleted = (server.user(f"fan-{next(_numbers)}") for _ in range(3))
    await ana.post(f"/user/follow/{fixture.match_id}", {})
    for user in (ana, stays, switches, leaves, deleted):
        await user.put(f"/user/follow/team/{home}", None)
    await finish(server, fixture.match_id)
    assert fixture.match_id not in await followed(stays)
    for user in (ana, switches, leaves):
        await user.delete(f"/user/follow/team/{home}")
    await server.cricket.repositories.follows.follow_team(
        TeamFollow(team_id=away, user_id=switching_id, created_at=0)
    )
    assert (await deleted.delete("/user")).status == 204
    restored = await server.admin().post(f"/admin/matches/{fixture.match_id}/restore-follows", {})
    assert restored.json == {"restored": 3}
    follows = [
        (await followed(user)).get(fixture.match_id, "none")
        for user in (ana, stays, switches, leaves, deleted)
    ]
    assert follows == [None, home, away, "none", "none"]


async def test_a_follow_of_a_teams_match_becomes_the_users_own(
    server: ApiHarness, ana: ApiClient
) -> None:
    fixture = await schedule(server)
    await ana.put(f"/user/follow/team/{fixture.home_team_id}", None)
    made = (await ana.post(f"/user/follow/{fixture.match_id}", {})).json
    assert made["viaTeamId"] is None
    await ana.delete(f"/user/follow/team/{fixture.home_team_id}")
    assert list(await followed(ana)) == [fixture.match_id]


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_match_that_the_user_unfollowed_is_not_followed_again(
    server: ApiHarness, ana: ApiClient, *, is_own: bool
) -> None:
    """Neither by the job nor by following the team again, until the user follows it."""
    fixture = await schedule(server)
    path, team = f"/user/follow/{fixture.match_id}", f"/user/follow/team/{fixture.home_team_id}"
    if is_own:
        await ana.post(path, {})
    await ana.put(team, None)
    for _ in range(2):
        assert (await ana.delete(path)).status == 204
    await server.cricket.repositories.fixtures.update(fixture.match_id, followers_pending="1")
    await add_new_fixtures(server)
    await ana.put(team, None)
    assert fixture.match_id not in await followed(ana)
    expect_error(await ana.get(path), 404, "not_followed")
    expect_error(await ana.patch(path, {"alerts": "all"}), 404, "not_followed")
    follows = server.cricket.repositories.follows.list_by_match(fixture.match_id, 0)
    assert [follow.user_id async for follow in follows if follow.via_team_id is None] == []
    await ana.post(path, {})
    assert (await followed(ana))[fixture.match_id] is None


async def test_a_dismissed_match_of_a_team_is_not_followed_again(
    server: ApiHarness, ana: ApiClient
) -> None:
    (live,) = (await ana.get_json("/matches/live"))["items"]
    team = f"/user/follow/team/{live['teams'][0]['teamId']}"
    await ana.put(team, None)
    dismissed = f"/matches/{live['matchId']}/activity-dismissed"
    assert (await ana.post(dismissed, {"deviceId": "PHONE"})).status == 204
    await ana.put(team, None)
    assert live["matchId"] not in await followed(ana)


async def test_a_match_between_two_followed_teams_stays_followed_with_one(
    server: ApiHarness, ana: ApiClient
) -> None:
    fixture = await schedule(server)
    home, away = (f"/user/follow/team/{team}" for team in fixture.team_ids)
    await ana.put(home, None)
    await ana.put(away, None)
    await ana.delete(home)
    assert (await followed(ana))[fixture.match_id] == fixture.away_team_id
    await ana.delete(away)
    assert fixture.match_id not in await followed(ana)


async def test_a_large_team_is_processed_in_bounded_runs(
    server: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run stops at its limit, the next one continues, and two instances do not disturb them."""
    fixture = await schedule(server)
    await add_new_fixtures(server)
    names = [f"fan-{next(_numbers)}" for _ in range(3 * MAX_ADDED)]
    teams = server.cricket.repositories.follows
    await asyncio.gather(
        *(
            teams.follow_team(TeamFollow(team_id=fixture.away_team_id, user_id=name, created_at=1))
            for name in names
        )
    )
    new = await schedule(server)
    monkeypatch.setattr(team_follows, "MAX_FOLLOWS_PER_RUN", MAX_ADDED)
    follows = server.cricket.repositories.follows

    async def followers() -> set[str]:
        return {follow.user_id async for follow in follows.list_by_match(new.match_id, 0)}

    await add_new_fixtures(server)
    assert 0 < len(await followers()) <= 2 * MAX_ADDED
    await asyncio.gather(add_new_fixtures(server), add_new_fixtures(server))
    for _ in range(4):
        await add_new_fixtures(server)
    assert set(names) <= await followers()
    assert await server.cricket.repositories.fixtures.pending(10) == []


async def test_followers_of_a_team_that_replaces_another_follow_the_fixture(
    server: ApiHarness, ana: ApiClient
) -> None:
    """A knock-out fixture is scheduled before its teams are known."""
    fixture = await schedule(server)
    await add_new_fixtures(server)
    entry = server.sportmonks.scheduled[int(fixture.match_id)]
    (live,) = (await ana.get_json("/matches/live"))["items"]
    team = live["teams"][0]["teamId"]
    assert team not in fixture.team_ids
    await ana.put(f"/user/follow/team/{team}", None)
    entry["visitorteam_id"] = int(team)
    await server.sync()
    await add_new_fixtures(server)
    assert (await followed(ana))[fixture.match_id] == team


async def test_teams_that_cannot_be_followed(server: ApiHarness, ana: ApiClient) -> None:
    """Unknown teams, and more than the limit."""
    expect_error(await ana.put("/user/follow/team/987654", None), 404, "team_not_found")
    expect_error(await ana.put("/user/follow/team/%20", None), 404, "team_not_found")
    assert (await ana.delete("/user/follow/team/987654")).status == 204


async def test_the_number_of_followed_teams_is_limited(
    server: ApiHarness, ana: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = await schedule(server)
    monkeypatch.setattr(team_follows, "MAX_TEAMS_PER_USER", 1)
    home, away = (f"/user/follow/team/{team}" for team in fixture.team_ids)
    assert (await ana.put(home, None)).status == 200
    expect_error(await ana.put(away, None), 409, "too_many_teams")
    assert (await ana.put(home, None)).status == 200
