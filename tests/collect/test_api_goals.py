"""The HTTP API for changing milestones: target, archive, deletion, and what counts for them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tally.collect.model.records import MAX_MILESTONES
from tally.collect.repository.table import COMMIT_COLLECT
from tests.collect import factories
from tests.collect.server_harness import CollectServer, LinkedUser, assert_error
from tests.collect.service_harness import write_workouts

PAST = "2020-01-01T00:00:00Z"


async def ride(server: CollectServer, user: LinkedUser, metres: int, **fields: Any) -> int:
    """Record a ride at Strava and apply its event; return the id of the activity."""
    activity = server.strava.record(user.athlete_id, "Ride", metres, **fields)
    await server.process_inbox()
    return activity.id


async def test_a_milestone_without_awards_is_deleted(server: CollectServer) -> None:
    """It is gone, also for events that arrive later."""
    ann, bob = await server.create_user(), await server.create_user()
    goal = await ann.create_milestone()
    path = f"/milestones/{goal['milestoneId']}"
    await ride(server, ann, 999)
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 999
    assert_error(await bob.browser.send("DELETE", path), 404, "milestone_not_found")
    assert_error(await ann.browser.send("DELETE", path, headers={}), 403, "cross_site_request")
    assert (await ann.browser.send("DELETE", path)).status == 204
    assert_error(await ann.browser.get(path), 404, "milestone_not_found")
    assert_error(await ann.browser.send("DELETE", path), 404, "milestone_not_found")
    await ride(server, ann, 5000)
    assert (await ann.browser.get("/milestones")).json["items"] == []
    items = await server.scan_table(COMMIT_COLLECT)
    assert [item for item in items if goal["milestoneId"] in str(item)] == []
    kinds = {event["eventType"] for event in await server.audit(f"user={ann.user_id}")}
    assert "MILESTONE_DELETED" in kinds


async def test_a_milestone_with_awards_is_not_deleted(server: CollectServer) -> None:
    """The owner keeps what was minted, and the error says what to do."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    await ride(server, ann, 1000)
    response = await ann.browser.send("DELETE", f"/milestones/{goal['milestoneId']}")
    assert_error(response, 409, "milestone_has_awards")
    assert "archive it instead" in response.json["detail"]
    assert len((await ann.get_milestone(goal["milestoneId"]))["awards"]) == 1


async def test_an_archived_milestone_keeps_its_awards_and_does_not_advance(
    server: CollectServer,
) -> None:
    """It stays readable. Archiving it again changes nothing; recompute and PATCH are refused."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    await ride(server, ann, 1500)
    path = f"/milestones/{goal['milestoneId']}"
    archived = (await ann.browser.send("POST", f"{path}/archive")).json
    assert archived["archivedAtUtc"] is not None
    assert archived["status"] == "ACTIVE"
    assert archived["nextPart"] is None
    assert [award["partIndex"] for award in archived["awards"]] == [1]
    await ride(server, ann, 5000)
    assert (await ann.browser.send("POST", f"{path}/archive")).json == archived
    assert_error(await ann.browser.send("POST", f"{path}/recompute"), 409, "milestone_archived")
    for target in (100, 12_000):
        response = await ann.browser.send("PATCH", path, {"totalTarget": target})
        assert_error(response, 409, "milestone_archived")
    assert_error(await ann.browser.send("DELETE", path), 409, "milestone_has_awards")
    assert await ann.get_milestone(goal["milestoneId"]) == archived
    assert (await ann.browser.get("/milestones")).json["items"] == [archived]
    events = await server.audit(f"user={ann.user_id}")
    assert [event["eventType"] for event in events].count("MILESTONE_ARCHIVED") == 1


async def test_the_limit_is_of_milestones_that_are_not_archived(server: CollectServer) -> None:
    """Archiving or deleting one makes room for another."""
    ann = await server.create_user()
    goals = [await ann.create_milestone() for _ in range(MAX_MILESTONES)]
    body = {"modelId": "fox", "sport": "RUN", "metric": "DISTANCE_METERS", "totalTarget": 5}
    response = await ann.browser.send("POST", "/milestones", body)
    assert_error(response, 409, "too_many_milestones")
    first, second = (f"/milestones/{goal['milestoneId']}" for goal in goals[:2])
    assert (await ann.browser.send("POST", f"{first}/archive")).status == 200
    assert (await ann.browser.send("POST", "/milestones", body)).status == 201
    response = await ann.browser.send("POST", "/milestones", body)
    assert_error(response, 409, "too_many_milestones")
    assert (await ann.browser.send("DELETE", second)).status == 204
    assert (await ann.browser.send("POST", "/milestones", body)).status == 201
    assert len((await ann.browser.get("/milestones")).json["items"]) == MAX_MILESTONES + 1


async def test_concurrent_requests_do_not_exceed_the_limit(server: CollectServer) -> None:
    """Each counts the milestones that the others created."""
    ann = await server.create_user()
    for _ in range(MAX_MILESTONES - 2):
        await ann.create_milestone()
    body = {"modelId": "fox", "sport": "RUN", "metric": "DISTANCE_METERS", "totalTarget": 5}
    responses = await server.run_with_clock(
        asyncio.gather(*(ann.browser.send("POST", "/milestones", body) for _ in range(5)))
    )
    # A service may also refuse transactions that conflict; the client retries then.
    assert {response.status for response in responses} <= {201, 409, 503}
    assert len((await ann.browser.get("/milestones")).json["items"]) <= MAX_MILESTONES
    while (response := await ann.browser.send("POST", "/milestones", body)).status == 201:
        pass
    assert_error(response, 409, "too_many_milestones")
    assert len((await ann.browser.get("/milestones")).json["items"]) == MAX_MILESTONES


async def test_the_target_is_editable_until_the_first_part_is_minted(server: CollectServer) -> None:
    """A higher target lowers the percentage, never the progress; a lower one mints at once."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    path = f"/milestones/{goal['milestoneId']}"
    await ride(server, ann, 900)
    raised = (await ann.browser.send("PATCH", path, {"totalTarget": 120_000})).json
    assert (raised["totalTarget"], raised["progress"], raised["percent"]) == (120_000, 900, 0)
    assert raised["nextPart"]["threshold"] == 10_000
    lowered = (await ann.browser.send("PATCH", path, {"totalTarget": 3600})).json
    assert (lowered["progress"], lowered["percent"], lowered["partsMinted"]) == (900, 25, 3)
    assert [award["threshold"] for award in lowered["awards"]] == [300, 600, 900]
    assert (await ann.browser.send("PATCH", path, {"totalTarget": 3600})).json == lowered
    for target in (3601, 3599, 12_000):
        response = await ann.browser.send("PATCH", path, {"totalTarget": target})
        assert_error(response, 409, "milestone_has_awards")
    assert await ann.get_milestone(goal["milestoneId"]) == lowered


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_field"),
        ({"totalTarget": 0}, "invalid_field"),
        ({"totalTarget": 10**10}, "invalid_field"),
        ({"totalTarget": 1.5}, "invalid_field"),
        ({"totalTarget": None}, "invalid_field"),
        ({"totalTarget": 5, "sport": "RUN"}, "unknown_field"),
    ],
)
async def test_an_invalid_target_is_rejected(
    server: CollectServer, body: dict[str, object], code: str
) -> None:
    """The milestone is unchanged."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    response = await ann.browser.send("PATCH", f"/milestones/{goal['milestoneId']}", body)
    assert_error(response, 400, code)
    assert await ann.get_milestone(goal["milestoneId"]) == goal


async def test_deleting_races_with_minting(server: CollectServer) -> None:
    """Either the milestone is gone with everything, or it stays with its awards."""
    ann = await server.create_user()
    for _ in range(5):
        goal = await ann.create_milestone()
        server.strava.record(ann.athlete_id, "Ride", 1000)
        await server.strava.webhooks.wait_idle()
        path = f"/milestones/{goal['milestoneId']}"
        work = asyncio.gather(server.collect.worker.run(), ann.browser.send("DELETE", path))
        _, response = await server.run_with_clock(work)
        items = await server.scan_table(COMMIT_COLLECT)
        left = [item for item in items if goal["milestoneId"] in str(item)]
        assert len(left) == (0 if response.status == 204 else 2)
        assert response.status in {204, 409}


async def test_flagged_activities_never_count(server: CollectServer) -> None:
    """They are listed. An activity that Strava no longer flags counts; awards stay."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    flagged = await ride(server, ann, 5000, flagged=True)
    await ride(server, ann, 1000)
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 1000
    listed = (await ann.browser.get("/workouts")).json["items"]
    assert {workout["activityId"] for workout in listed if workout["isFlagged"]} == {flagged}
    server.strava.edit(flagged, flagged=False, name="An honest ride")
    await server.process_inbox()
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 6000
    server.strava.edit(flagged, flagged=True, name="A car ride")
    await server.process_inbox()
    later = await ann.create_milestone(periodStartAtUtc=PAST)
    assert later["progress"] == 1000
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 6000


async def test_manual_activities_count_by_default(server: CollectServer) -> None:
    """The bundled models accept them, and the list shows which they are."""
    ann = await server.create_user()
    goal = await ann.create_milestone()
    assert goal["countsManual"] is True
    assert (await server.browser().get("/models/fox")).json["countsManual"] is True
    await ride(server, ann, 1000, manual=True)
    assert (await ann.get_milestone(goal["milestoneId"]))["progress"] == 1000
    assert [entry["isManual"] for entry in (await ann.browser.get("/workouts")).json["items"]] == [
        True
    ]


async def test_only_the_workouts_of_the_sport_and_period_are_bounded(
    server: CollectServer,
) -> None:
    """Other sports and years refuse no goal; a goal over the bound is refused with the reason."""
    ann = await server.create_user()
    engine = server.application.engine
    runs = [factories.workout(ann.user_id, sport_type="Run") for _ in range(3001)]
    old = [factories.workout(ann.user_id, started_at="2021-05-05T05:05:05Z") for _ in range(30)]
    await write_workouts(engine, [*runs, *old])
    goal = await ann.create_milestone(periodStartAtUtc=PAST, totalTarget=60_030)
    assert goal["progress"] == 30_015
    body = {"modelId": "fox", "sport": "RUN", "metric": "DISTANCE_METERS", "totalTarget": 5}
    response = await ann.browser.send("POST", "/milestones", body | {"periodStartAtUtc": PAST})
    assert_error(response, 409, "too_many_workouts")
    assert "More than 3000 workouts of the sport RUN" in response.json["detail"]
    assert (await ann.browser.get("/milestones")).json["items"] == [goal]
    later = body | {"periodStartAtUtc": "2026-01-02T00:00:00Z"}
    assert (await ann.browser.send("POST", "/milestones", later)).status == 201
    counts = (await ann.browser.get("/me")).json["counts"]
    assert (counts["workouts"], counts["hasMoreWorkouts"]) == (3031, False)


async def test_a_milestone_that_grows_over_the_bound_says_so(server: CollectServer) -> None:
    """Its owner sees the reason, operators the audit event, once; other milestones advance."""
    ann = await server.create_user()
    goal = await ann.create_milestone(totalTarget=1_000_000_000)
    other = await ann.create_milestone(sport="RUN")
    narrow = await ann.create_milestone(periodEndAtUtc="2096-01-01T00:00:00Z")
    rides = [factories.workout(ann.user_id, started_at="2096-01-01T00:00:00Z") for _ in range(3000)]
    await write_workouts(server.application.engine, rides)
    server.strava.record(ann.athlete_id, "Run", 700)
    first = await ride(server, ann, 500)
    await ride(server, ann, 500)
    stalled = await ann.get_milestone(goal["milestoneId"])
    assert (stalled["stalledReason"], stalled["progress"]) == ("too_many_workouts", 0)
    assert stalled["status"] == "ACTIVE"
    for current, progress in ((other, 700), (narrow, 1000)):
        now = await ann.get_milestone(current["milestoneId"])
        assert (now["stalledReason"], now["progress"]) == (None, progress)
    events = await server.audit(f"user={ann.user_id}")
    assert [event["facts"] for event in events if event["eventType"] == "MILESTONE_STALLED"] == [
        {"milestone": goal["milestoneId"], "why": "too_many_workouts"}
    ]
    server.strava.delete(first)
    await server.process_inbox()
    await write_workouts(
        server.application.engine,
        [replace(workout, is_deleted=True) for workout in rides[:10]],
    )
    await ride(server, ann, 200)
    resumed = await ann.get_milestone(goal["milestoneId"])
    assert resumed["stalledReason"] is None
    assert resumed["progress"] == 500 + 200 + 2990 * 1000.5
