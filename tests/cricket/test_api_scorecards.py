"""The scorecard and the timeline of a match: before the start, live, finished and archived."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tally.cricket.repository.active_matches import ACTIVE_MATCHES
from tally.sim.sportmonks.playback import MatchPlayback
from tally.store.api import Delete
from tests.api_response import expect_error
from tests.cricket.api_harness import ApiClient, ApiHarness, open_api_harness

DAY_SECONDS = 86_400


@pytest.fixture
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiHarness]:
    async with open_api_harness(tmp_path_factory.mktemp("cricket")) as opened:
        yield opened


async def read_timeline(client: ApiClient, match_id: str, limit: int) -> list[dict[str, Any]]:
    """Read all pages of a timeline."""
    items, cursor = list[dict[str, Any]](), ""
    while True:
        path = f"/matches/{match_id}/timeline?limit={limit}{cursor}"
        page = await client.get_json(path)
        assert len(page["items"]) <= limit
        items += page["items"]
        if page["nextCursor"] is None:
            return items
        assert len(page["items"]) == limit
        cursor = f"&cursor={page['nextCursor']}"


async def test_a_match_has_a_scorecard_and_a_timeline_from_start_to_archive(
    server: ApiHarness,
) -> None:
    ana = server.user("ana")
    match = server.live_match(0)
    match_id = str(match.match.id)
    await server.sync()
    before = await ana.get_json(f"/matches/{match_id}/scorecard")
    assert before["innings"] == []
    assert before["updatedAt"] is None
    assert await ana.get_json(f"/matches/{match_id}/timeline") == {"items": [], "nextCursor": None}

    match.deliver(20)
    await server.poll()
    live = await ana.get_json(f"/matches/{match_id}/scorecard")
    listed = await ana.get_json(f"/matches/{match_id}")
    innings = live["innings"][0]
    assert live["isLive"] is True
    score = f"{innings['runs']}/{innings['wickets']} ({innings['overs']})"
    assert score in [text for team in listed["teams"] for text in team["scores"]]
    batted = sum(batter["runs"] for batter in innings["batters"])
    assert batted + innings["extras"]["total"] == innings["runs"]
    assert sum(bowler["wickets"] for bowler in innings["bowlers"]) <= innings["wickets"]
    events = await read_timeline(ana, match_id, 100)
    assert events == await read_timeline(ana, match_id, 3)
    assert {event["at"] for event in events} == {server.clock.milliseconds()}
    assert all(event["text"] and event["title"] for event in events)
    boundary = next(event for event in events if event["kind"] in {"four", "six"})
    assert boundary["ball"].count(".") == 1
    assert boundary["isAlert"] is False

    await expect_after_the_match(server, match, events)


async def expect_after_the_match(
    server: ApiHarness, match: MatchPlayback, events: list[dict[str, Any]]
) -> None:
    """Both are complete at the end, and available until 30 days later."""
    ana, match_id = server.user("ana"), str(match.match.id)
    match.finish()
    for _ in range(2):  # A result counts when two polls agree.
        server.skip_time(5)
        await server.poll()
    finished = await read_timeline(ana, match_id, 100)
    assert finished[: len(events)] == events
    assert finished[-1]["kind"] == "match_end"
    assert finished[-1]["at"] == server.clock.milliseconds()
    scorecard = await ana.get_json(f"/matches/{match_id}/scorecard")
    assert scorecard["isOver"] is True
    assert len(scorecard["innings"]) >= 2

    # The active record expires two days after the match.
    engine = server.cricket.repositories.matches.store._engine
    await engine.delete(Delete(ACTIVE_MATCHES, {"matchId": match_id}))
    server.skip_time(10 * DAY_SECONDS)
    ana = server.user("ana")
    assert await read_timeline(ana, match_id, 7) == finished
    assert (await ana.get_json(f"/matches/{match_id}/scorecard"))["innings"] == scorecard["innings"]
    server.skip_time(30 * DAY_SECONDS)
    assert (await server.user("ana").get_json(f"/matches/{match_id}/scorecard"))["innings"] == []


async def test_unknown_matches_and_forged_cursors_are_rejected(server: ApiHarness) -> None:
    ana = server.user("ana")
    match_id = str(server.live_match(0).match.id)
    await server.sync()
    for path in ("scorecard", "timeline"):
        expect_error(await server.anonymous().get(f"/matches/1/{path}"), 401, "missing_token")
        expect_error(await ana.get(f"/matches/1/{path}"), 404, "match_not_found")
    expect_error(await ana.get(f"/matches/{match_id}/timeline?cursor=x"), 400, "invalid_cursor")
    expect_error(await ana.get(f"/matches/{match_id}/timeline?limit=0"), 400, "invalid_field")
