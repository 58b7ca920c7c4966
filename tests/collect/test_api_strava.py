"""Strava: linked with consent, told by webhook, applied once, and let go again."""

import asyncio

import pytest

from tally.collect.repository.inbox import Inbox
from tally.collect.repository.main import CollectRepository
from tally.collect.repository.table import COMMIT_COLLECT, INBOX_SHARDS, OWNER, athlete_pk, item_key
from tally.sim.fault_injection import InjectedFault
from tally.sim.strava.core import Consent
from tally.sim.strava.model import StravaEvent
from tally.store.api import Delete
from tests.collect.conftest import LogText
from tests.collect.server_harness import (
    SUBSCRIPTION,
    VERIFY,
    CollectServer,
    LinkedUser,
    assert_error,
)

# Few enough that DynamoDB Local mints all their parts in one transaction.
RIDES = 8


async def waiting(server: CollectServer) -> int:
    inbox: Inbox = CollectRepository(server.application.store)
    return sum([len(await inbox.pending_events(shard)) for shard in range(INBOX_SHARDS)])


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


async def test_a_ride_becomes_a_workout_progress_and_parts(server: CollectServer) -> None:
    """From the webhook to the award, with one correlation id all the way."""
    ann = await server.create_user()
    made = await ann.create_milestone()
    ride = server.strava.record(
        ann.athlete_id, "GravelRide", 3500.4, total_elevation_gain=120.5, moving_time=600
    )
    await server.process_inbox()
    page = (await ann.browser.get("/workouts")).json
    assert page["nextCursor"] is None
    assert [
        (each["activityId"], each["distanceMeters"], each["totalElevationGain"])
        for each in page["workouts"]
    ] == [(ride.id, 3500.4, 120.5)]
    now = await ann.get_milestone(made["milestoneId"])
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
    }
    correlation = now["awards"][0]["correlationId"]
    assert correlation
    events = await server.audit(f"correlation={correlation}")
    assert [event["eventType"] for event in events] == ["MILESTONE_PART_MINTED"] * 3
    assert await waiting(server) == 0


async def test_fifty_deliveries_at_once_are_one_workout_and_no_double_mint(
    fresh_server: CollectServer,
) -> None:
    """Also when several workers are at it, and when the event comes once more after it was applied."""
    ann = await fresh_server.create_user()
    made = await ann.create_milestone()
    fresh_server.strava.webhooks.hold()
    ride = fresh_server.strava.record(ann.athlete_id, "Ride", 5000)
    fresh_server.strava.webhooks.redeliver(event(ann, ride.id), 50)
    await fresh_server.strava.webhooks.wait_idle()
    assert {delivery.status for delivery in fresh_server.strava.webhooks.log} == {200}
    await asyncio.gather(*(fresh_server.collect.worker.run() for _ in range(5)))
    first = await ann.get_milestone(made["milestoneId"])
    assert first["partsMinted"] == 5
    assert len((await ann.browser.get("/workouts")).json["workouts"]) == 1
    fresh_server.strava.webhooks.redeliver(event(ann, ride.id), 5)
    await fresh_server.process_inbox()
    assert await ann.get_milestone(made["milestoneId"]) == first
    assert await waiting(fresh_server) == 0


async def test_events_that_piled_up_are_measured_together(server: CollectServer) -> None:
    """All of them count, and what counts is read once, not once for each."""
    ann = await server.create_user()
    made = await ann.create_milestone()
    before = (await server.patterns()).get("Aggregate workouts", {"calls": 0})["calls"]
    for _ in range(RIDES):
        server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    now = await ann.get_milestone(made["milestoneId"])
    assert (now["progress"], now["partsMinted"], now["version"]) == (
        1000 * RIDES,
        RIDES,
        made["version"] + 1,
    )
    assert (await server.patterns())["Aggregate workouts"]["calls"] == before + 1
    assert len((await ann.browser.get("/workouts")).json["workouts"]) == RIDES


async def test_events_that_arrive_in_any_order_end_in_the_newest_state(
    server: CollectServer,
) -> None:
    """An older update never overwrites a newer state, and a late creation does not bring back what was deleted."""
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
    found = (await ann.browser.get("/workouts")).json["workouts"]
    assert [(each["activityId"], each["name"]) for each in found] == [(kept.id, "third")]
    server.strava.webhooks.redeliver(event(ann, gone.id, time=1))
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["workouts"]) == 1


async def test_an_expired_token_is_refreshed_and_the_newest_pair_is_kept(
    server: CollectServer,
) -> None:
    """Again and again, though Strava rotates the refresh token each time."""
    ann = await server.create_user()
    made = await ann.create_milestone()
    asked = server.strava.faults.count("/oauth/token", "POST")
    for number in range(1, 4):
        server.skip_time(6 * 3600)
        server.strava.record(ann.athlete_id, "Ride", 1000)
        await server.process_inbox()
        assert (await ann.get_milestone(made["milestoneId"]))["partsMinted"] == number
    assert server.strava.faults.count("/oauth/token", "POST") == asked + 3


async def test_workers_that_refresh_at_once_end_with_one_pair_that_works(
    server: CollectServer,
) -> None:
    """The refresh token of whoever was first is worth nothing to the others: they find the new one, and no event is lost."""
    ann = await server.create_user()
    made = await ann.create_milestone()
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
        assert (await ann.get_milestone(made["milestoneId"]))["partsMinted"] == 6 * number
        assert await waiting(server) == 0
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_a_token_that_strava_refuses_early_is_replaced(server: CollectServer) -> None:
    """What the token says about its own time is no promise."""
    ann = await server.create_user()
    made = await ann.create_milestone()
    server.strava.authorizations.expire(ann.athlete_id)
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert (await ann.get_milestone(made["milestoneId"]))["partsMinted"] == 1


async def test_a_limit_is_waited_for_and_nothing_is_lost(
    fresh_server: CollectServer, log_text: LogText
) -> None:
    """After a 429 Strava is left alone until the quarter of an hour is over."""
    ann = await fresh_server.create_user()
    made = await ann.create_milestone()
    fresh_server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=429))
    for _ in range(3):
        fresh_server.strava.record(ann.athlete_id, "Ride", 1000)
    await fresh_server.process_inbox()
    asked = fresh_server.strava.faults.count("/api/v3/activities")
    assert asked == 1
    assert await waiting(fresh_server) == 3
    assert log_text().count("Event processing failed") == 1
    await fresh_server.process_inbox()
    assert fresh_server.strava.faults.count("/api/v3/activities") == asked
    fresh_server.skip_time(15 * 60)
    await fresh_server.process_inbox()
    assert (await ann.get_milestone(made["milestoneId"]))["partsMinted"] == 3
    assert await waiting(fresh_server) == 0


async def test_a_failing_strava_is_tried_again_later(fresh_server: CollectServer) -> None:
    """With a pause that grows, and the event waits in the inbox for it."""
    ann = await fresh_server.create_user()
    made = await ann.create_milestone()
    fresh_server.strava.faults.add(
        InjectedFault(path="/api/v3/activities", status=400, body="{}", times=2)
    )
    fresh_server.strava.record(ann.athlete_id, "Ride", 1000)
    for _ in range(2):
        await fresh_server.process_inbox()
        assert await waiting(fresh_server) == 1
        fresh_server.skip_time(60)
    await fresh_server.process_inbox()
    assert await waiting(fresh_server) == 0
    assert (await ann.get_milestone(made["milestoneId"]))["partsMinted"] == 1


async def test_an_activity_of_nobody_here_is_taken_and_forgotten(server: CollectServer) -> None:
    """There is nobody to tell, and it is no reason to be asked again."""
    ann = await server.create_user()
    stranger, told = LinkedUser(ann.browser, "", 987_654_321), len(server.strava.webhooks.log)
    server.strava.webhooks.redeliver(event(stranger, 5))
    server.strava.webhooks.redeliver(event(ann, 404_404))
    await server.process_inbox()
    assert [delivery.status for delivery in server.strava.webhooks.log][told:] == [200, 200]
    assert await waiting(server) == 0
    assert (await ann.browser.get("/workouts")).json["workouts"] == []


async def test_the_handshake_wants_the_verify_token(server: CollectServer) -> None:
    """The challenge comes back only to whoever knows it."""
    browser = server.browser()
    good = await browser.get(
        f"/webhooks/strava?hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=abc"
    )
    assert (good.status, good.json) == (200, {"hub.challenge": "abc"})
    for query in (
        "hub.mode=subscribe&hub.verify_token=x&hub.challenge=abc",
        f"hub.verify_token={VERIFY}",
        "",
    ):
        assert_error(await browser.get(f"/webhooks/strava?{query}"), 403, "invalid_verify_token")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"subscription_id": 7}, 403, "foreign_subscription"),
        ({"object_id": -1}, 400, "invalid_field"),
        ({"object_id": "x"}, 400, "invalid_field"),
        ({"event_time": 10**12}, 400, "invalid_field"),
        ({"event_time": 4_000_000_000}, 400, "invalid_field"),
        ({"owner_id": None}, 400, "invalid_field"),
        ({"updates": {"a": {"b": "c"}}}, 400, "invalid_field"),
    ],
)
async def test_bad_events_are_refused(
    server: CollectServer, change: dict[str, object], status: int, code: str
) -> None:
    """And leave nothing behind."""
    good = {
        "object_type": "activity",
        "object_id": 1,
        "aspect_type": "create",
        "owner_id": 1,
        "event_time": 1,
    }
    body = good | {"subscription_id": SUBSCRIPTION} | change
    assert_error(await server.browser().send("POST", "/webhooks/strava", body), status, code)
    assert await waiting(server) == 0


async def test_without_access_to_activities_there_is_no_link(server: CollectServer) -> None:
    """Denied, or unticked: nothing is stored."""
    browser = server.browser()
    await server.sign_in(browser, "Ona")
    athlete = server.strava.add_athlete("Ona")
    assert_error(
        await server.link(browser, athlete.id, scope="read"), 403, "activity_access_missing"
    )
    assert_error(await server.link(browser, athlete.id, denied=True), 403, "strava_access_denied")
    assert (await browser.get("/strava/status")).json["connected"] is False


async def test_a_link_must_end_in_the_session_that_began_it(server: CollectServer) -> None:
    """Nobody can be made to link another's athlete, and a state works once."""
    ann, bob = await server.create_user(), await server.create_user()
    server.strava.auto_approve = Consent(ann.athlete_id)
    begun = await ann.browser.get("/strava/connect")
    agreed = await ann.browser.follow(begun, server.url)
    assert_error(await bob.browser.follow(agreed, server.strava.url), 400, "invalid_state")
    assert (await ann.browser.follow(agreed, server.strava.url)).status == 303
    assert_error(await ann.browser.follow(agreed, server.strava.url), 400, "invalid_state")
    assert_error(await server.browser().follow(agreed, server.strava.url), 401, "invalid_session")


async def test_an_athlete_of_another_is_a_conflict_and_nothing_changes(
    server: CollectServer,
) -> None:
    """The other's link goes on working."""
    ann, bob = await server.create_user(), await server.create_user()
    before = (await bob.browser.get("/strava/status")).json
    assert_error(await server.link(bob.browser, ann.athlete_id), 409, "athlete_already_connected")
    assert (await bob.browser.get("/strava/status")).json == before
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["workouts"]) == 1


async def test_a_second_athlete_takes_the_place_of_the_first(server: CollectServer) -> None:
    """The first is free for others, and Strava was told."""
    ann, bob = await server.create_user(), await server.create_user()
    second = server.strava.add_athlete("Second")
    assert (await server.link(ann.browser, second.id)).status == 303
    assert (await ann.browser.get("/strava/status")).json["athleteId"] == second.id
    assert server.strava.authorizations.access_of(ann.athlete_id) is None
    await server.process_inbox()
    assert (await server.link(bob.browser, ann.athlete_id)).status == 303
    assert (await ann.browser.get("/strava/status")).json["athleteId"] == second.id


async def test_unlinking_revokes_and_forgets(server: CollectServer) -> None:
    """A second time there is nothing to unlink; linking again works, also past the news of the first unlinking."""
    ann = await server.create_user()
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert server.strava.authorizations.access_of(ann.athlete_id) is None
    assert (await ann.browser.get("/strava/status")).json["connected"] is False
    assert_error(
        await ann.browser.send("DELETE", "/strava/connection"), 404, "strava_not_connected"
    )
    await server.strava.webhooks.wait_idle()
    await server.clock.advance(5)
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_unlinking_cleans_up_where_the_owner_is_missing(server: CollectServer) -> None:
    """Damage does not keep anybody linked, and the athlete can be linked again."""
    ann = await server.create_user()
    await server.application.store.engine.delete(
        Delete(COMMIT_COLLECT, item_key(athlete_pk(ann.athlete_id), OWNER))
    )
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert server.strava.authorizations.access_of(ann.athlete_id) is None
    assert [
        item
        for item in await server.scan_table(COMMIT_COLLECT)
        if str(ann.athlete_id) in str(item.get("PK"))
    ] == []
    await server.strava.webhooks.wait_idle()
    await server.clock.advance(5)
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is True


async def test_unlinking_works_while_strava_is_away(fresh_server: CollectServer) -> None:
    """Nothing of the link stays here, whether or not Strava heard of it."""
    ann = await fresh_server.create_user()
    fresh_server.strava.faults.add(InjectedFault(path="/oauth/deauthorize", status=503, times=None))
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert (await ann.browser.get("/strava/status")).json["connected"] is False


async def test_a_deauthorisation_at_strava_is_a_disconnect(server: CollectServer) -> None:
    """What was collected stays."""
    ann = await server.create_user()
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    server.strava.deauthorize(ann.athlete_id)
    await server.process_inbox()
    assert (await ann.browser.get("/strava/status")).json["connected"] is False
    assert len((await ann.browser.get("/workouts")).json["workouts"]) == 1
    assert "STRAVA_DEAUTHORISED" in [
        event["eventType"] for event in await server.audit(f"user={ann.user_id}")
    ]
