"""Importing files over HTTP: goals advance at once, and a workout from two sources counts once."""

import asyncio
import gzip
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tests.collect import activity_file_factory as files
from tests.collect.activity_file_factory import FORMATS
from tests.collect.conftest import StoreTarget
from tests.collect.server_harness import (
    BrowserResponse,
    CollectServer,
    LinkedUser,
    assert_error,
    open_server,
)
from tests.collect.sync_harness import run_syncs
from tests.collect.test_bad_activity_files import CASES

FILE_HEADERS = {"X-Requested-With": "test", "Content-Type": "application/octet-stream"}


def new_ride(server: CollectServer, **changes: Any) -> files.RecordedRide:
    """A ride of 10 km that started an hour ago."""
    start = server.clock.now().replace(microsecond=0) - timedelta(hours=1)
    return replace(files.RecordedRide(start), **changes)


async def import_file(
    user: LinkedUser, content: bytes, query: str = "", **headers: str
) -> BrowserResponse:
    return await user.browser.send(
        "POST", f"/workouts/import{query}", content, headers=FILE_HEADERS | headers
    )


async def imported(user: LinkedUser, content: bytes, status: int = 201) -> Any:
    response = await import_file(user, content)
    assert response.status == status, response
    return response.json


async def change(user: LinkedUser, method: str, workout_id: str, path: str = "") -> BrowserResponse:
    return await user.browser.send(method, f"/workouts/{quote(workout_id, safe='')}{path}")


async def workouts(user: LinkedUser) -> dict[str, Any]:
    response = await user.browser.get("/workouts?limit=200")
    assert response.status == 200, response
    return {workout["workoutId"]: workout for workout in response.json["items"]}


async def create_goal(server: CollectServer, user: LinkedUser) -> str:
    """Create a goal of 120 km that counts from yesterday on."""
    start = server.clock.now() - timedelta(days=1)
    body = await user.create_milestone(
        totalTarget=120_000, periodStartAtUtc=start.isoformat().replace("+00:00", "Z")
    )
    return str(body["milestoneId"])


async def progress(user: LinkedUser, milestone_id: str) -> float:
    return float((await user.get_milestone(milestone_id))["progress"])


def record(server: CollectServer, user: LinkedUser, metres: float, **changes: Any) -> int:
    """Record the same ride at Strava; return the activity id."""
    start = server.clock.now().replace(microsecond=0) - timedelta(hours=1)
    activity = server.strava.record(
        user.athlete_id, "Ride", metres, start=int(start.timestamp()), elapsed_time=1800, **changes
    )
    return int(activity.id)


@pytest.mark.parametrize("file_format", FORMATS)
async def test_an_import_advances_the_goal_at_once(server: CollectServer, file_format: str) -> None:
    """The same file again, compressed or not, is the same workout."""
    user = await server.create_user()
    goal = await create_goal(server, user)
    ride = new_ride(server)
    content = files.as_file(ride, file_format)
    created = await imported(user, content)
    assert (created["source"], created["activityId"], created["duplicateOf"]) == (
        "file",
        None,
        None,
    )
    assert abs(await progress(user, goal) - 10_000) < 1
    for again in (content, gzip.compress(content)):
        assert await imported(user, again, 200) == created
    assert abs(await progress(user, goal) - 10_000) < 1
    assert list(await workouts(user)) == [created["workoutId"]]


async def test_a_file_and_an_activity_of_one_ride_count_once(server: CollectServer) -> None:
    """Whichever arrives first; the other names it in `duplicateOf`."""
    for file_first in (True, False):
        user = await server.create_user()
        goal = await create_goal(server, user)
        content = files.gpx(new_ride(server))
        if file_first:
            await imported(user, content)
        record(server, user, 10_100)
        await server.process_inbox()
        if not file_first:
            await imported(user, content)
        listed = {workout["source"]: workout for workout in (await workouts(user)).values()}
        first, second = ("file", "strava") if file_first else ("strava", "file")
        assert listed[first]["duplicateOf"] is None
        assert listed[second]["duplicateOf"] == listed[first]["workoutId"]
        expected = 10_000 if file_first else 10_100
        assert abs(await progress(user, goal) - expected) < 1


async def test_an_activity_found_by_a_sync_is_a_copy_of_the_file(
    fresh_server: CollectServer,
) -> None:
    """The webhook was lost. Other activities of the same page count."""
    server = fresh_server
    user = await server.create_user()
    await run_syncs(server)
    goal = await create_goal(server, user)
    file = await imported(user, files.gpx(new_ride(server)))
    server.strava.webhooks.drops = 2
    activity = record(server, user, 10_100)
    server.strava.record(user.athlete_id, "Ride", 5_000)
    await server.strava.webhooks.wait_idle()
    assert (await user.browser.send("POST", "/strava/sync")).status == 202
    await run_syncs(server)
    listed = {each["activityId"]: each for each in (await workouts(user)).values()}
    assert len(listed) == 3
    assert listed[activity]["duplicateOf"] == file["workoutId"]
    assert abs(await progress(user, goal) - 15_000) < 1


async def import_elsewhere(server: CollectServer, user: LinkedUser, content: bytes) -> bool:
    """Import a file as another instance does; return whether it is new."""
    imported = await server.collect.services.imports.import_file(user.user_id, content, None)
    return imported.is_new


async def test_concurrent_imports_of_one_ride_count_once(server: CollectServer) -> None:
    """Two formats on two instances at once, while the webhook is processed."""
    user = await server.create_user()
    goal = await create_goal(server, user)
    ride = new_ride(server)
    record(server, user, 10_000)
    response, is_new, _ = await server.run_with_clock(
        asyncio.gather(
            import_file(user, files.gpx(ride)),
            import_elsewhere(server, user, files.tcx(ride)),
            server.process_inbox(),
        )
    )
    assert (response.status, is_new) == (201, True)
    listed = await workouts(user)
    assert [each["duplicateOf"] for each in listed.values()].count(None) == 1
    assert 9_999 <= await progress(user, goal) <= 10_001


async def test_the_same_file_at_once_is_created_once(server: CollectServer) -> None:
    user = await server.create_user()
    content = files.gpx(new_ride(server))
    both = asyncio.gather(import_file(user, content), import_elsewhere(server, user, content))
    response, is_new = await server.run_with_clock(both)
    assert response.status in {200, 201}
    assert response.status == 201 or is_new
    assert len(await workouts(user)) == 1


async def test_a_user_imports_one_file_at_a_time(server: CollectServer) -> None:
    """Otherwise one account could occupy all parsers. A refusal does not count for the hour."""
    user, other = await server.create_user(), await server.create_user()
    first = files.gpx(new_ride(server))
    with server.collect.services.imports.limits.running(user.user_id):
        refused = await import_file(user, first)
        assert_error(refused, 429, "rate_limit_exceeded")
        assert refused.header("retry-after") == "1"
        assert "one file at a time" in refused.json["detail"]
        await imported(other, first)
    response = await import_file(user, first)
    limit, remaining = response.header("ratelimit-limit"), response.header("ratelimit-remaining")
    assert (response.status, int(remaining or 0)) == (201, int(limit or 0) - 1)


async def test_the_copy_counts_after_the_deletion_of_the_file(server: CollectServer) -> None:
    """A deleted file can be imported again; then it is the copy."""
    user = await server.create_user()
    content = files.gpx(new_ride(server))
    created = await imported(user, content)
    activity = record(server, user, 10_100)
    await server.process_inbox()
    assert (await change(user, "DELETE", created["workoutId"])).status == 204
    (remaining,) = (await workouts(user)).values()
    assert (remaining["activityId"], remaining["duplicateOf"]) == (activity, None)
    assert_error(await change(user, "DELETE", created["workoutId"]), 404, "workout_not_found")
    again = await imported(user, content)
    assert again["duplicateOf"] == remaining["workoutId"]
    server.strava.delete(activity)
    await server.process_inbox()
    (remaining,) = (await workouts(user)).values()
    assert (remaining["workoutId"], remaining["duplicateOf"]) == (created["workoutId"], None)


async def test_a_copy_can_be_separated_and_joined_again(server: CollectServer) -> None:
    """Both count while they are separated, also after an update from Strava."""
    user = await server.create_user()
    goal = await create_goal(server, user)
    first = await imported(user, files.gpx(new_ride(server)))
    activity = record(server, user, 10_000)
    await server.process_inbox()
    (copy_id,) = (await workouts(user)).keys() - {first["workoutId"]}
    assert_error(
        await change(user, "PUT", first["workoutId"], "/separation"), 409, "not_a_duplicate"
    )
    for _ in range(2):
        separated = await change(user, "PUT", copy_id, "/separation")
        assert separated.status == 200
        assert (separated.json["duplicateOf"], separated.json["isSeparated"]) == (None, True)
    assert abs(await progress(user, goal) - 20_000) < 1
    server.strava.edit(activity, name="Renamed")
    await server.process_inbox()
    assert (await workouts(user))[copy_id]["isSeparated"] is True
    for _ in range(2):
        joined = await change(user, "DELETE", copy_id, "/separation")
        assert joined.status == 200
        assert (joined.json["duplicateOf"], joined.json["isSeparated"]) == (
            first["workoutId"],
            False,
        )
    assert abs(await progress(user, goal) - 20_000) < 1  # progress never decreases


async def test_workouts_of_others_and_of_strava_are_protected(server: CollectServer) -> None:
    user, other = await server.create_user(), await server.create_user()
    created = await imported(user, files.gpx(new_ride(server)))
    record(server, other, 5_000)
    await server.process_inbox()
    (activity_id,) = await workouts(other)
    assert_error(await change(other, "DELETE", activity_id), 409, "strava_workout")
    for method, path in (("DELETE", ""), ("PUT", "/separation"), ("DELETE", "/separation")):
        for workout_id in (created["workoutId"], "x", "FILE#", "../../PROFILE"):
            response = await change(other, method, workout_id, path)
            assert response.status == 404, response
    assert list(await workouts(user)) == [created["workoutId"]]


async def test_the_sport_can_be_chosen(server: CollectServer) -> None:
    """At the import, or by a repeated import of a file without a sport."""
    user = await server.create_user()
    goal = await create_goal(server, user)
    content = files.gpx(new_ride(server), sport="kitesurfing")
    assert (await imported(user, content))["sportType"] == "kitesurfing"
    assert await progress(user, goal) == 0
    response = await import_file(user, content, "?sport=RIDE")
    assert (response.status, response.json["sportType"]) == (200, "Ride")
    assert abs(await progress(user, goal) - 10_000) < 1
    assert (await imported(user, content, 200))["sportType"] == "Ride"
    assert_error(await import_file(user, content, "?sport=CHESS"), 400, "invalid_field")


@pytest.mark.parametrize("name", ["empty", "entity bomb", "gzip bomb", "truncated FIT", "NaN"])
async def test_a_bad_file_gets_a_clear_error(server: CollectServer, name: str) -> None:
    """Nothing is written."""
    user = await server.create_user()
    build, code, words = CASES[name]
    response = await import_file(user, build())
    if name == "gzip bomb":
        # The server allows more than the tests of the parser.
        assert_error(response, 400, "unknown_file_format")
    else:
        assert_error(response, 400, code)
        assert words in response.json["detail"]
    assert await workouts(user) == {}


async def test_a_workout_in_the_future_is_rejected(server: CollectServer) -> None:
    user = await server.create_user()
    ride = new_ride(server)
    for days in (3, -40_000):
        moved = replace(ride, start=ride.start + timedelta(days=days))
        response = await import_file(user, files.gpx(moved))
        assert_error(response, 400, "invalid_workout")
        assert "must start between 1990 and now" in response.json["detail"]


async def test_forms_and_other_sites_are_rejected(server: CollectServer) -> None:
    """The error says what to send."""
    user = await server.create_user()
    content = files.gpx(new_ride(server))
    for content_type in ("multipart/form-data; boundary=x", "application/x-www-form-urlencoded"):
        response = await import_file(user, content, **{"Content-Type": content_type})
        assert_error(response, 415, "unsupported_media")
        assert "application/octet-stream" in response.json["detail"]
    response = await import_file(user, content, **{"Content-Encoding": "br"})
    assert_error(response, 415, "unsupported_media")
    response = await user.browser.send(
        "POST", "/workouts/import", content, headers={"Origin": "https://elsewhere.example"}
    )
    assert_error(response, 403, "cross_site_request")


async def test_imports_are_limited_in_size_and_number(store_target: StoreTarget) -> None:
    """Per user and hour, and files that fail count too."""
    folder, settings = await store_target.new_location()
    limits: dict[str, Any] = {"collect_max_file_bytes": 50_000, "collect_imports_per_hour": 3}
    async with open_server(folder, **settings, **limits) as server:
        user, other = await server.create_user(), await server.create_user()
        assert_error(await import_file(user, b"<" * 50_001), 413, "too_large")
        bomb = gzip.compress(b"<gpx>" * 1_000_000)
        assert_error(await import_file(user, bomb), 413, "too_large")
        content = files.gpx(new_ride(server))
        response = await import_file(user, content)
        assert (response.status, response.header("ratelimit-remaining")) == (201, "0")
        response = await import_file(user, b"x")
        assert_error(response, 429, "rate_limit_exceeded")
        assert response.header("retry-after") in {"1200", "1201"}
        assert "3 imports per hour" in response.json["detail"]
        await imported(other, content)
        server.skip_time(1201)
        await imported(user, content, 200)


async def test_a_user_without_strava_can_import(server: CollectServer) -> None:
    browser = server.browser()
    await server.sign_in(browser, "Without Strava")
    me = await browser.get("/me")
    user = LinkedUser(browser, me.json["userId"], 0)
    await imported(user, files.gpx(new_ride(server)))
    assert (await browser.get("/me")).json["counts"]["workouts"] == 1


@pytest.mark.parametrize(
    "workout_id", ["x" * 3000, "FILE#" + "é" * 600, "FILE#", "STRAVA#-1", "\0"]
)
async def test_a_text_that_is_no_workout_id_is_not_found(
    server: CollectServer, workout_id: str
) -> None:
    """Also one that is longer than a key may be."""
    user = await server.create_user()
    for method, path in (("DELETE", ""), ("PUT", "/separation"), ("DELETE", "/separation")):
        response = await change(user, method, workout_id, path)
        assert_error(response, 404, "workout_not_found")
