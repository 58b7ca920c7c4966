"""The declared access patterns match the seed and what the backend does."""

import re

import pytest

from tally.collect.repository.table import COMMIT_COLLECT, OWNER, athlete_pk, item_key
from tally.kit.change_poller import POLL_SECONDS
from tally.sim.fault_injection import InjectedFault
from tally.store.api import Update
from tally.store.expressions import F
from tally.store.report import PatternRow
from tests.collect.server_harness import VERIFY, BrowserResponse, CollectServer, LinkedUser
from tests.collect.test_api_strava import event
from tests.seed_patterns import (
    SeedAccess,
    check_descriptions,
    check_usage,
    matching_patterns,
    read_patterns,
)

# In the order of the seed: main table, its index, sessions, audit, idempotency.
SEED = {
    "profile": SeedAccess("CommitCollect", "GetItem", None, ("PK=USER#{userId}", "SK=PROFILE")),
    "profile, first login": SeedAccess(
        "CommitCollect", "PutItem (conditional)", None, ("SK=PROFILE", "attribute_not_exists(PK)")
    ),
    "connection": SeedAccess("CommitCollect", "GetItem", None, ("SK=STRAVA#CONNECTION",)),
    "link in one transaction": SeedAccess(
        "CommitCollect", "TransactWriteItems", None, ("OWNER", "STRAVA#CONNECTION")
    ),
    "workout": SeedAccess("CommitCollect", "GetItem", None, ("SK=WORKOUT#STRAVA#{activityId}",)),
    "aggregation, projected": SeedAccess(
        "CommitCollect", "Query", None, ("begins_with(SK, WORKOUT#STRAVA#)", "five attributes")
    ),
    "milestones": SeedAccess(
        "CommitCollect", "Query", None, ("PK=USER#{userId}", "begins_with(SK, MILESTONE#)")
    ),
    "minting in one transaction": SeedAccess(
        "CommitCollect", "TransactWriteItems", None, ("version = :read", "#AWARD#{part}")
    ),
    "model and parts": SeedAccess("CommitCollect", "Query", None, ("PK=MODEL#{modelId}",)),
    "shipped models in batches of 25": SeedAccess(
        "CommitCollect", "BatchWriteItem", None, ("PART#{index}", "batches of 25")
    ),
    "owner of an athlete": SeedAccess(
        "CommitCollect", "GetItem", None, ("PK=STRAVA#ATHLETE#{athleteId}", "SK=OWNER")
    ),
    "athlete to user": SeedAccess(
        "CommitCollect", "Query (GSI)", "GSI1", ("GSI1PK=STRAVA#ATHLETE#{athleteId}",)
    ),
    "deletion in batches of 25": SeedAccess(
        "CommitCollect", "Query + BatchWriteItem", None, ("PK=USER#{userId}", "batches of 25")
    ),
    "session": SeedAccess("CommitCollectSessions", "GetItem", None, ("PK=SESSION#", "SK=META")),
    "logout": SeedAccess("CommitCollectSessions", "DeleteItem", None, ("PK=SESSION#",)),
    "audit by user": SeedAccess(
        "CommitCollectAudit", "Query", None, ("PK=USER#{userId}", "begins_with(SK, AUDIT#)")
    ),
    "audit by correlation": SeedAccess(
        "CommitCollectAudit", "Query (GSI)", "GSI1", ("GSI1PK=CORR#{correlationId}",)
    ),
    "audit by event": SeedAccess(
        "CommitCollectAudit", "Query (GSI)", "GSI2", ("GSI2PK=EVENT#{eventType}#{yyyyMM}",)
    ),
    "deduplication": SeedAccess(
        "CommitCollectIdempotency",
        "UpdateItem (conditional) + GetItem (if the claim fails)",
        None,
        ("PK=IdempotencyKey",),
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
    """Subscribe while an activity is applied, then wait for a poll without changes."""
    url = f"{server.url}/milestones/{milestone_id}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={member.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as stream:
        assert stream.status == 200
        server.strava.record(member.athlete_id, "Ride", 2000)
        await server.process_inbox()
        received = b""
        while b"event: minted" not in received:
            received += bytes(await stream.body_reader.read_chunk() or b"")
        await server.clock.until_sleeping()
        await server.clock.advance(POLL_SECONDS)


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


async def exercise_deletions(server: CollectServer, ann: LinkedUser, bob: LinkedUser) -> None:
    """Deauthorise, unlink with a damaged owner item, sign out, and delete an account."""
    server.strava.deauthorize(bob.athlete_id)
    await server.process_inbox()
    assert (await server.link(bob.browser, bob.athlete_id)).status == 303
    owner = item_key(athlete_pk(bob.athlete_id), OWNER)
    await server.application.store.engine.update(
        Update(COMMIT_COLLECT, owner, (F("userId").set("another-user"),))
    )
    await expect(bob, "DELETE", "/strava/connection", 204)
    await expect(bob, "POST", "/auth/logout", 204)
    await expect(ann, "DELETE", "/account", 204)


async def exercise_all_routes(server: CollectServer) -> None:
    """Call every route and apply every kind of event."""
    ann, bob = await server.create_user(), await server.create_user()
    milestone_id = (await ann.create_milestone())["milestoneId"]
    await subscribe(server, ann, milestone_id)
    await exercise_failures(server, ann)
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
        ann, "GET", f"/webhooks/strava?hub.mode=subscribe&hub.verify_token={VERIFY}&hub.challenge=x"
    )
    correlation = (await ann.get_milestone(milestone_id))["awards"][0]["correlationId"]
    for query in (f"user={ann.user_id}", f"correlation={correlation}", "event=MILESTONE_CREATED"):
        assert await server.audit(query)
    await exercise_deletions(server, ann, bob)
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
