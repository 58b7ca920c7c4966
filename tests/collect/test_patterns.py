"""The declared access patterns match the seed and what the backend does."""

import re

import pytest

from tally.collect.repository.idempotency import IdempotencyRepository
from tally.collect.repository.syncs import SYNC
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    OWNER,
    PROFILE,
    athlete_pk,
    item_key,
    user_pk,
)
from tally.collect.service.event_budget import EventBudget
from tally.collect.service.sync_worker import DAY_SECONDS
from tally.sim.fault_injection import InjectedFault
from tally.store.api import Delete, Put, Update
from tally.store.expressions import F
from tally.store.report import PatternRow
from tests.collect import activity_file_factory as files
from tests.collect import factories
from tests.collect.server_harness import (
    CALLBACK,
    VERIFY,
    BrowserResponse,
    CollectServer,
    LinkedUser,
)
from tests.collect.sync_harness import run_syncs
from tests.collect.test_api_imports import change, imported, new_ride, record, workouts
from tests.collect.test_api_strava import event
from tests.collect.test_event_verification import (
    parked_events,
    retry_parked,
    unsorted_event_item,
)
from tests.collect.test_workout_index import old_item
from tests.seed_patterns import (
    SeedAccess,
    check_descriptions,
    check_usage,
    matching_patterns,
    read_patterns,
)

# In the order of the seed: main table, its index, sessions, audit, idempotency.
SEED = {
    "profile": SeedAccess("CommitCollect", "GetItem", None, ("PK = USER#{userId}", "SK = PROFILE")),
    "profile, first login": SeedAccess(
        "CommitCollect", "TransactWriteItems", None, ("SK = PROFILE", "attribute_not_exists(PK)")
    ),
    "connection": SeedAccess("CommitCollect", "GetItem", None, ("SK = STRAVA#CONNECTION",)),
    "link in one transaction": SeedAccess(
        "CommitCollect", "TransactWriteItems", None, ("OWNER", "STRAVA#CONNECTION")
    ),
    "workout": SeedAccess("CommitCollect", "GetItem", None, ("SK = WORKOUT#{workoutId}",)),
    "aggregation, projected": SeedAccess(
        "CommitCollect",
        "Query (GSI)",
        "GSI2",
        (
            "GSI2PK = USER#{userId}#{family}",
            "SK, startDateUtc, distanceMeters, totalElevationGain, isManual, version",
        ),
    ),
    "milestones": SeedAccess(
        "CommitCollect", "Query", None, ("PK = USER#{userId}", "begins_with(SK, MILESTONE#)")
    ),
    "minting in one transaction": SeedAccess(
        "CommitCollect", "TransactWriteItems", None, ("version = :read", "#AWARD#{part}")
    ),
    "model and parts": SeedAccess("CommitCollect", "Query", None, ("PK = MODEL#{modelId}",)),
    "shipped models in batches of 25": SeedAccess(
        "CommitCollect", "BatchWriteItem", None, ("PART#{index}", "SK = META")
    ),
    "owner of an athlete": SeedAccess(
        "CommitCollect", "GetItem", None, ("PK = STRAVA#ATHLETE#{athleteId}", "SK = OWNER")
    ),
    "athlete to user": SeedAccess(
        "CommitCollect", "Query (GSI)", "GSI1", ("GSI1PK = STRAVA#ATHLETE#{athleteId}",)
    ),
    "deletion in batches of 25": SeedAccess(
        "CommitCollect",
        "Query + BatchWriteItem",
        None,
        ("Query: PK = USER#{userId}", "BatchWriteItem: PK = USER#{userId}"),
    ),
    "session": SeedAccess("CommitCollectSessions", "GetItem", None, ("PK = SESSION#", "SK = META")),
    "logout": SeedAccess("CommitCollectSessions", "DeleteItem", None, ("PK = SESSION#",)),
    "audit by user": SeedAccess(
        "CommitCollectAudit", "Query", None, ("PK = USER#{userId}", "begins_with(SK, AUDIT#)")
    ),
    "audit by correlation": SeedAccess(
        "CommitCollectAudit", "Query (GSI)", "GSI1", ("GSI1PK = CORR#{correlationId}",)
    ),
    "audit by event": SeedAccess(
        "CommitCollectAudit", "Query (GSI)", "GSI2", ("GSI2PK = EVENT#{eventType}#{yyyyMM}",)
    ),
    "deduplication": SeedAccess(
        "CommitCollectIdempotency",
        "UpdateItem (conditional) + GetItem (if the claim fails)",
        None,
        ("IdempotencyKey = :",),
    ),
}


@pytest.fixture(scope="module")
def printed() -> list[PatternRow]:
    return read_patterns("collect")


@pytest.mark.parametrize("name", SEED)
def test_every_access_of_the_seed_is_a_declared_pattern(
    printed: list[PatternRow], name: str
) -> None:
    """With the same table, operation, index and key condition."""
    assert matching_patterns(printed, SEED[name]), f"{name}: {SEED[name]}"


def test_patterns_are_described_and_never_scan(printed: list[PatternRow]) -> None:
    """Patterns that read several pages have a bound."""
    check_descriptions("collect", printed)


async def expect(member: LinkedUser, method: str, path: str, status: int = 200) -> BrowserResponse:
    response = await member.browser.send(method, path)
    assert response.status == status, (method, path, response)
    return response


async def subscribe(server: CollectServer, member: LinkedUser, milestone_id: str) -> None:
    """Subscribe while an activity is applied, and receive what it minted."""
    url = f"{server.url}/milestones/{milestone_id}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={member.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as stream:
        assert stream.status == 200
        server.strava.record(member.athlete_id, "Ride", 2000)
        await server.process_inbox()
        received = b""
        while b"event: minted" not in received:
            received += bytes(await stream.body_reader.read_chunk() or b"")
        await server.application.streams.maintain()


async def exercise_failures(server: CollectServer, member: LinkedUser) -> None:
    """Apply a redelivered event, a failing one, one with expired tokens, and a deletion."""
    ride = server.strava.record(member.athlete_id, "Ride", 1000)
    await server.process_inbox()
    server.strava.webhooks.redeliver(server.strava.webhooks.log[-1].event)
    await server.process_inbox()
    server.strava.faults.add(InjectedFault(path="/api/v3/activities", status=400, body="{}"))
    server.strava.record(member.athlete_id, "Ride", 1000)
    await server.process_inbox()
    server.skip_time(6 * 3600)
    await server.process_inbox()
    server.strava.delete(ride.id)
    await server.process_inbox()
    server.strava.webhooks.redeliver(event(member, ride.id, time=1))
    await server.process_inbox()


async def exercise_imports(server: CollectServer, member: LinkedUser) -> None:
    """Import a file with a copy at Strava, separate and join them, and delete the file."""
    content = files.gpx(new_ride(server))
    file = await imported(member, content)
    await imported(member, content, 200)
    record(server, member, 10_000)
    await server.process_inbox()
    copies = [each for each in (await workouts(member)).values() if each["duplicateOf"]]
    (copy_id,) = [each["workoutId"] for each in copies]
    for method in ("PUT", "DELETE"):
        assert (await change(member, method, copy_id, "/separation")).status == 200
    assert (await change(member, "DELETE", file["workoutId"])).status == 204


async def exercise_parking(server: CollectServer, member: LinkedUser) -> None:
    """Park an event of a revoked link, list and retry it, and adopt one of an earlier version."""
    server.strava.webhooks.drops = 1
    server.strava.deauthorize(member.athlete_id)
    server.strava.webhooks.redeliver(event(member, 5))
    server.strava.webhooks.redeliver(event(LinkedUser(member.browser, "", 987_654_321), 5))
    server.skip_time(6 * 3600)
    await server.process_inbox()
    parked = len(await parked_events(server))
    assert parked
    assert await retry_parked(server, member.athlete_id) == parked
    assert (await server.link(member.browser, member.athlete_id)).status == 303
    await server.application.engine.put(
        Put(COMMIT_COLLECT, unsorted_event_item(member.athlete_id, 6))
    )
    await server.collect.worker.adopt_events()
    await server.process_inbox()
    budget = EventBudget(IdempotencyRepository(server.application.store), server.clock, 1, 1)
    assert [await budget.reserve(member.athlete_id, 2) for _ in range(2)] == [1, 0]


async def exercise_subscription(server: CollectServer) -> None:
    """Register, show and remove the webhook subscription."""
    server.strava.webhooks.unsubscribe()
    subscription = server.collect.services.subscription
    registered = await subscription.register(server.url.removesuffix("/collect"))
    assert await subscription.stored_id() == registered.subscription_id
    assert await subscription.remove() == registered


async def exercise_sync(server: CollectServer, member: LinkedUser) -> None:
    """Request a sync that finds an activity; then find the entry of a deleted sync."""
    server.strava.webhooks.drops = 1
    server.strava.record(member.athlete_id, "Ride", 1000)
    await server.collect.sync_worker.beat()
    await run_syncs(server)
    await expect(member, "POST", "/strava/sync", 202)
    await run_syncs(server)
    key = item_key(user_pk(member.user_id), SYNC)
    await server.application.engine.delete(Delete(COMMIT_COLLECT, key))
    server.skip_time(DAY_SECONDS)
    await run_syncs(server)


async def exercise_deletions(server: CollectServer, ann: LinkedUser, bob: LinkedUser) -> None:
    """Deauthorise, unlink with a damaged owner item, sign out, and delete an account."""
    server.strava.deauthorize(bob.athlete_id)
    await server.process_inbox()
    assert (await server.link(bob.browser, bob.athlete_id)).status == 303
    owner = item_key(athlete_pk(bob.athlete_id), OWNER)
    await server.application.engine.delete(Delete(COMMIT_COLLECT, owner))
    server.strava.webhooks.redeliver(event(bob, 7))
    await server.process_inbox()
    await server.application.engine.update(
        Update(COMMIT_COLLECT, owner, (F("userId").set("another-user"),))
    )
    await expect(bob, "DELETE", "/strava/connection", 204)
    await expect(bob, "POST", "/auth/logout", 204)
    await exercise_accounts(server, ann)


async def exercise_accounts(server: CollectServer, ann: LinkedUser) -> None:
    """Export, end sessions one by one and all at once, and delete an account with a delay."""
    await server.collect.deletion_worker.repository.receive(factories.event(ann.athlete_id))
    await expect(ann, "GET", "/account/export")
    sessions = (await expect(ann, "GET", "/sessions")).json["items"]
    await expect(ann, "DELETE", f"/sessions/{sessions[0]['sessionId']}", 204)
    await server.sign_in(server.browser(), "Ann Again")
    await server.sign_in(ann.browser, "Ann Again")
    await expect(ann, "DELETE", "/sessions", 204)
    await server.sign_in(ann.browser, "Ann Again")
    await expect(ann, "DELETE", "/account", 202)
    assert (await server.sign_in(server.browser(), "Ann Again")).status == 409
    assert len(await server.pending_deletions()) == 1
    server.oidc.faults.add(InjectedFault(path="/oauth2/token", status=503))
    await server.process_deletions()
    server.skip_time(6 * 3600)
    await server.process_deletions()
    assert await server.pending_deletions() == []


async def exercise_changes(server: CollectServer, user: LinkedUser) -> None:
    """Change, archive and delete milestones, and read the workouts of an earlier version."""
    kept, deleted = [(await user.create_milestone())["milestoneId"] for _ in range(2)]
    response = await user.browser.send("PATCH", f"/milestones/{kept}", {"totalTarget": 9000})
    assert response.status == 200, response
    await expect(user, "POST", f"/milestones/{kept}/archive")
    await expect(user, "DELETE", f"/milestones/{deleted}", 204)
    key, engine = item_key(user_pk(user.user_id), PROFILE), server.application.engine
    await engine.update(Update(COMMIT_COLLECT, key, (F("workoutsIndexed").remove(),)))
    # Before the period of any sync, which would look for the activity at Strava.
    old = old_item(user.user_id, 1, startDateUtc="2019-01-01T00:00:00Z")
    await engine.put(Put(COMMIT_COLLECT, old))
    server.collect.services.engine.workouts.indexed.remove(user.user_id)
    await expect(user, "GET", "/workouts")


async def exercise_all_routes(server: CollectServer) -> None:
    """Call every route and apply every kind of event."""
    ann, bob = await server.create_user("Ann Again"), await server.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    await subscribe(server, ann, milestone_id)
    await exercise_failures(server, ann)
    await exercise_imports(server, ann)
    await exercise_changes(server, bob)
    await exercise_sync(server, ann)
    for path in (
        "/health",
        "/health/ready",
        "/models",
        "/models/fox",
        "/me",
        "/workouts",
        "/strava/status",
        "/milestones",
    ):
        await expect(ann, "GET", path)
    await expect(ann, "GET", f"/milestones/{milestone_id}")
    await expect(ann, "POST", f"/milestones/{milestone_id}/recompute")
    await expect(
        ann, "GET", f"{CALLBACK}?hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=x"
    )
    correlation = (await ann.get_milestone(milestone_id))["awards"][0]["correlationId"]
    for query in (f"user={ann.user_id}", f"correlation={correlation}", "event=MILESTONE_CREATED"):
        assert await server.audit(query)
    await exercise_parking(server, bob)
    await exercise_deletions(server, ann, bob)
    await exercise_subscription(server)
    await server.collect.audit.flush()


async def test_every_declared_pattern_is_used(fresh_server: CollectServer) -> None:
    """All routes together use every operation of every pattern, and no other."""
    await exercise_all_routes(fresh_server)
    response = await fresh_server.browser().get(
        f"{fresh_server.url.removesuffix('/collect')}/metrics"
    )
    series = (
        r'tally_http_request_duration_seconds_count\{method="(\w+)",'
        r'route="/collect(/[^"]*)",status="[23]\d\d"\}'
    )
    answered = set(re.findall(series, response.body.decode()))
    assert {
        (operation.method, operation.path) for operation in fresh_server.collect.api.endpoints
    } - answered == set()
    check_usage(await fresh_server.patterns())
