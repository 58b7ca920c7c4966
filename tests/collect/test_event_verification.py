"""Webhook events are unverified claims: only Strava's answers change anything."""

import asyncio
import re
from typing import Any

import pytest

from tally.collect.repository.table import COMMIT_COLLECT, event_sk, inbox_pk, inbox_shard, item_key
from tally.sim.fault_injection import InjectedFault
from tally.sim.strava.model import StravaEvent
from tally.store.api import Put
from tally.store.values import Item
from tests.collect.conftest import LogText, StoreTarget
from tests.collect.server_harness import (
    ADMIN,
    CALLBACK,
    SUBSCRIPTION,
    CollectServer,
    LinkedUser,
    assert_error,
    open_server,
)
from tests.collect.test_api_strava import event, inbox_size


async def metric(server: CollectServer, name: str) -> float:
    """Return a sample of /metrics; 0 if there is none yet."""
    page = await server.browser().get(f"{server.url.removesuffix('/collect')}/metrics")
    found = re.search(rf"^{re.escape(name)} (.+)$", page.body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def deauthorization(member: LinkedUser, time: int = 1_767_225_600) -> StravaEvent:
    return StravaEvent(
        aspect_type="update",
        event_time=time,
        object_id=member.athlete_id,
        object_type="athlete",
        owner_id=member.athlete_id,
        subscription_id=SUBSCRIPTION,
        updates={"authorized": "false"},
    )


async def connection_status(member: LinkedUser) -> tuple[bool, bool]:
    status = (await member.browser.get("/strava/status")).json
    me = (await member.browser.get("/me")).json
    assert me["strava"] == status
    return status["connected"], status["needsRelink"]


async def parked_events(server: CollectServer, query: str = "") -> list[dict[str, object]]:
    response = await server.browser().send(
        "GET", f"/admin/parked-events?{query}", headers={"Authorization": f"Bearer {ADMIN}"}
    )
    assert response.status == 200, response
    return list(response.json["items"])


async def retry_parked(server: CollectServer, athlete_id: int | None) -> int:
    response = await server.browser().send(
        "POST",
        "/admin/parked-events/retry",
        {"athleteId": athlete_id},
        {"Authorization": f"Bearer {ADMIN}"},
    )
    assert response.status == 200, response
    return int(response.json["retried"])


async def test_a_forged_deletion_deletes_nothing(server: CollectServer) -> None:
    """The workout is deleted once Strava answers 404."""
    ann = await server.create_user()
    ride = server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    server.strava.webhooks.redeliver(event(ann, ride.id, "delete", 1_767_225_700))
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    server.strava.delete(ride.id)
    await server.process_inbox()
    assert (await ann.browser.get("/workouts")).json["items"] == []


async def test_a_forged_deauthorization_unlinks_nobody(server: CollectServer) -> None:
    """The link keeps working, and the event is counted as unconfirmed."""
    ann = await server.create_user()
    server.skip_time(1)
    server.strava.webhooks.redeliver(deauthorization(ann))
    await server.process_inbox()
    assert await connection_status(ann) == (True, False)
    assert await metric(server, "tally_collect_events_unconfirmed_total") >= 1
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1


async def test_an_event_from_the_future_does_not_block_later_ones(server: CollectServer) -> None:
    """Its time is clamped to now."""
    ann = await server.create_user()
    ride = server.strava.record(ann.athlete_id, "Ride", 1000, name="before")
    server.strava.webhooks.redeliver(event(ann, ride.id, "update", 99_999_999_999))
    await server.process_inbox()
    server.strava.edit(ride.id, name="after")
    await server.process_inbox()
    found = (await ann.browser.get("/workouts")).json["items"]
    assert [workout["name"] for workout in found] == ["after"]
    assert await inbox_size(server) == 0


@pytest.mark.parametrize(
    ("path", "change", "reason"),
    [
        ("/webhooks/strava/another-secret", {}, "unknown_secret"),
        (CALLBACK, {"subscription_id": 7}, "unknown_subscription"),
        (CALLBACK, {"subscription_id": 0}, "unknown_subscription"),
        (CALLBACK, {"owner_id": 987_654_321}, "unknown_athlete"),
    ],
)
async def test_unknown_senders_get_the_same_response_and_are_counted(
    server: CollectServer, path: str, change: dict[str, object], reason: str
) -> None:
    """Nothing is stored and Strava is not called."""
    ann = await server.create_user()
    await server.process_inbox()
    calls = len(server.strava.faults.requests)
    body = {
        "object_type": "activity",
        "object_id": 1,
        "aspect_type": "create",
        "owner_id": ann.athlete_id,
        "subscription_id": SUBSCRIPTION,
        "event_time": 1,
    }
    accepted = await server.browser().send("POST", CALLBACK, body)
    await server.collect.worker.run()
    name = f'tally_collect_webhook_events_dropped_total{{reason="{reason}"}}'
    before = await metric(server, name)
    dropped = await server.browser().send("POST", path, body | change)
    assert (dropped.status, dropped.body) == (accepted.status, accepted.body) == (200, dropped.body)
    assert await metric(server, name) == before + 1
    assert await inbox_size(server) == 0
    await server.collect.worker.run()
    assert len(server.strava.faults.requests) == calls + 1


async def test_without_a_known_subscription_no_event_is_accepted(
    store_target: StoreTarget,
) -> None:
    """Until one is registered; then its events are accepted, and no others."""
    folder, settings = await store_target.new_location()
    async with open_server(folder, collect_strava_subscription_id=0, **settings) as server:
        ann = await server.create_user()
        first = server.strava.record(ann.athlete_id, "Ride", 1000)
        await server.process_inbox()
        assert (await ann.browser.get("/workouts")).json["items"] == []
        server.strava.webhooks.unsubscribe()
        subscription = server.collect.services.subscription
        registered = await subscription.register(server.url.removesuffix("/collect"))
        assert await subscription.register(server.url.removesuffix("/collect")) == registered
        await server.clock.advance(5)
        server.strava.webhooks.redeliver(event(ann, first.id))  # of another subscription
        second = server.strava.record(ann.athlete_id, "Ride", 2000)
        await server.process_inbox()
        found = (await ann.browser.get("/workouts")).json["items"]
        assert [workout["activityId"] for workout in found] == [second.id]


async def test_a_rejected_refresh_token_needs_a_relink(
    fresh_server: CollectServer, log_text: LogText
) -> None:
    """Shown in the status, to the account and in the audit trail; events wait for the relink."""
    server = fresh_server
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    server.strava.webhooks.drops = 1  # the deauthorization event is lost
    server.strava.deauthorize(ann.athlete_id)
    server.strava.webhooks.redeliver(event(ann, 5))
    assert await connection_status(ann) == (True, False)
    await server.process_inbox()
    assert await connection_status(ann) == (True, True)
    audited = [entry["eventType"] for entry in await server.audit(f"user={ann.user_id}")]
    assert audited.count("STRAVA_RELINK_REQUIRED") == 1
    calls = server.strava.faults.count("/oauth/token")
    server.strava.webhooks.redeliver(event(ann, 6))
    await server.process_inbox()
    assert server.strava.faults.count("/oauth/token") == calls
    assert {str(entry["reason"]) for entry in await parked_events(server)} == {"needs_relink"}
    assert len(await parked_events(server)) == 2
    assert await metric(server, 'tally_collect_events_parked_total{reason="needs_relink"}') == 2
    assert log_text().count("Strava rejected a refresh token") == 1
    server.strava.webhooks.hold()
    ride = server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.clock.advance(1)
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    assert await connection_status(ann) == (True, False)
    assert await parked_events(server) == []
    server.strava.webhooks.redeliver(event(ann, ride.id))
    await server.process_inbox()
    assert await inbox_size(server) == 0
    assert (await ann.get_milestone(milestone["milestoneId"]))["partsMinted"] == 1


@pytest.mark.parametrize(
    ("fault", "needs_relink"),
    [
        (InjectedFault(path="/oauth/token", status=400, body="{}"), True),
        (InjectedFault(path="/oauth/token", status=401, body="{}"), True),
        (InjectedFault(path="/oauth/token", status=403, body="{}"), False),
        (InjectedFault(path="/oauth/token", status=500), False),
        (InjectedFault(path="/oauth/token", drop="before"), False),
        (
            InjectedFault(
                path="/oauth/token",
                status=401,
                body='{"errors": [{"resource": "Application", "field": "", "code": "invalid"}]}',
            ),
            False,
        ),
    ],
    ids=["400", "401", "403", "500", "dropped", "wrong client secret"],
)
async def test_only_a_rejected_refresh_needs_a_relink(
    server: CollectServer, fault: InjectedFault, needs_relink: bool
) -> None:
    """Failures of Strava or of the operator do not concern the athlete."""
    ann = await server.create_user()
    server.skip_time(6 * 3600)
    server.strava.faults.add(fault)
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert await connection_status(ann) == (True, needs_relink)
    if not needs_relink:
        server.skip_time(120)
        await server.process_inbox()
        assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    server.strava.faults.clear()


async def test_an_inactive_application_is_reported_to_operators(
    fresh_server: CollectServer, log_text: LogText
) -> None:
    """No athlete has to relink, and the events wait until the application is active again."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.is_inactive = True
    rides = [server.strava.record(ann.athlete_id, "Ride", 1000) for _ in range(3)]
    for _ in range(3):
        await server.process_inbox()
        server.skip_time(301)
    assert await connection_status(ann) == (True, False)
    assert await metric(server, "tally_collect_strava_inactive") == 1
    assert log_text().count('"action":"strava_inactive"') == 1
    assert server.strava.faults.count("/api/v3/activities") == 3
    assert server.collect.probes[0].name == "strava"
    assert not server.collect.probes[0].is_required
    begun = await ann.browser.get("/strava/connect")
    refused = await ann.browser.follow(
        await ann.browser.follow(begun, server.url), server.strava.url
    )
    assert_error(refused, 503, "strava_inactive")
    server.strava.is_inactive = False
    server.skip_time(900)
    await server.process_inbox()
    assert await metric(server, "tally_collect_strava_inactive") == 0
    assert log_text().count("Strava has reactivated the application") == 1
    found = (await ann.browser.get("/workouts")).json["items"]
    assert {workout["activityId"] for workout in found} == {ride.id for ride in rides}


async def test_calls_are_bounded_per_athlete_and_in_total(store_target: StoreTarget) -> None:
    """Events beyond the limits wait for the next window; other athletes are not blocked."""
    folder, settings = await store_target.new_location()
    limits: dict[str, Any] = {
        "collect_strava_athlete_event_reads": 4,
        "collect_strava_event_reads": 6,
    }
    async with open_server(folder, **limits, **settings) as server:
        ann, bob = await server.create_user(), await server.create_user()
        await server.clock.advance(900 - server.clock.seconds() % 900)
        for number in range(1, 21):
            server.strava.webhooks.redeliver(event(ann, number))
        await server.strava.webhooks.wait_idle()
        for _ in range(3):
            await server.collect.worker.run()
        assert server.strava.faults.count("/api/v3/activities") == 4
        rides = [server.strava.record(bob.athlete_id, "Ride", 1000) for _ in range(3)]
        await server.process_inbox()
        assert server.strava.faults.count("/api/v3/activities") == 6
        assert await inbox_size(server) == 17
        for _ in range(8):
            server.skip_time(900)
            for _ in range(3):
                await server.collect.worker.run()
        assert await inbox_size(server) == 0
        assert server.strava.faults.count("/api/v3/activities") == 23
        assert len((await bob.browser.get("/workouts")).json["items"]) == len(rides)


async def test_events_about_one_activity_need_one_read(fresh_server: CollectServer) -> None:
    """However many were received."""
    server = fresh_server
    ann = await server.create_user()
    ride = server.strava.record(ann.athlete_id, "Ride", 1000)
    for number in range(1, 30):
        server.strava.webhooks.redeliver(event(ann, ride.id, "update", number))
    await server.process_inbox()
    assert server.strava.faults.count("/api/v3/activities") == 1
    assert await inbox_size(server) == 0


@pytest.mark.timeout(900)  # DynamoDB Local takes minutes on a busy machine
async def test_stuck_events_of_one_athlete_do_not_block_others(
    fresh_server: CollectServer,
) -> None:
    """1,005 events of one athlete fail; the events of all others are applied in the same run."""
    server = fresh_server
    ann = await server.create_user()
    others = [await server.create_user() for _ in range(3)]
    while inbox_shard(others[-1].athlete_id) != inbox_shard(ann.athlete_id):
        others.append(await server.create_user())
    body = {
        "object_type": "activity",
        "aspect_type": "create",
        "owner_id": ann.athlete_id,
        "subscription_id": SUBSCRIPTION,
    }
    browser = server.browser()
    for first in range(0, 1005, 67):
        sent = await asyncio.gather(
            *(
                browser.send("POST", CALLBACK, body | {"object_id": number, "event_time": number})
                for number in range(first + 1, first + 68)
            )
        )
        assert {response.status for response in sent} == {200}
    server.strava.authorizations.revoke(ann.athlete_id)
    server.strava.authorizations.expire(ann.athlete_id)
    await server.clock.advance(1)
    for other in others:
        server.strava.record(other.athlete_id, "Ride", 1000)
    await server.process_inbox()
    for other in others:
        assert len((await other.browser.get("/workouts")).json["items"]) == 1
    for _ in range(11):
        await server.collect.worker.run()
    assert await inbox_size(server) == 0
    assert await retry_parked(server, ann.athlete_id) == 1005


async def test_an_event_is_parked_after_bounded_retries(fresh_server: CollectServer) -> None:
    """Operators see the reason and retry it."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.faults.add(
        InjectedFault(path="/api/v3/activities", status=400, body="{}", times=None)
    )
    ride = server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.strava.webhooks.wait_idle()
    for _ in range(12):
        assert await parked_events(server) == []
        await server.collect.worker.run()
        server.skip_time(3600)
    parked = await parked_events(server, f"athlete={ann.athlete_id}")
    assert [(entry["objectId"], entry["reason"]) for entry in parked] == [(ride.id, "failed")]
    assert await inbox_size(server) == 0
    calls = server.strava.faults.count("/api/v3/activities")
    await server.collect.worker.run()
    assert server.strava.faults.count("/api/v3/activities") == calls
    server.strava.faults.clear()
    assert await retry_parked(server, 12345) == 0
    assert await retry_parked(server, None) == 1
    await server.collect.worker.run()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    assert await parked_events(server) == []


def unsorted_event_item(athlete_id: int, activity_id: int) -> Item:
    """Build an event as an earlier version stored it, by shard."""
    key = f"{athlete_id:040}"
    return item_key(inbox_pk(inbox_shard(athlete_id)), event_sk(1_767_225_600, key)) | {
        "eventKey": key,
        "objectType": "activity",
        "objectId": activity_id,
        "aspectType": "create",
        "ownerId": athlete_id,
        "eventTime": 1_767_225_600,
        "isDeauthorisation": False,
        "correlationId": "corr-old",
        "receivedAtMs": 1_767_225_600_000,
        "attempts": 3,
        "notBefore": 0,
    }


async def test_events_of_an_earlier_version_are_applied(server: CollectServer) -> None:
    """An earlier version stored them by shard."""
    ann = await server.create_user()
    server.strava.webhooks.drops = 1
    ride = server.strava.record(ann.athlete_id, "Ride", 1000)
    item = unsorted_event_item(ann.athlete_id, ride.id)
    await server.application.engine.put(Put(COMMIT_COLLECT, item))
    await server.collect.worker.adopt_events()
    await server.collect.worker.run()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1
    assert await inbox_size(server) == 0


async def test_a_deauthorization_of_a_former_link_does_not_affect_the_new_one(
    server: CollectServer,
) -> None:
    """Disconnecting and connecting again within the same second keeps the new link."""
    ann = await server.create_user()
    server.strava.webhooks.hold()
    assert (await ann.browser.send("DELETE", "/strava/connection")).status == 204
    assert (await server.link(ann.browser, ann.athlete_id)).status == 303
    server.strava.webhooks.release()
    await server.process_inbox()
    assert await connection_status(ann) == (True, False)
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    assert len((await ann.browser.get("/workouts")).json["items"]) == 1


async def test_deferred_events_keep_the_correlation_id(
    fresh_server: CollectServer, log_text: LogText
) -> None:
    """From the delivery through the failure to the award."""
    server = fresh_server
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=400, body="{}"))
    server.strava.record(ann.athlete_id, "Ride", 1000)
    await server.process_inbox()
    failed = [line for line in log_text().splitlines() if "Event processing failed" in line]
    server.skip_time(60)
    await server.process_inbox()
    now = await ann.get_milestone(milestone["milestoneId"])
    correlation = now["awards"][0]["correlationId"]
    assert len(failed) == 1
    assert correlation in failed[0]
