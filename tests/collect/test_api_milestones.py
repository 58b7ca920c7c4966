"""The HTTP API for models, milestones, streams, workouts and account deletion."""

import asyncio

import pytest

from tally.collect.model.records import SESSION_SECONDS
from tally.collect.repository.main import CollectRepository
from tally.collect.wiring import REPOSITORIES
from tally.settings import SettingsError
from tally.store.access import access_patterns
from tests.collect import factories
from tests.collect.server_harness import CollectServer, assert_error, open_server
from tests.collect.service_harness import write_workouts


async def test_models_are_public_and_have_parts_with_meshes(server: CollectServer) -> None:
    """No session is required."""
    models = (await server.browser().get("/models")).json["items"]
    assert [model["modelId"] for model in models] == ["discus-thrower", "fox", "lighthouse"]
    fox = (await server.browser().get("/models/fox")).json
    assert [part["partIndex"] for part in fox["parts"]] == list(range(1, 13))
    assert fox["parts"][0]["mesh"][0]["position"] == [0, 0.05, 0]
    for unknown in ("unicorn", "%00", "x" * 3000):
        assert_error(await server.browser().get(f"/models/{unknown}"), 404, "model_not_found")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"modelId": "unicorn"}, 404, "model_not_found"),
        ({"sport": "CHESS"}, 400, "invalid_field"),
        ({"metric": "CALORIES"}, 400, "invalid_field"),
        ({"totalTarget": 0}, 400, "invalid_field"),
        ({"totalTarget": 1.5}, 400, "invalid_field"),
        ({"totalTarget": 10**10}, 400, "invalid_field"),
        ({"periodStartAtUtc": "soon"}, 400, "invalid_field"),
        ({"periodEndAtUtc": "2020-01-01T00:00:00Z"}, 400, "invalid_field"),
        ({"colour": "red"}, 400, "unknown_field"),
    ],
)
async def test_an_invalid_milestone_is_rejected(
    server: CollectServer, change: dict[str, object], status: int, code: str
) -> None:
    """Nothing is created."""
    ann = await server.create_user()
    body = {
        "modelId": "fox",
        "sport": "RUN",
        "metric": "ELEVATION_METERS",
        "totalTarget": 500,
    } | change
    assert_error(await ann.browser.send("POST", "/milestones", body), status, code)
    assert (await ann.browser.get("/milestones")).json == {"items": [], "nextCursor": None}


async def test_a_milestone_is_visible_only_to_its_owner(server: CollectServer) -> None:
    """Other users cannot read, subscribe to or recompute it."""
    ann, bob = await server.create_user(), await server.create_user()
    path = f"/milestones/{(await ann.create_milestone())['milestoneId']}"
    assert_error(await bob.browser.get(path), 404, "milestone_not_found")
    assert_error(await bob.browser.get(f"{path}/events"), 404, "milestone_not_found")
    assert_error(await bob.browser.send("POST", f"{path}/recompute"), 404, "milestone_not_found")
    assert_error(await server.browser().get(path), 401, "invalid_session")


async def test_the_last_part_is_minted_at_the_target(server: CollectServer) -> None:
    """The milestone is then completed and never changes again."""
    ann = await server.create_user()
    milestone = await ann.create_milestone(totalTarget=1000, sport="RUN")
    run = server.strava.record(ann.athlete_id, "TrailRun", 500)
    await server.process_inbox()
    server.strava.record(ann.athlete_id, "TreadmillRun", 499.9)
    await server.process_inbox()
    assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 11
    server.strava.record(ann.athlete_id, "VirtualRun", 0.1)
    await server.process_inbox()
    done = await ann.get_milestone(milestone["milestoneId"])
    assert (done["status"], done["percent"], done["partsMinted"], done["nextPart"]) == (
        "COMPLETED",
        100,
        12,
        None,
    )
    server.strava.delete(run.id)
    await server.process_inbox()
    again = await ann.browser.send("POST", f"/milestones/{milestone['milestoneId']}/recompute")
    assert again.json == done


async def test_twenty_concurrent_recomputes_over_http_agree(server: CollectServer) -> None:
    """Each part is minted once, all responses are equal, and the version increases by one."""
    ann = await server.create_user()
    milestone = await ann.create_milestone(
        periodStartAtUtc="2020-01-01T00:00:00Z", totalTarget=8_000
    )
    ride = factories.workout(ann.user_id, distance=5000)
    await write_workouts(server.application.engine, [ride])
    path = f"/milestones/{milestone['milestoneId']}/recompute"
    responses = await server.run_with_clock(
        asyncio.gather(*(ann.browser.send("POST", path) for _ in range(20)))
    )
    assert {response.status for response in responses} == {200}
    now = await ann.get_milestone(milestone["milestoneId"])
    assert all(response.json == now for response in responses)
    assert (now["version"], now["partsMinted"]) == (milestone["version"] + 1, 7)
    assert [award["partIndex"] for award in now["awards"]] == list(range(1, 8))


async def test_subscribers_receive_progress_and_mints(
    server: CollectServer,
) -> None:
    """The current state comes first, then every change."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    url = f"{server.url}/milestones/{milestone['milestoneId']}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={ann.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as response:
        assert response.status == 200
        received = b""
        while b"event: snapshot" not in received:
            received += bytes(await response.body_reader.read_chunk() or b"")
        server.strava.record(ann.athlete_id, "Ride", 2000)
        await server.process_inbox()
        while received.count(b"event: minted") < 2:
            received += bytes(await response.body_reader.read_chunk() or b"")
    assert b'"progress":2000.0' in received
    assert b'"name":"Haunches"' in received


@pytest.mark.parametrize("end", ["log out", "expire"])
async def test_a_stream_ends_with_its_session(fresh_server: CollectServer, end: str) -> None:
    server = fresh_server
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    url = f"{server.url}/milestones/{milestone['milestoneId']}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={ann.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as response:
        assert response.status == 200
        await server.application.streams.maintain()
        if end == "log out":
            assert (await ann.browser.send("POST", "/auth/logout")).status == 204
        else:
            server.skip_time(SESSION_SECONDS)
        await server.application.streams.maintain()
        received = b""
        while chunk := await response.body_reader.read_chunk():
            received += bytes(chunk)
    assert received.endswith(b"event: session_ended\ndata: {}\n\n")


@pytest.mark.parametrize("instance", ["this", "another"])
async def test_a_stream_ends_with_its_milestone(fresh_server: CollectServer, instance: str) -> None:
    """Whichever instance deletes it; a client that connects again gets 404."""
    server = fresh_server
    ann = await server.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    path = f"/milestones/{milestone_id}"
    request = server.client.get(f"{server.url}{path}/events").header(
        "Cookie", f"cc_session={ann.browser.session}"
    )
    async with request.streamed_read_buffer_limit(0).build_streamed() as response:
        received = bytes(await response.body_reader.read_chunk() or b"")
        if instance == "this":
            assert (await ann.browser.send("DELETE", path)).status == 204
        else:
            repository = server.collect.services.engine.repository
            found = await repository.milestone(ann.user_id, milestone_id)
            assert found is not None
            assert await repository.delete_milestone(found.milestone)
        while chunk := await response.body_reader.read_chunk():
            received += bytes(chunk)
    final = f'event: deleted\ndata: {{"milestoneId":"{milestone_id}"}}\n\n'
    assert received.endswith(final.encode())
    assert (await ann.browser.get(f"{path}/events")).status == 404


async def test_workouts_are_paged_with_cursors_bound_to_the_user(server: CollectServer) -> None:
    """Newest first. A cursor of another user or a modified cursor is rejected."""
    ann, bob = await server.create_user(), await server.create_user()
    rides = [server.strava.record(ann.athlete_id, "Ride", 1000 + number).id for number in range(5)]
    await server.process_inbox()
    first = (await ann.browser.get("/workouts?limit=2")).json
    second = (await ann.browser.get(f"/workouts?limit=3&cursor={first['nextCursor']}")).json
    found = [workout["activityId"] for workout in (*first["items"], *second["items"])]
    assert found == rides[::-1]
    assert_error(
        await bob.browser.get(f"/workouts?cursor={first['nextCursor']}"), 400, "invalid_cursor"
    )
    assert_error(await ann.browser.get("/workouts?cursor=AAAA"), 400, "invalid_cursor")
    for query in ("limit=0", "limit=201", "limit=x", "colour=red"):
        assert (await ann.browser.get(f"/workouts?{query}")).status == 400


async def test_too_many_workouts_return_409(server: CollectServer) -> None:
    """The milestone is unchanged."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    rides = [
        factories.workout(ann.user_id, started_at=milestone["periodStartAtUtc"])
        for _ in range(3001)
    ]
    await write_workouts(server.application.engine, rides)
    response = await ann.browser.send("POST", f"/milestones/{milestone['milestoneId']}/recompute")
    assert_error(response, 409, "too_many_workouts")
    server.strava.record(ann.athlete_id, "Ride", 5000)
    await server.process_inbox()
    assert (await ann.get_milestone(milestone["milestoneId"]))["progress"] == 0


async def test_cookies_over_plain_http_require_a_loopback_address(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any other host is rejected at start."""
    async with open_server(tmp_path_factory.mktemp("plain"), collect_plain_http=True) as server:
        response = await server.sign_in(server.browser(), "Yan")
        assert "secure" not in response.cookies["cc_session"].lower()
    with pytest.raises(SettingsError, match="TALLY_COLLECT_PLAIN_HTTP"):
        async with open_server(
            tmp_path_factory.mktemp("open"),
            collect_plain_http=True,
            host="0.0.0.0",  # noqa: S104
        ):
            pass


async def test_every_access_pattern_is_fully_described() -> None:
    """The access-pattern page has no empty cells."""
    for repository in REPOSITORIES:
        for method, pattern in access_patterns(repository).items():
            assert pattern.key_condition or "GetRecords" in str(pattern.operation), method
            assert pattern.trigger, (repository, method)
            assert pattern.frequency, (repository, method)
    assert len(access_patterns(CollectRepository)) >= 25
