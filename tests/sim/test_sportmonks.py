"""The SportMonks simulator on a real socket: API, errors, limits, mistakes and faults."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.kit.auth import KeySet, TokenVerifier, http_key_fetcher
from tally.kit.clock import ManualClock
from tally.sim.fault_injection import InjectedFault
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.sportmonks.core import API_TOKEN
from tally.sim.sportmonks.cricsheet import BUNDLED_MATCH_ID, bundled_match
from tally.sim.sportmonks.mistakes import Misreport, Mistakes, random_mistakes
from tally.sim.sportmonks.playback import RESULT_POLLS, Garble, MatchPlayback
from tally.sim.sportmonks.simulator import SportMonksSimulator

LIVESCORES = "/api/v2.0/livescores"


class SportMonksSite:
    """A simulator with one match and an authenticated client."""

    def __init__(self, sportmonks: SportMonksSimulator, clock: ManualClock, client: Client) -> None:
        self.sportmonks = sportmonks
        self.clock = clock
        self.client = client
        self.match = sportmonks.add(bundled_match())

    async def data(self, path: str, parameters: dict[str, str] | None = None) -> Any:
        query = {"api_token": API_TOKEN} | (parameters or {})
        response = await self.client.get(f"{self.sportmonks.api}{path}").query(query).build().send()
        assert response.status == 200, await response.text()
        return (await response.json())["data"]

    async def control(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        request = self.client.request(method, f"{self.sportmonks.url}/_sim{path}")
        request = request.headers(CONTROL_HEADERS)
        response = await (request if body is None else request.body_json(body)).build().send()
        content = await response.bytes()
        return response.status, msgspec.json.decode(bytes(content)) if content else None


@asynccontextmanager
async def run_site() -> AsyncIterator[SportMonksSite]:
    clock = ManualClock()
    async with (
        SportMonksSimulator(clock).serving() as sportmonks,
        ClientBuilder().build() as client,
    ):
        yield SportMonksSite(sportmonks, clock, client)


async def test_match_goes_from_not_started_to_finished() -> None:
    """It is listed from the toss until coverage ends."""
    async with run_site() as site:
        assert await site.data("/livescores") == []
        (fixture,) = await site.data("/fixtures")
        assert (fixture["status"], fixture["toss_won_team_id"]) == ("NS", None)
        seen = []
        while site.match.position < len(site.match.steps):
            site.match.step()
            at = site.match.steps[site.match.position - 1]
            if at.kind != "delivery":
                seen += [fixture["status"] for fixture in await site.data("/livescores")]
        assert seen == [
            "NS",
            "1st Innings",
            "Innings Break",
            "2nd Innings",
            "Innings Break",
            "Finished",
        ]
        assert await site.data("/livescores") == []
        (fixture,) = await site.data("/fixtures")
        assert (fixture["status"], fixture["note"]) == ("Finished", "Harbour Herons won by 11 runs")


async def test_only_requested_relations_are_included() -> None:
    async with run_site() as site:
        site.match.deliver(8)
        path = f"/fixtures/{BUNDLED_MATCH_ID}"
        plain = await site.data(path)
        assert {"runs", "balls", "batting", "localteam"} & plain.keys() == set()
        reported_balls = await site.data(
            path, {"include": "runs,batting.batsman,bowling,balls,localteam"}
        )
        assert reported_balls["runs"][0]["score"] > 0
        assert reported_balls["localteam"]["name"] == "Harbour Herons"
        assert reported_balls["batting"][0]["batsman"]["fullname"] == "O Brightwater"
        assert "result" not in reported_balls["batting"][0]
        assert "bowler" not in reported_balls["bowling"][0]
        assert {"batsman", "bowler", "score"} <= reported_balls["balls"][0].keys()
        few = await site.data(
            path, {"fields[fixtures]": "id,status", "include": "runs", "fields[runs]": "score"}
        )
        assert few.keys() == {"resource", "id", "status", "runs"}
        assert few["runs"][0].keys() == {"resource", "score"}


@pytest.mark.parametrize(
    "parameters",
    [{"include": "weather"}, {"include": "batting.captain"}, {"filter[colour]": "red"}],
)
async def test_unsupported_parameters_are_rejected(parameters: dict[str, str]) -> None:
    async with run_site() as site:
        response = (
            await site.client.get(f"{site.sportmonks.api}/fixtures")
            .query({"api_token": API_TOKEN} | parameters)
            .build()
            .send()
        )
        body = await response.json()
        assert (response.status, body["status"]) == (400, "error")
        assert "not allowed" in body["message"]["message"]


async def test_fixtures_are_paged_filtered_and_sorted() -> None:
    async with run_site() as site:
        schedule = site.sportmonks.schedule(250, league_name="Long League", apart=86_400)
        league = site.sportmonks.scheduled[schedule[0]]["league_id"]
        query = {"filter[league_id]": str(league), "sort": "-starting_at", "page": "3"}
        request = site.client.get(f"{site.sportmonks.api}/fixtures").query(
            {"api_token": API_TOKEN} | query
        )
        page = await (await request.build().send()).json()
        assert [fixture["id"] for fixture in page["data"]] == schedule[49::-1]
        assert page["meta"] | {"path": ""} == {
            "current_page": 3,
            "from": 201,
            "last_page": 3,
            "path": "",
            "per_page": 100,
            "to": 250,
            "total": 250,
        }
        assert page["links"]["next"] is None
        assert API_TOKEN not in str(page)
        first = (site.clock.now() + timedelta(days=1)).date()
        between = {"filter[starts_between]": f"{first},{first + timedelta(days=1)}"}
        assert [fixture["id"] for fixture in await site.data("/fixtures", between)] == schedule[:2]
        assert await site.data("/fixtures", {"filter[status]": "Finished"}) == []


async def test_leagues_teams_seasons_and_squads_derive_from_matches() -> None:
    async with run_site() as site:
        site.match.step()
        (league,) = await site.data("/leagues")
        assert (league["name"], league["code"]) == ("Lantern League", "LL")
        teams = await site.data("/teams")
        assert sorted(team["name"] for team in teams) == ["Harbour Herons", "Meadow Hares"]
        season = await site.data(f"/seasons/{league['season_id']}", {"include": "teams"})
        assert [team["id"] for team in season["teams"]] == [
            site.match.match.team_id(side) for side in site.match.match.teams
        ]
        assert "teams" not in await site.data(f"/seasons/{league['season_id']}")
        assert (
            len((await site.data(f"/teams/{teams[0]['id']}/squad/{league['season_id']}"))["squad"])
            == 11
        )
        assert "Catch Out" in {score["name"] for score in await site.data("/scores")}


async def test_missing_and_wrong_tokens_are_rejected() -> None:
    async with run_site() as site:
        responses = []
        for query in ({}, {"api_token": "wrong"}):
            response = (
                await site.client.get(f"{site.sportmonks.api}/livescores")
                .query(query)
                .build()
                .send()
            )
            responses.append((response.status, (await response.json())["status"]))
        assert responses == [(401, "error"), (403, "error")]
        response = (
            await site.client.get(f"{site.sportmonks.api}/fixtures/5")
            .query({"api_token": API_TOKEN})
            .build()
            .send()
        )
        assert (response.status, (await response.json())["status"]) == (404, "error")


async def test_rate_limit_is_per_resource_and_hour() -> None:
    async with run_site() as site:
        site.sportmonks.limits.hourly = 2
        request = {"api_token": API_TOKEN}

        async def ask(path: str) -> tuple[int, str | None]:
            response = (
                await site.client.get(f"{site.sportmonks.api}{path}").query(request).build().send()
            )
            return response.status, response.headers.get("retry-after")

        assert [await ask("/livescores") for _ in range(2)] == [(200, None)] * 2
        await site.clock.advance(600)
        assert await ask("/livescores") == (429, "3000")
        assert await ask("/leagues") == (200, None)
        await site.clock.advance(3000)
        assert await ask("/livescores") == (200, None)


async def test_playback_speed_follows_the_clock() -> None:
    """At 60, half an hour passes in 30 seconds, and a ball takes about a second."""
    async with run_site() as site:
        fast = site.sportmonks.add(bundled_match(7), speed=60)
        await site.clock.advance(1)
        assert fast.progress.is_tossed
        await site.clock.advance(29)
        (innings,) = fast.progress.balls
        assert innings == 0
        await site.clock.advance(60)
        assert 40 < sum(fast.progress.balls) < 60
        fast.set_speed(None)
        stopped = fast.position
        await site.clock.advance(3600)
        assert fast.position == stopped
        fast.set_speed(1000)
        await site.clock.advance(60)
        assert fast.progress.is_over


async def test_playback_can_advance_per_poll() -> None:
    """The result is never skipped and is shown for some polls."""
    async with run_site() as site:
        site.match.per_poll = 10
        seen: list[list[str]] = []
        while not seen or seen[-1]:
            seen.append([fixture["status"] for fixture in await site.data("/livescores")])
        assert len(seen) == -(-(len(site.match.steps) - 1) // 10) + RESULT_POLLS + 1
        assert seen.count(["Finished"]) == RESULT_POLLS + 1


@pytest.mark.parametrize(
    ("garble", "path"),
    [
        ("no_id", "id"),
        ("no_teams", "localteam_id"),
        ("text_for_numbers", "league_id"),
        ("text_for_a_list", "runs"),
        ("bad_ball", "balls"),
    ],
)
async def test_fixture_can_be_garbled_among_valid_ones(garble: Garble, path: str) -> None:
    async with run_site() as site:
        other = site.sportmonks.add(bundled_match(7))
        site.match.deliver(1)
        other.deliver(1)
        good = await site.data("/livescores", {"include": "runs,balls"})
        other.garble = garble
        bad = await site.data("/livescores", {"include": "runs,balls"})
        assert good[0] == bad[0]
        assert good[1][path] != bad[1][path]


async def test_mistakes_are_corrected() -> None:
    """A ball is misreported, late or duplicated; totals match the reported balls."""
    async with run_site() as site:
        site.match.mistakes = Mistakes(
            wrong={1: Misreport("dot", until=2)}, late={3: 1}, twice=frozenset({0})
        )
        fixtures = [reported_balls(site.match) for _ in range(6)]
        assert [[ball["score"]["name"] for ball in fixture["balls"]] for fixture in fixtures] == [
            ["No Run", "No Run"],
            ["No Run", "No Run", "No Run"],
            ["No Run", "No Run", "No Run", "1 Run"],
            ["No Run", "No Run", "FOUR", "1 Run"],
            ["No Run", "No Run", "FOUR", "1 Run", "No Run", "SIX"],
            ["No Run", "No Run", "FOUR", "1 Run", "No Run", "SIX", "1 Leg Bye"],
        ]
        assert [fixture["runs"][0]["score"] for fixture in fixtures] == [0, 0, 1, 5, 11, 12]
        assert {fixture["balls"][2]["id"] for fixture in fixtures[2:]} == {
            fixtures[1]["balls"][2]["id"]
        }
        assert fixtures[3]["balls"][2]["updated_at"] > fixtures[2]["balls"][2]["updated_at"]


def reported_balls(match: MatchPlayback) -> dict[str, Any]:
    match.deliver()
    return match.fixture()


def test_random_mistakes_are_corrected_at_the_end() -> None:
    match = MatchPlayback(bundled_match(), ManualClock())
    right = MatchPlayback(bundled_match(), ManualClock())
    match.mistakes = random_mistakes(
        random.Random(3), match.deliveries, 0.2, ("dot", "runs", "four", "wicket")
    )
    differing = 0
    while match.deliver():
        right.deliver()
        differing += match.fixture()["runs"] != right.fixture()["runs"]
    assert differing > 10
    match.finish()
    right.finish()
    assert match.fixture()["runs"] == right.fixture()["runs"]
    assert {ball["id"] for ball in match.fixture()["balls"]} == {
        ball["id"] for ball in right.fixture()["balls"]
    }


async def test_poll_can_be_stale() -> None:
    """One stale response, then the current state."""
    async with run_site() as site:
        site.match.deliver(10)
        site.match.lags.extend([0, 4])
        polls = [
            len((await site.data("/livescores", {"include": "balls"}))[0]["balls"])
            for _ in range(3)
        ]
        assert polls == [10, 6, 10]


async def test_control_api_covers_every_function() -> None:
    """The control API offers what the Python object does."""
    async with run_site() as site:
        status, described = await site.control(
            "POST", f"/matches/{BUNDLED_MATCH_ID}/step", {"deliveries": 3}
        )
        assert (status, described["score"], described["status"]) == (
            200,
            ["5/0 (0.3)"],
            "1st Innings",
        )
        content = msgspec.json.decode(
            msgspec.json.encode({"info": {"teams": ["A", "B"]}, "innings": []})
        )
        status, described = await site.control(
            "POST", "/matches", {"content": content, "name": "12", "starts_in": 60}
        )
        assert (status, described["id"], described["teams"]) == (201, 12, ["A", "B"])
        assert (
            await site.control(
                "POST", "/matches/12", {"status": "Delayed", "lags": [1], "garble": "no_id"}
            )
        )[0] == 200
        assert site.sportmonks.playback(12).fixture()["status"] == "Delayed"
        mistakes = {
            "mistakes": {"wrong": {"5": {"how": "dot", "until": 2}}, "late": {"6": 1}, "twice": [7]}
        }
        assert (await site.control("POST", f"/matches/{BUNDLED_MATCH_ID}", mistakes))[0] == 200
        assert site.match.mistakes == Mistakes({5: Misreport("dot", 2)}, {6: 1}, frozenset({7}))
        assert (await site.control("POST", "/schedule", {"count": 5}))[0] == 201
        assert (await site.control("POST", "/limits", {"hourly": 7}))[0] == 204
        assert (await site.control("POST", "/faults", {"path": LIVESCORES, "status": 503}))[
            0
        ] == 204
        _, state = await site.control("GET", "/state")
        assert (
            state["scheduled"],
            state["hourly_limit"],
            len(state["matches"]),
            len(state["faults"]),
        ) == (5, 7, 2, 1)
        assert (await site.control("DELETE", "/faults"))[0] == 204
        assert (await site.control("DELETE", "/matches/12"))[0] == 204
        assert (await site.control("DELETE", "/matches/12"))[0] == 404
        assert (await site.control("POST", f"/matches/{BUNDLED_MATCH_ID}/step", {"to": "result"}))[
            1
        ]["status"] == "Finished"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/matches", {"content": {"info": {}}}),
        ("/matches", {"content": 5}),
        (f"/matches/{BUNDLED_MATCH_ID}", {"speed": 0}),
        (f"/matches/{BUNDLED_MATCH_ID}", {"garble": "upside down"}),
        (f"/matches/{BUNDLED_MATCH_ID}/step", {"steps": -1}),
        ("/schedule", {"count": 10**9}),
        ("/limits", {}),
    ],
)
async def test_control_api_rejects_invalid_bodies(path: str, body: Any) -> None:
    async with run_site() as site:
        status, _ = await site.control("POST", path, body)
        assert status == 400


async def test_faults_do_not_apply_to_the_control_api() -> None:
    async with run_site() as site:
        site.sportmonks.faults.add(InjectedFault(path="/", status=503, times=None))
        response = (
            await site.client.get(f"{site.sportmonks.api}/livescores")
            .query({"api_token": API_TOKEN})
            .build()
            .send()
        )
        assert response.status == 503
        assert (await site.control("GET", "/state"))[0] == 200
        assert site.sportmonks.faults.count(LIVESCORES) == 1


async def test_cognito_has_a_public_client_and_an_admin_group() -> None:
    """Its tokens verify against its JWKS."""
    clock = ManualClock()
    async with CognitoSimulator(clock).serving() as cognito, ClientBuilder().build() as client:
        keys = KeySet(http_key_fetcher(client, f"{cognito.issuer}/.well-known/jwks.json"), clock)
        verifier = TokenVerifier(keys, clock, issuer=cognito.issuer, audience=cognito.client_id)
        ana, olga = (
            await verifier.verify(cognito.user_token("ana")),
            await verifier.verify(cognito.admin_token("olga")),
        )
    assert (ana["sub"], ana.get("cognito:groups")) == ("ana", None)
    assert (olga["sub"], olga["cognito:groups"]) == ("olga", ["admin"])
