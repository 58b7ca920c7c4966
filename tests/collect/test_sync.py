"""The sync finds workouts whose events never arrived, within the limits, from any interruption."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tally.collect.model.sync import LIST_PAGE_SIZE
from tally.collect.service.sync_pages import MAX_HIDDEN_PAGES
from tally.collect.service.sync_worker import DAY_SECONDS, GAP_SECONDS, LEASE_SECONDS
from tally.collect.service.webhook import WebhookService
from tally.errors import Unavailable
from tally.kit.clock import rfc3339
from tally.sim.fault_injection import InjectedFault
from tally.sim.strava.core import Consent
from tally.sim.strava.rate_limits import RateLimit
from tally.store.api import BatchWrite
from tests.collect.server_harness import CollectServer, LinkedUser, assert_error, open_server
from tests.collect.sync_harness import (
    LIST_PATH,
    interrupted_worker,
    repeating_worker,
    run_syncs,
    stored_workouts,
    strava_status,
    strava_workouts,
)
from tests.collect.test_api_strava import event

INACTIVE = '{"errors":[{"resource":"Application","field":"Status","code":"Inactive"}]}'


def days_ago(server: CollectServer, days: float) -> int:
    return server.clock.seconds() - round(days * 86_400)


def time_ago(server: CollectServer, days: float) -> str:
    return rfc3339(server.clock.now() - timedelta(days=days))


async def synced_user(server: CollectServer, days: float = 30) -> LinkedUser:
    """A user with a goal that started some days ago, whose first sync is complete."""
    user = await server.create_user()
    await user.create_milestone(periodStartAtUtc=time_ago(server, days), totalTarget=1_000_000)
    await server.collect.sync_worker.beat()
    await run_syncs(server)
    assert (await strava_status(user))["isSyncing"] is False
    return user


def lose_events(server: CollectServer) -> None:
    """All events from now on are lost."""
    server.strava.webhooks.drops = 10**6


def list_reads(server: CollectServer) -> int:
    return server.strava.faults.count(LIST_PATH)


async def test_linking_imports_the_activities_since_the_earliest_goal(
    fresh_server: CollectServer,
) -> None:
    """450 activities of three pages; older ones stay out; the milestone advances."""
    server, browser = fresh_server, fresh_server.browser()
    await server.sign_in(browser, "Ann")
    athlete = server.strava.add_athlete("Ann")
    user = LinkedUser(browser, (await browser.get("/me")).json["userId"], athlete.id)
    goal = await user.create_milestone(periodStartAtUtc=time_ago(server, 30), totalTarget=450_000)
    server.strava.record(athlete.id, start=days_ago(server, 31))
    made = [
        server.strava.record(athlete.id, "Ride", 1000, start=days_ago(server, 30) + 60 * number).id
        for number in range(450)
    ]
    assert (await server.link(browser, athlete.id)).status == 303
    status = await strava_status(user)
    assert (status["isSyncing"], status["lastSyncedAtUtc"]) == (True, None)
    started = rfc3339(server.clock.now())
    await run_syncs(server)
    assert set(await stored_workouts(user)) == set(made)
    assert (await user.get_milestone(goal["milestoneId"]))["status"] == "COMPLETED"
    status = await strava_status(user)
    assert (status["isSyncing"], status["lastSyncedAtUtc"]) == (False, started)
    assert list_reads(server) == 4
    assert (await browser.get("/me")).json["strava"] == status


async def test_more_activities_of_one_second_than_a_page_has_are_synced(
    fresh_server: CollectServer,
) -> None:
    """Some devices upload many activities with one start time. Earlier and later ones follow."""
    server = fresh_server
    user = await synced_user(server)
    lose_events(server)
    first = days_ago(server, 20)
    for start, count in ((first, 50), (first + 60, 450), (first + 120, 3)):
        for _ in range(count):
            server.strava.record(user.athlete_id, start=start)
    assert (await user.browser.send("POST", "/strava/sync")).status == 202
    await run_syncs(server)
    assert len(await stored_workouts(user)) == 503
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_private_activities_do_not_end_a_sync_that_may_not_read_them(
    tmp_path: Path,
) -> None:
    """Strava returns empty pages in their place, between those of public activities."""
    async with open_server(tmp_path) as server:
        user = await synced_user(server)
        server.strava.auto_approve = Consent(user.athlete_id)
        consent = (await user.browser.get("/strava/connect")).header("location") or ""
        narrowed = await user.browser.get(consent.replace("activity%3Aread_all", "activity%3Aread"))
        assert (await user.browser.follow(narrowed, server.strava.url)).status == 303
        lose_events(server)
        first, pages = days_ago(server, 20), MAX_HIDDEN_PAGES + 2
        for number in range(pages * LIST_PAGE_SIZE):
            is_private = LIST_PAGE_SIZE <= number < (pages - 1) * LIST_PAGE_SIZE
            server.strava.record(user.athlete_id, start=first + 60 * number, private=is_private)
        async with asyncio.timeout(120):
            while (await strava_status(user))["isSyncing"]:
                await run_syncs(server)
                server.skip_time(
                    LEASE_SECONDS
                )  # a slow service may make a page fail, which is retried
        assert len(await stored_workouts(user)) == 2 * LIST_PAGE_SIZE


async def test_a_list_that_repeats_its_first_page_ends(fresh_server: CollectServer) -> None:
    """A sync trusts neither the number nor the content of the pages."""
    server = fresh_server
    user = await synced_user(server)
    lose_events(server)
    for _ in range(3):
        server.strava.record(user.athlete_id, start=days_ago(server, 20))
    assert (await user.browser.send("POST", "/strava/sync")).status == 202
    async with asyncio.timeout(30):
        await run_syncs(server, repeating_worker(server))
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_what_was_missed_while_the_server_was_down_is_found(
    fresh_server: CollectServer,
) -> None:
    """New, edited, moved and deleted activities, after a gap that only the heartbeat shows."""
    server = fresh_server
    user = await synced_user(server)
    strava = server.strava
    kept, edited, moved, deleted = (
        strava.record(user.athlete_id, start=days_ago(server, number)) for number in (1, 2, 3, 4)
    )
    await server.process_inbox()
    assert len(await stored_workouts(user)) == 4
    lose_events(server)
    server.skip_time(GAP_SECONDS + 1)
    strava.record(user.athlete_id, "Run", start=days_ago(server, 10), manual=True)
    strava.edit(edited.id, distance=77_000.0, sport_type="GravelRide")
    strava.edit(moved.id, start=days_ago(server, 6))
    strava.delete(deleted.id)
    await run_syncs(server)
    assert len(await stored_workouts(user)) == 4  # nothing is due before the gap is known
    await server.collect.sync_worker.beat()
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert kept.id in await stored_workouts(user)
    reads = list_reads(server)
    await server.collect.sync_worker.beat()
    await run_syncs(server)
    assert list_reads(server) == reads


async def test_a_delivery_that_cannot_be_stored_is_a_gap(
    fresh_server: CollectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = fresh_server
    user = await synced_user(server)

    async def fail(*_: object) -> None:
        raise Unavailable("The store is unavailable")

    server.skip_time(1)
    with monkeypatch.context() as patched:
        patched.setattr(WebhookService, "receive", fail)
        server.strava.record(user.athlete_id)
        await server.strava.webhooks.wait_for_attempts(1)
    assert [attempt.status for attempt in server.strava.webhooks.log] == [503]
    await server.collect.sync_worker.beat()
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_every_athlete_is_synced_daily(fresh_server: CollectServer) -> None:
    server = fresh_server
    user = await synced_user(server)
    lose_events(server)
    server.strava.record(user.athlete_id)
    server.skip_time(DAY_SECONDS - 1)
    await run_syncs(server)
    assert await stored_workouts(user) == {}
    server.skip_time(1)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_a_sync_can_be_requested_every_ten_minutes(fresh_server: CollectServer) -> None:
    server = fresh_server
    user = await synced_user(server)
    lose_events(server)
    server.strava.record(user.athlete_id)
    response = await user.browser.send("POST", "/strava/sync")
    assert (response.status, response.json["isSyncing"]) == (202, True)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)
    refused = await user.browser.send("POST", "/strava/sync")
    assert_error(refused, 429, "too_many_syncs")
    assert refused.header("retry-after") == "600"
    server.skip_time(600)
    assert (await user.browser.send("POST", "/strava/sync")).status == 202


async def test_a_sync_needs_a_link(fresh_server: CollectServer) -> None:
    """A revoked one is parked, also in the queue, until the user links again."""
    server = fresh_server
    user = await synced_user(server)
    cross_site = await user.browser.send("POST", "/strava/sync", headers={})
    assert_error(cross_site, 403, "cross_site_request")
    lose_events(server)
    server.strava.deauthorize(user.athlete_id)
    server.skip_time(DAY_SECONDS)
    await run_syncs(server)
    assert (await strava_status(user))["needsRelink"] is True
    assert_error(await user.browser.send("POST", "/strava/sync"), 409, "strava_relink_required")
    server.skip_time(DAY_SECONDS)
    await run_syncs(server)
    reads = list_reads(server)
    server.skip_time(DAY_SECONDS)
    await run_syncs(server)
    assert list_reads(server) == reads
    server.strava.record(user.athlete_id)
    assert (await server.link(user.browser, user.athlete_id)).status == 303
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert (await user.browser.send("DELETE", "/strava/connection")).status == 204
    assert_error(await user.browser.send("POST", "/strava/sync"), 404, "strava_not_connected")


async def test_a_sync_leaves_half_of_the_read_limit_and_continues_where_it_paused(
    fresh_server: CollectServer,
) -> None:
    """Events are processed meanwhile; nothing is read twice."""
    server = fresh_server
    user = await server.create_user()
    first = days_ago(server, 20)
    lose_events(server)
    for number in range(1100):
        server.strava.record(user.athlete_id, start=first + 60 * number)
    server.strava.webhooks.drops = 0
    server.strava.limits.reads = RateLimit(8, 1000)
    await user.create_milestone(periodStartAtUtc=time_ago(server, 20), totalTarget=12_000_000)
    await run_syncs(server)
    assert list_reads(server) == 4
    assert (await strava_status(user))["isSyncing"] is True
    assert 700 < len(await stored_workouts(user)) < 800
    latest = server.strava.record(user.athlete_id, "Run")
    await server.process_inbox()
    assert latest.id in await stored_workouts(user)
    await run_syncs(server)
    assert list_reads(server) == 4
    server.skip_time(900)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert list_reads(server) == 7


async def test_a_list_never_overwrites_a_later_read(fresh_server: CollectServer) -> None:
    """Activities that change after the list was read are verified by the inbox."""
    server = fresh_server
    user = await synced_user(server)
    edited, deleted = (server.strava.record(user.athlete_id, "Ride", 1000) for _ in range(2))
    await server.process_inbox()

    async def change(read: int) -> None:
        if read == 1:
            server.strava.edit(edited.id, distance=5000.0, name="Longer")
            server.strava.delete(deleted.id)
            server.strava.record(user.athlete_id, "Run", 3000)
            await server.process_inbox()

    server.skip_time(DAY_SECONDS)
    server.strava.webhooks.hold()
    server.strava.edit(edited.id, distance=2000.0)
    server.strava.edit(deleted.id, distance=2000.0)
    server.strava.webhooks.release()
    await run_syncs(server, interrupted_worker(server, change))
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_another_instance_continues_after_a_crash(fresh_server: CollectServer) -> None:
    """From the stored cursor, when the lease has expired; every award once."""
    server = fresh_server
    user = await server.create_user()
    lose_events(server)
    for number in range(500):
        server.strava.record(user.athlete_id, "Ride", 1000, start=days_ago(server, 9) + number)
    goal = await user.create_milestone(periodStartAtUtc=time_ago(server, 10), totalTarget=500_000)

    async def crash(read: int) -> None:
        if read == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await interrupted_worker(server, crash).run()
    assert len(await stored_workouts(user)) == 199
    await run_syncs(server)
    assert len(await stored_workouts(user)) == 199
    server.skip_time(LEASE_SECONDS)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert list_reads(server) == 5
    milestone = await user.get_milestone(goal["milestoneId"])
    assert (milestone["status"], len(milestone["awards"])) == ("COMPLETED", 12)


async def test_instances_share_the_syncs(fresh_server: CollectServer) -> None:
    """Two instances at once read every page once."""
    server = fresh_server
    users = [await server.create_user() for _ in range(3)]
    lose_events(server)
    for user in users:
        for number in range(5):
            server.strava.record(user.athlete_id, start=server.clock.seconds() + number)
    server.skip_time(60)
    await asyncio.gather(*(run_syncs(server) for _ in range(3)))
    for user in users:
        assert await stored_workouts(user) == strava_workouts(server, user)
    assert list_reads(server) == 6


async def test_an_earlier_goal_extends_the_range(fresh_server: CollectServer) -> None:
    """Also one that is created while a sync is under way."""
    server = fresh_server
    user = await synced_user(server, days=1)
    lose_events(server)
    for days in (5, 15):
        server.strava.record(user.athlete_id, "Ride", 6000, start=days_ago(server, days))
    goal = await user.create_milestone(periodStartAtUtc=time_ago(server, 6))

    async def create(read: int) -> None:
        if read == 1:
            await user.create_milestone(periodStartAtUtc=time_ago(server, 20))

    await run_syncs(server, interrupted_worker(server, create))
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert (await user.get_milestone(goal["milestoneId"]))["partsMinted"] == 6
    reads = list_reads(server)
    await user.create_milestone(periodStartAtUtc=time_ago(server, 19), totalTarget=24_000)
    await run_syncs(server)
    assert list_reads(server) == reads


@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (InjectedFault(path=LIST_PATH, status=503, times=3), 60),
        (InjectedFault(path=LIST_PATH, status=429), 900),
        (InjectedFault(path=LIST_PATH, status=403, body=INACTIVE), 3600),
        (InjectedFault(path=LIST_PATH, status=200, body="[{"), 60),
        (InjectedFault(path=LIST_PATH, status=401), 0),
    ],
    ids=["503", "429", "403 inactive", "malformed", "401"],
)
async def test_a_failed_sync_is_repeated(
    fresh_server: CollectServer, fault: InjectedFault, wait: int
) -> None:
    server = fresh_server
    user = await server.create_user()
    lose_events(server)
    server.strava.record(user.athlete_id)
    server.strava.faults.add(fault)
    await server.run_with_clock(asyncio.ensure_future(run_syncs(server)))
    assert (await strava_status(user))["isSyncing"] is bool(wait)
    server.skip_time(wait)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_a_malformed_activity_does_not_keep_the_others_from_being_synced(
    fresh_server: CollectServer,
) -> None:
    server = fresh_server
    user = await server.create_user()
    lose_events(server)
    good, malformed = (server.strava.record(user.athlete_id).summary() for _ in range(2))
    page = msgspec.json.encode([malformed | {"start_date": None}, good]).decode()
    server.strava.faults.add(InjectedFault(path=LIST_PATH, status=200, body=page))
    await run_syncs(server)
    assert (await strava_status(user))["isSyncing"] is False
    assert set(await stored_workouts(user)) == {good["id"]}
    server.skip_time(DAY_SECONDS)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_a_page_of_malformed_activities_is_not_the_end_of_the_list(
    fresh_server: CollectServer,
) -> None:
    server = fresh_server
    user = await server.create_user()
    lose_events(server)
    server.strava.record(user.athlete_id)
    server.strava.faults.add(InjectedFault(path=LIST_PATH, status=200, body='[{"id":1}]'))
    await run_syncs(server)
    assert (await strava_status(user))["isSyncing"] is True
    server.skip_time(60)
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_long_routes_do_not_exceed_the_limit_of_a_response(
    fresh_server: CollectServer,
) -> None:
    """At Strava, a list contains the routes, and an activity also its segment efforts."""
    server = fresh_server
    user = await server.create_user()
    lose_events(server)
    listed, reported = (server.strava.record(user.athlete_id) for _ in range(2))
    route = {"map": {"summary_polyline": "x" * 2_000_000}}
    page = msgspec.json.encode([listed.summary() | route]).decode()
    server.strava.faults.add(InjectedFault(path=LIST_PATH, status=200, body=page))
    await run_syncs(server)
    assert set(await stored_workouts(user)) == {listed.id}
    path = f"/api/v3/activities/{reported.id}"
    detail = msgspec.json.encode(reported.detail() | route).decode()
    server.strava.faults.add(InjectedFault(path=path, status=200, body=detail))
    server.strava.webhooks.redeliver(event(user, reported.id, "create", 1_767_225_700))
    await server.process_inbox()
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_another_athlete_deletes_no_workouts_of_the_first(
    fresh_server: CollectServer,
) -> None:
    """The list of the second athlete lacks them, and Strava answers 404 to its token."""
    server = fresh_server
    user = await synced_user(server)
    first = server.strava.record(user.athlete_id)
    await server.process_inbox()
    second = server.strava.add_athlete("Second")
    assert (await server.link(user.browser, second.id)).status == 303
    await run_syncs(server)
    forged = msgspec.structs.replace(
        event(user, first.id, "delete", 1_767_225_700), owner_id=second.id
    )
    server.strava.webhooks.redeliver(forged)
    await server.process_inbox()
    assert await stored_workouts(user) == strava_workouts(server, user)
    assert (await server.link(user.browser, user.athlete_id)).status == 303
    server.strava.delete(first.id)
    await server.process_inbox()
    assert await stored_workouts(user) == {}


async def test_a_link_of_an_earlier_version_is_synced(fresh_server: CollectServer) -> None:
    """It has no sync yet: the first status schedules it."""
    server = fresh_server
    user = await synced_user(server)
    store = server.application.store
    table = server.collect.worker.repository.tables[0]
    for item in await server.scan_table(table):
        if item["SK"] == "STRAVA#SYNC" or item["PK"] == "SYNC#QUEUE":
            key = table.primary_key(item)
            await store._engine.batch_write(BatchWrite(table, deletes=(key,)))
    lose_events(server)
    server.strava.record(user.athlete_id)
    await run_syncs(server)
    assert await stored_workouts(user) == {}
    assert (await strava_status(user))["isSyncing"] is True
    await run_syncs(server)
    assert await stored_workouts(user) == strava_workouts(server, user)


async def test_reading_an_account_does_not_fail_while_it_is_unlinked(
    fresh_server: CollectServer,
) -> None:
    """The link is gone when the status schedules its first sync."""
    user = await fresh_server.create_user()
    sync = fresh_server.collect.services.sync
    connection = await sync.repository.connection(user.user_id)
    assert connection is not None
    assert (await user.browser.send("DELETE", "/strava/connection")).status == 204
    found = await sync.ensure(replace(connection, link_id="not synced yet"))
    assert found is not None
    assert found.link_id == connection.link_id
