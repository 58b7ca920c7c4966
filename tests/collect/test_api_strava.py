"""Strava connections and webhook events over HTTP."""

import asyncio

import pytest

from tally.collect.repository.table import COMMIT_COLLECT, OWNER, athlete_pk, item_key
from tally.sim.fault_injection import InjectedFault
from tally.sim.strava.core import Consent
from tally.sim.strava.model import StravaEvent
from tally.store.api import Delete
from tests.collect.conftest import LogText
from tests.collect.server_harness import (
    CALLBACK,
    SUBSCRIPTION,
    VERIFY,
    WEBHOOK_SECRET,
    CollectServer,
    LinkedUser,
    assert_error,
)

# Few enough for DynamoDB Local to mint all parts in one transaction.
RIDES = 8


async def inbox_size(server: CollectServer) -> int:
    """Return the number of events that are neither applied nor parked."""
    items = await server.scan_table(COMMIT_COLLECT)
    return sum(
        str(item["PK"]).startswith("INBOX#ATHLETE#") and str(item["SK"]).startswith("EVENT#")
        for item in items
    )


def event(
    member: LinkedUser,
    activity_id: int,
    aspect: str = "create",
    time: int = 1_767_225_600,
    **updates: str,
) -> StravaEvent:
    return StravaEvent(
        aspect_type=aspect,
        event_time=time,
        object_id=activity_id,
        object_type="activity",
        owner_id=member.athlete_id,
        subscription_id=SUBSCRIPTION,
        updates=updates,
    )


async def test_an_activity_becomes_a_workout_progress_and_awards(server: CollectServer) -> None:
    """One correlation id links the webhook event and the awards."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    ride = server.strava.record(
        ann.athlete_id, "GravelRide", 3500.4, total_elevation_gain=120.5, moving_time=600
    )
    await server.process_inbox()
    page = (await ann.browser.get("/workouts")).json
    assert page["nextCursor"] is None
    assert [
        (workout["activityId"], workout["distanceMeters"], workout["totalElevationGain"])
        for workout in page["items"]
    ] == [(ride.id, 3500.4, 120.5)]
    now = await ann.get_milestone(milestone["milestoneId"])
    assert (now["progress"], now["percent"], now["partsMinted"], now["status"]) == (
        3500.4,
        29,
        3,
        "ACTIVE",
    )
    assert [(award["partIndex"], award["name"]) for award in now["awards"]] == [
        (1, "Meadow"),
        (2, "Haunches"),
        (3, "Hind paws"),
    ]
    assert now["nextPart"] == {"partIndex": 4, "threshold": 4000, "remaining": pytest.approx(499.6)}
    assert (await ann.browser.get("/me")).json["counts"] == {
        "workouts": 1,
        "milestones": 1,
        "awards": 3,
        "hasMoreWorkouts": False,
    }
    correlation = now["awards"][0]["correlationId"]
    assert correlation
    events = await server.audit(f"correlation={correlation}")
    assert [event["eventType"] for event in events] == ["MILESTONE_PART_MINTED"] * 3
    assert await inbox_size(server) == 0


async def test_fifty_concurrent_deliveries_are_applied_once(
    fresh_server: CollectServer,
) -> None:
    """Also with concurrent workers, and with redelivery after completion."""
    ann = await fresh_server.create_user()
    milestone = await ann.create_milestone()
    fresh_server.strava.webhooks.hold()
    ride = fresh_server.strava.record(ann.athlete_id, "Ride", 5000)
    fresh_server.strava.webhooks.redeliver(event(ann, ride.id), 50)
    await fresh_server.strava.webhooks.wait_idle()
    assert {delivery.status for delivery in fresh_server.strava.webhooks.log} == {200}
    await asyncio.gather(*(fresh_server.collect.worker.run() for _ in range(5)))
    first = await ann.get_milestone(milestone["milestoneId"])
    assert first["partsMinted"] == 5
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    fresh_server.strava.webhooks.redeliver(event(ann, ride.id), 5)
    await fresh_server.process_inbox()
    assert await ann.get_milestone(milestone["milestoneId"]) == first
    assert await inbox_size(fresh_server) == 0


async def test_a_backlog_is_aggregated_once(server: CollectServer) -> None:
    """All events count, and the workouts are read once."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    before = (await server.patterns()).get("Aggregate workouts", {"calls": 0})["calls"]
    for _ in range(RIDES):
        server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    now = await ann.get_milestone(milestone["milestoneId"])
    assert (now["progress"], now["partsMinted"], now["version"]) == (
        1000 * RIDES,
        RIDES,
        milestone["version"] + 1,
    )
    assert (await server.patterns())["Aggregate workouts"]["calls"] == before + 1
    assert len((await ann.browser.get("/workouts")).json["items"]) == RIDES


async def test_out_of_order_events_end_in_the_newest_state(
    server: CollectServer,
) -> None:
    """Older updates never overwrite newer ones, and a late create does not restore a deletion."""
    ann = await server.create_user()
    kept = server.strava.record(ann.athlete_id, "Ride", 1000, name="first")
    gone = server.strava.record(ann.athlete_id, "Ride", 2000)
    await server.strava.webhooks.wait_idle()
    server.strava.webhooks.hold()
    for name in ("second", "third"):
        await server.clock.advance(1)
        server.strava.edit(kept.id, name=name)
    await server.clock.advance(1)
    server.strava.delete(gone.id)
    server.strava.webhooks.release("reversed")
    await server.process_inbox()
    found = (await ann.browser.get("/workouts")).json["items"]
    assert [(workout["activityId"], workout["name"]) for workout in found] == [(kept.id, "third")]
    server.strava.webhooks.redeliver(event(ann, gone.id, time=1))
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1


async def test_expired_tokens_are_refreshed_and_the_newest_pair_is_stored(
    server: CollectServer,
) -> None:
    """Repeatedly, although Strava rotates the refresh token."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    requests = server.strava.faults.count("/oauth/token", "POST")
    for number in range(1, 4):
        server.skip_time(6 * 3600)
        server.strava.record(ann.athlete_id, "Ride", 1000)
        await server.process_inbox()
        assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == number
    assert server.strava.faults.count("/oauth/token", "POST") == requests + 3


async def test_concurrent_refreshes_end_with_one_valid_pair(
    server: CollectServer,
) -> None:
    """Workers that lose the race use the stored tokens, and no event is lost."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    for number in range(1, 3):
        server.skip_time(6 * 3600)
        for _ in range(6):
            server.strava.record(ann.athlete_id, "Ride", 1000)
        await server.strava.webhooks.wait_idle()
        await server.run_with_clock(
            asyncio.gather(*(server.collect.worker.run() for _ in range(5)))
        )
        server.skip_time(61)
        await server.process_inbox()
        assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 6 * number
        assert await inbox_size(server) == 0
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_a_token_that_strava_rejects_early_is_refreshed(server: CollectServer) -> None:
    """The expiry of a token is not guaranteed."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    server.strava.authorizations.expire(ann.athlete_id)
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 1


async def test_an_exhausted_rate_limit_pauses_processing(
    fresh_server: CollectServer, log_text: LogText
) -> None:
    """After a 429, Strava gets no requests until the quarter hour ends; no event is lost."""
    ann = await fresh_server.create_user()
    milestone = await ann.create_milestone()
    fresh_server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=429))
    for _ in range(3):
        fresh_server.strava.record(ann.athlete_id, "Ride", 1000)
    await fresh_server.process_inbox()
    requests = fresh_server.strava.faults.count("/api/v3/activities")
    assert requests == 1
    assert await inbox_size(fresh_server) == 3
    assert log_text().count("Event processing failed") == 1
    await fresh_server.process_inbox()
    assert fresh_server.strava.faults.count("/api/v3/activities") == requests
    fresh_server.skip_time(15 * 60)
    await fresh_server.process_inbox()
    assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 3
    assert await inbox_size(fresh_server) == 0


async def test_a_failed_event_is_retried_with_back_off(fresh_server: CollectServer) -> None:
    """The event stays in the inbox until it succeeds."""
    ann = await fresh_server.create_user()
    milestone = await ann.create_milestone()
    fresh_server.strava.faults.add(
        InjectedFault(path="/api/v3/activities", status=400, body="{}", times=2)
    )
    fresh_server.strava.record(ann.athlete_id, "Ride", 1000)
    for _ in range(2):
        await fresh_server.process_inbox()
        assert await inbox_size(fresh_server) == 1
        fresh_server.skip_time(60)
    await fresh_server.process_inbox()
    assert await inbox_size(fresh_server) == 0
    assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 1


async def test_events_of_unknown_athletes_are_discarded(server: CollectServer) -> None:
    """Strava gets a 200, so that it does not redeliver."""
    ann = await server.create_user()
    stranger, delivered = LinkedUser(ann.browser, "", 987_654_321), len(server.strava.webhooks.log)
    server.strava.webhooks.redeliver(event(stranger, 5))
    server.strava.webhooks.redeliver(event(ann, 404_404))
    await server.process_inbox()
    assert [delivery.status for delivery in server.strava.webhooks.log][delivered:] == [200, 200]
    assert await inbox_size(server) == 0
    assert (await ann.browser.get("/workouts")).json["items"] == []


async def test_the_handshake_requires_the_verify_token(server: CollectServer) -> None:
    """The challenge is returned only with the right token."""
    browser = server.browser()
    good = await browser.get(
        f"{CALLBACK}?hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=abc"
    )
    assert (good.status, good.json) == (200, {"hub.challenge": "abc"})
    for query in (
        "hub.mode=subscribe&hub.verify_token=x&hub.challenge=abc",
        f"hub.verify_token={VERIFY}",
        "",
    ):
        assert_error(await browser.get(f"{CALLBACK}?{query}"), 403, "invalid_verify_token")
    shake = f"hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=abc"
    for secret in ("x", f"{WEBHOOK_SECRET}x", WEBHOOK_SECRET[:-1], "%00", "%C3%A9"):
        refused = await browser.get(f"/webhooks/strava/{secret}?{shake}")
        assert_error(refused, 403, "invalid_verify_token")
    assert (await browser.get(f"/webhooks/strava?{shake}")).status == 404


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"object_id": -1}, 400, "invalid_field"),
        ({"object_id": "x"}, 400, "invalid_field"),
        ({"event_time": 10**12}, 400, "invalid_field"),
        ({"owner_id": None}, 400, "invalid_field"),
        ({"updates": {"a": {"b": "c"}}}, 400, "invalid_field"),
    ],
)
async def test_invalid_events_are_rejected(
    server: CollectServer, change: dict[str, object], status: int, code: str
) -> None:
    """Nothing is stored."""
    good = {
        "object_type": "activity",
        "object_id": 1,
        "aspect_type": "create",
        "owner_id": 1,
        "event_time": 1,
    }
    body = good | {"subscription_id": SUBSCRIPTION} | change
    for path in (CALLBACK, "/webhooks/strava/another-secret"):
        assert_error(await server.browser().send("POST", path, body), status, code)
    assert await inbox_size(server) == 0


async def test_linking_requires_access_to_activities(server: CollectServer) -> None:
    """Nothing is stored if access is denied or the scope is missing."""
    browser = server.browser()
    await server.sign_in(browser, "Ona")
    athlete = server.strava.add_athlete("Ona")
    assert_error(
        await server.link(browser, athlete.id, scope="read"), 403, "activity_access_missing"
    )
    assert_error(await server.link(browser, athlete.id, denied=True), 403, "strava_access_denied")
    assert (await browser.get("/strava/status")).json["connected"] is False


async def test_a_link_is_bound_to_the_session_that_started_it(server: CollectServer) -> None:
    """Another session is rejected, and a state is valid once."""
    ann, bob = await server.create_user(), await server.create_user()
    server.strava.auto_approve = Consent(ann.athlete_id)
    begun = await ann.browser.get("/strava/connect")
    agreed = await ann.browser.follow(begun, server.url)
    assert_error(await bob.browser.follow(agreed, server.strava.url), 400, "invalid_state")
    assert (await ann.browser.follow(agreed, server.strava.url)).status == 303
    assert_error(await ann.browser.follow(agreed, server.strava.url), 400, "invalid_state")
    assert_error(await server.browser().follow(agreed, server.strava.url), 401, "invalid_session")


async def test_an_athlete_of_another_user_is_a_conflict(
    server: CollectServer,
) -> None:
    """Nothing changes, and the existing link keeps working."""
    ann, bob = await server.create_user(), await server.create_user()
    before = (await bob.browser.get("/strava/status")).json
    assert_error(await server.link(bob.browser, ann.athlete_id), 409, "athlete_already_connected")
    assert (await bob.browser.get("/strava/status")).json == before
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1


async def test_linking_a_second_athlete_replaces_the_first(server: CollectServer) -> None:
    """The first is revoked at Strava and free for other users."""
    ann, bob = await server.create_user(), await server.create_user()
    second = server.strava.add_athlete("Second")
    assert (await server.link(ann.browser, second.id)).status == 303
    assert (await ann.browser.get("/strava/status")).json["athleteId"] == second.id
    assert server.strava.authorizations.access_token_for(ann.athlete_id) is None
    await server.process_inbox()
    assert (await server.link(bob.browser, ann.athlete_id)).status == 303
    assert (await ann.browser.get("/strava/status")).json["athleteId"] == second.id


async def test_unlinking_revokes_the_tokens_and_deletes_the_connection(
    server: CollectServer,
) -> None:
    """A repetition returns 404. Linking again survives the late deauthorization event."""
    ann = await server.create_user()
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert server.strava.authorizations.access_token_for(ann.athlete_id) is None
    assert (await ann.browser.get("/strava/status")).json["connected"] is False
    assert_error(
        await ann.browser.send("DELETE", "/strava/connection"), 404, "strava_not_connected"
    )
    await server.strava.webhooks.wait_idle()
    await server.clock.advance(5)
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_unlinking_works_without_an_owner_item(server: CollectServer) -> None:
    """The athlete can be linked again."""
    ann = await server.create_user()
    await server.application.engine.delete(
        Delete(COMMIT_COLLECT, item_key(athlete_pk(ann.athlete_id), OWNER))
    )
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert server.strava.authorizations.access_token_for(ann.athlete_id) is None
    assert [
        item
        for item in await server.scan_table(COMMIT_COLLECT)
        if item["PK"] == athlete_pk(ann.athlete_id)
    ] == []
    await server.strava.webhooks.wait_idle()
    await server.clock.advance(5)
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_unlinking_works_while_strava_is_unavailable(fresh_server: CollectServer) -> None:
    """The connection is deleted even if the revocation fails."""
    ann = await fresh_server.create_user()
    fresh_server.strava.faults.add(InjectedFault(path="/oauth/revoke", status=503, times=None))
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert (await ann.browser.get("/strava/status")).json["connected"] is False


async def test_a_deauthorisation_at_strava_deletes_the_connection(server: CollectServer) -> None:
    """Workouts are retained."""
    ann = await server.create_user()
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    server.strava.deauthorize(ann.athlete_id)
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is False
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    assert "STRAVA_DEAUTHORISED" in [
        event["eventType"] for event in await server.audit(f"user={ann.user_id}")
    ]
