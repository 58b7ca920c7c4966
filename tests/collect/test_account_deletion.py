"""Account deletion is durable: it ends every session at once and completes through any outage."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tally.collect.model.accounts import AccountDeletion, DeletionRetry, DeletionStep
from tally.collect.repository.sessions import COMMIT_COLLECT_SESSIONS
from tally.collect.repository.table import COMMIT_COLLECT
from tally.collect.service.deletions import LEASE_SECONDS, MAX_BACKOFF_SECONDS, PAGE_SIZE
from tally.sim.fault_injection import InjectedFault
from tests.collect import factories
from tests.collect.server_harness import (
    ADMIN,
    CollectServer,
    LinkedUser,
    assert_error,
)

STRAVA_DOWN = InjectedFault(path="/", status=503, times=None)
ISSUER_DOWN = InjectedFault(path="/", method="POST", status=503, times=None)


async def items_about(server: CollectServer, user: LinkedUser) -> list[dict[str, object]]:
    """Return all items of collect's tables that mention the user or the athlete, but the audit."""
    await server.process_inbox()  # Strava reports the revocation
    tables = (COMMIT_COLLECT, COMMIT_COLLECT_SESSIONS)
    items = [item for table in tables for item in await server.scan_table(table)]
    return [
        item for item in items if user.user_id in str(item) or str(user.athlete_id) in str(item)
    ]


async def metric(server: CollectServer, name: str) -> float:
    response = await server.browser().get(f"{server.url.removesuffix('/collect')}/metrics")
    lines = [line for line in response.body.decode().splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].split()[1])


async def request_deletion(user: LinkedUser) -> None:
    response = await user.browser.send("DELETE", "/account")
    assert response.status == 202, response
    assert response.json["status"] == "pending"


def is_authorized(server: CollectServer, user: LinkedUser) -> bool:
    return server.strava.authorizations.access_token_for(user.athlete_id) is not None


async def test_deletion_removes_everything_but_the_audit_trail(server: CollectServer) -> None:
    """Tokens, items, sessions and the identity are deleted. Other users are unaffected."""
    ann, bob = await server.create_user(), await server.create_user()
    await ann.create_milestone()
    server.strava.record(ann.athlete_id, "Ride", 9000)
    await server.process_inbox()
    await request_deletion(ann)
    assert [entry["userId"] for entry in await server.pending_deletions()] == [ann.user_id]
    await server.process_deletions()
    assert await server.pending_deletions() == []
    assert not is_authorized(server, ann)
    assert server.oidc.users.find(ann.user_id) is None
    assert await items_about(server, ann) == []
    assert (await bob.browser.get("/me")).status == 200
    assert is_authorized(server, bob)
    kinds = {event["eventType"] for event in await server.audit(f"user={ann.user_id}")}
    assert {"ACCOUNT_DELETE_REQUESTED", "STRAVA_DISCONNECTED", "ACCOUNT_DELETED"} <= kinds


async def test_every_session_ends_when_the_request_is_accepted(fresh_server: CollectServer) -> None:
    """Before any step has run, also if the store has not deleted their items yet."""
    server = fresh_server
    ann = await server.create_user("Vera")
    elsewhere = server.browser()
    await server.sign_in(elsewhere, "Vera")
    assert (await elsewhere.get("/me")).status == 200
    copy = ann.browser.copy()
    await request_deletion(ann)
    assert ann.browser.session is None
    for browser in (elsewhere, copy):
        for path in ("/me", "/workouts", "/sessions", "/account/export", "/strava/status"):
            assert_error(await browser.get(path), 401, "invalid_session")
        assert_error(await browser.send("DELETE", "/account"), 401, "invalid_session")


@pytest.mark.parametrize("how", ["delete the account", "sign out everywhere", "sign out of one"])
async def test_streams_end_with_the_session(server: CollectServer, how: str) -> None:
    """At once, on the instance that serves the request."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    url = f"{server.url}/milestones/{milestone['milestoneId']}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={ann.browser.session}")
    async with request.streamed_read_buffer_limit(0).build_streamed() as stream:
        assert stream.status == 200
        received = bytes(await stream.body_reader.read_chunk() or b"")
        if how == "delete the account":
            await request_deletion(ann)
        elif how == "sign out everywhere":
            assert (await ann.browser.send("DELETE", "/sessions")).status == 204
        else:
            own = (await ann.browser.get("/sessions")).json["items"][0]["sessionId"]
            assert (await ann.browser.send("DELETE", f"/sessions/{own}")).status == 204
        while chunk := await asyncio.wait_for(stream.body_reader.read_chunk(), 30):
            received += bytes(chunk)
    assert received.endswith(b"event: session_ended\ndata: {}\n\n")
    await server.process_deletions()


@pytest.mark.parametrize("how", ["delete the account", "sign out everywhere"])
async def test_streams_of_other_instances_end_within_a_check(
    server: CollectServer, how: str
) -> None:
    """The other instance sees only the store: it is changed here without the HTTP handler."""
    ann = await server.create_user()
    milestone = await ann.create_milestone()
    url = f"{server.url}/milestones/{milestone['milestoneId']}/events"
    request = server.client.get(url).header("Cookie", f"cc_session={ann.browser.session}")
    services = server.collect.services
    async with request.streamed_read_buffer_limit(0).build_streamed() as stream:
        received = bytes(await stream.body_reader.read_chunk() or b"")
        await server.application.streams.maintain()
        session = await services.sign_in.resolve(ann.browser.session)
        if how == "delete the account":
            await services.deletions.request(session, None)
        else:
            await services.sessions.end_all(session, None)
        await server.application.streams.maintain()
        while chunk := await asyncio.wait_for(stream.body_reader.read_chunk(), 30):
            received += bytes(chunk)
    assert received.endswith(b"event: session_ended\ndata: {}\n\n")
    await server.process_deletions()


async def test_an_outage_of_strava_only_delays_the_deletion(fresh_server: CollectServer) -> None:
    """The data is deleted meanwhile, and the authorization is revoked when Strava is back."""
    server = fresh_server
    ann = await server.create_user()
    await ann.create_milestone()
    server.strava.record(ann.athlete_id, "Ride", 9000)
    await server.process_inbox()
    server.strava.faults.add(STRAVA_DOWN)
    await request_deletion(ann)
    await server.process_deletions()
    (pending,) = await server.pending_deletions()
    assert pending["remainingSteps"] == ["strava", "items"]
    assert pending["attempts"] == 1
    assert pending["lastError"] == "strava: unavailable"
    assert pending["nextAttemptAtUtc"] > pending["requestedAtUtc"]
    left = {str(item["SK"]).partition("#")[0] for item in await items_about(server, ann)}
    assert left == {"STRAVA", "OWNER", "ACCOUNT"}
    assert server.oidc.users.find(ann.user_id) is None
    assert is_authorized(server, ann)
    server.strava.faults.clear()
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert not is_authorized(server, ann)
    assert await items_about(server, ann) == []


async def test_an_outage_of_the_provider_only_delays_the_deletion(
    fresh_server: CollectServer,
) -> None:
    """However often the attempts fail; operators see the deletion and its age."""
    server = fresh_server
    ann = await server.create_user()
    server.oidc.faults.add(ISSUER_DOWN)
    await request_deletion(ann)
    for attempts in range(1, 5):
        await server.process_deletions()
        (pending,) = await server.pending_deletions()
        assert (pending["remainingSteps"], pending["attempts"]) == (["identity"], attempts)
        assert server.oidc.users.find(ann.user_id) is not None
        server.skip_time(MAX_BACKOFF_SECONDS)
    await server.collect.deletion_worker.run()
    assert await metric(server, "tally_collect_account_deletions_pending") == 1
    assert await metric(server, "tally_collect_account_deletion_oldest_seconds") >= 3600
    server.oidc.faults.clear()
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    await server.process_deletions()
    assert server.oidc.users.find(ann.user_id) is None
    assert await items_about(server, ann) == []
    assert await metric(server, "tally_collect_account_deletions_pending") == 0
    assert await metric(server, "tally_collect_account_deletions_completed_total") == 1


async def test_a_deletion_is_not_attempted_before_it_is_due(fresh_server: CollectServer) -> None:
    """The back-off grows; a failing service is not flooded."""
    server = fresh_server
    ann = await server.create_user()
    server.oidc.faults.add(ISSUER_DOWN)
    await request_deletion(ann)
    for _ in range(5):
        await server.process_deletions()
    assert (await server.pending_deletions())[0]["attempts"] == 1


async def test_a_misconfigured_client_does_not_count_as_a_deleted_identity(
    fresh_server: CollectServer,
) -> None:
    """Only `invalid_grant` says that the token, and so the identity, is gone."""
    server = fresh_server
    ann = await server.create_user()
    body = '{"error": "invalid_client"}'
    server.oidc.faults.add(InjectedFault(path="/oauth2/token", status=400, body=body))
    await request_deletion(ann)
    await server.process_deletions()
    assert [entry["remainingSteps"] for entry in await server.pending_deletions()] == [["identity"]]
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert server.oidc.users.find(ann.user_id) is None


async def test_a_rejected_deletion_of_the_identity_is_repeated(fresh_server: CollectServer) -> None:
    server = fresh_server
    ann = await server.create_user()
    body = '{"__type": "NotAuthorizedException"}'
    server.oidc.faults.add(InjectedFault(path="/", method="POST", status=400, body=body))
    await request_deletion(ann)
    await server.process_deletions()
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert server.oidc.users.find(ann.user_id) is None
    assert await server.pending_deletions() == []


async def test_a_refresh_token_that_is_valid_once_deletes_the_identity_at_a_later_attempt(
    fresh_server: CollectServer,
) -> None:
    """The provider replaces the token when it is used, and then fails to delete the identity."""
    server = fresh_server
    server.oidc.grants.rotates_refresh_tokens = True
    ann = await server.create_user()
    server.oidc.faults.add(InjectedFault(path="/oauth2/token"))  # as usual
    server.oidc.faults.add(InjectedFault(path="/", method="POST", status=503))
    await request_deletion(ann)
    await server.process_deletions()
    assert server.oidc.users.find(ann.user_id) is not None
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert server.oidc.users.find(ann.user_id) is None
    assert await server.pending_deletions() == []


@pytest.mark.parametrize("status", [400, 401, 429])
async def test_a_rejected_revocation_is_repeated(fresh_server: CollectServer, status: int) -> None:
    """The client's credentials may be wrong for a while, or a limit may be exhausted."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.faults.add(InjectedFault(path="/oauth/revoke", status=status, body="{}"))
    await request_deletion(ann)
    await server.process_deletions()
    assert is_authorized(server, ann)
    assert "strava" in (await server.pending_deletions())[0]["remainingSteps"]
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert await server.pending_deletions() == []
    assert not is_authorized(server, ann)


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_athlete_who_revoked_at_strava_does_not_block_the_deletion(
    fresh_server: CollectServer, is_known: bool
) -> None:
    """Even if Strava rejects the revocation of tokens that are no longer valid."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.authorizations.revoke(ann.athlete_id)
    if is_known:
        linking = server.collect.services.linking
        connection = await linking.repository.connection(ann.user_id)
        assert connection is not None
        assert await linking.is_rejected(connection)
        assert (await ann.browser.get("/strava/status")).json["needsRelink"]
    fault = InjectedFault(path="/oauth/revoke", status=401, body="{}", times=None)
    server.strava.faults.add(fault)
    await request_deletion(ann)
    await server.process_deletions()
    assert await server.pending_deletions() == []
    assert await items_about(server, ann) == []


async def test_expired_tokens_do_not_leave_the_app_authorized(fresh_server: CollectServer) -> None:
    server = fresh_server
    ann = await server.create_user()
    server.strava.authorizations.expire(ann.athlete_id)
    server.skip_time(7 * 3600)
    await request_deletion(ann)
    await server.process_deletions()
    assert await server.pending_deletions() == []
    assert not is_authorized(server, ann)


async def test_signing_in_is_refused_until_the_deletion_is_done(
    fresh_server: CollectServer,
) -> None:
    """With a clear 409 and without a new account; afterwards the person starts anew."""
    server = fresh_server
    ann = await server.create_user("Wim")
    former = ann.browser.copy()
    server.strava.faults.add(STRAVA_DOWN)
    server.oidc.faults.add(ISSUER_DOWN)
    await request_deletion(ann)
    server.oidc.faults.clear()
    again = server.browser()
    assert_error(await server.sign_in(again, "Wim"), 409, "account_deletion_pending")
    assert again.session is None
    refused = await server.audit("event=AUTH_LOGIN_REFUSED")
    assert refused[0]["facts"] == {"why": "account_deletion_pending"}
    server.strava.faults.clear()
    await server.process_deletions()
    assert (await server.sign_in(again, "Wim")).status == 303
    me = (await again.get("/me")).json
    assert me["strava"]["connected"] is False
    assert (me["counts"]["workouts"], me["counts"]["milestones"]) == (0, 0)
    assert_error(await former.get("/me"), 401, "invalid_session")


async def test_a_former_session_stays_invalid_in_a_new_account_of_the_same_person(
    fresh_server: CollectServer,
) -> None:
    """A provider without deletion keeps the user id; a leftover session item must not revive."""
    server = fresh_server
    ann = await server.create_user("Zoe")
    session = await server.collect.services.sign_in.resolve(ann.browser.session)
    former = ann.browser.copy()
    server.oidc.faults.add(
        InjectedFault(path="/oauth2/token", status=400, body='{"error":"invalid_grant"}')
    )
    await request_deletion(ann)
    await server.process_deletions()
    assert await server.pending_deletions() == []
    # As if the index had not listed the session when the deletion ran.
    await server.collect.services.sessions.sessions.create(session)
    again = server.browser()
    assert (await server.sign_in(again, "Zoe")).status == 303
    assert (await again.get("/me")).json["userId"] == ann.user_id
    assert_error(await former.get("/me"), 401, "invalid_session")


async def test_the_athlete_stays_reserved_until_it_is_revoked(fresh_server: CollectServer) -> None:
    """Otherwise the deletion would revoke the new owner's authorization."""
    server = fresh_server
    ann = await server.create_user()
    bob = server.browser()
    await server.sign_in(bob, "Bob")
    server.strava.faults.add(InjectedFault(path="/oauth/revoke", status=503, times=None))
    await request_deletion(ann)
    await server.process_deletions()
    refused = await server.link(bob, ann.athlete_id)
    assert_error(refused, 409, "athlete_already_connected")
    server.strava.faults.clear()
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    assert (await server.link(bob, ann.athlete_id)).status == 303


async def test_workouts_that_arrive_during_the_deletion_are_deleted(
    fresh_server: CollectServer,
) -> None:
    """The link exists until Strava has revoked it."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.faults.add(InjectedFault(path="/oauth/revoke", status=503, times=None))
    await request_deletion(ann)
    await server.process_deletions()
    server.strava.record(ann.athlete_id, "Ride", 9000)
    await server.process_inbox()
    server.strava.faults.clear()
    server.skip_time(MAX_BACKOFF_SECONDS)
    await server.process_deletions()
    await server.process_inbox()
    assert await items_about(server, ann) == []


async def test_events_for_a_deleted_account_write_nothing(server: CollectServer) -> None:
    """Pending events find no owner."""
    ann = await server.create_user()
    server.strava.record(ann.athlete_id, "Ride", 9000)
    await server.strava.webhooks.wait_idle()
    await request_deletion(ann)
    await server.process_deletions()
    await server.process_inbox()
    assert await items_about(server, ann) == []


async def test_concurrent_requests_start_one_deletion(server: CollectServer) -> None:
    ann = await server.create_user()
    copies = [ann.browser.copy() for _ in range(8)]
    responses = await asyncio.gather(*(copy.send("DELETE", "/account") for copy in copies))
    assert {response.status for response in responses} <= {202, 401}
    assert 202 in {response.status for response in responses}
    assert [entry["userId"] for entry in await server.pending_deletions()] == [ann.user_id]
    await server.process_deletions()
    assert await items_about(server, ann) == []


async def test_workers_do_not_repeat_each_others_steps(fresh_server: CollectServer) -> None:
    """A lease protects a deletion in progress."""
    server = fresh_server
    users = [await server.create_user() for _ in range(3)]
    for user in users:
        await request_deletion(user)
    workers = [server.collect.deletion_worker.run() for _ in range(6)]
    await asyncio.gather(*workers)
    assert server.strava.faults.count("/oauth/revoke") == len(users)
    assert await server.pending_deletions() == []


async def test_a_lease_expires_and_the_former_holder_stops(server: CollectServer) -> None:
    """It can neither change nor finish the deletion."""
    repository = server.collect.deletion_worker.repository
    user_id, now = factories.new_user_id(), server.clock.seconds()
    await repository.create_profile(factories.profile(user_id))
    deletion = AccountDeletion(user_id, factories.TIME, "corr")
    assert await repository.request_deletion(deletion)
    assert not await repository.request_deletion(deletion)
    assert await repository.claim_deletion(user_id, "a", now, LEASE_SECONDS) is not None
    assert await repository.claim_deletion(user_id, "b", now, LEASE_SECONDS) is None
    later = now + LEASE_SECONDS
    assert await repository.claim_deletion(user_id, "b", later, LEASE_SECONDS) is not None
    assert not await repository.record_deletion_progress(deletion, "a", later)
    assert not await repository.postpone_deletion(user_id, "a", DeletionRetry(1, 2, "x"))
    assert not await repository.finish_deletion(user_id, "a")
    assert await repository.finish_deletion(user_id, "b")


async def test_stuck_deletions_do_not_block_others(fresh_server: CollectServer) -> None:
    """More than a page of them wait for a retry, and a later one is carried out."""
    server = fresh_server
    repository = server.collect.deletion_worker.repository
    for number in range(PAGE_SIZE + 5):
        user_id = f"!{number:04}"  # sorts before all others
        await repository.create_profile(factories.profile(user_id))
        await repository.request_deletion(AccountDeletion(user_id, factories.TIME, "corr"))
        await repository.claim_deletion(user_id, "stuck", server.clock.seconds(), 10**6)
    ann = await server.create_user()
    await request_deletion(ann)
    await server.process_deletions()
    assert await items_about(server, ann) == []
    page: Any = None
    found, query = 0, "limit=50"
    while page is None or page["nextCursor"] is not None:
        response = await server.browser().send(
            "GET", f"/admin/deletions?{query}", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        page = response.json
        found += len(page["items"])
        query = f"limit=50&cursor={page['nextCursor']}"
    assert found == PAGE_SIZE + 5


async def test_the_provider_token_is_kept_only_until_its_step_is_done(
    fresh_server: CollectServer,
) -> None:
    """While Strava is down, the deletion has no token any more."""
    server = fresh_server
    ann = await server.create_user()
    server.strava.faults.add(STRAVA_DOWN)
    await request_deletion(ann)

    async def deletion_item() -> dict[str, object]:
        items = await server.scan_table(COMMIT_COLLECT)
        return next(item for item in items if item["PK"] == "DELETIONS")

    assert "sealedRefreshToken" in await deletion_item()
    await server.process_deletions()
    assert "sealedRefreshToken" not in await deletion_item()
    assert DeletionStep.IDENTITY.value not in str((await deletion_item())["remainingSteps"])


async def test_deletions_are_visible_to_operators_only(server: CollectServer) -> None:
    browser = server.browser()
    assert_error(await browser.get("/admin/deletions"), 401, "missing_token")
    bad = {"Authorization": "Bearer nonsense"}
    response = await browser.send("GET", "/admin/deletions", headers=bad)
    assert_error(response, 401, "invalid_token")


async def test_a_provider_without_deletion_is_not_called(
    fresh_server: CollectServer,
) -> None:
    """A session without a token for the provider has no such step."""
    server = fresh_server
    ann = await server.create_user()
    session = await server.collect.services.sign_in.resolve(ann.browser.session)
    deletion = AccountDeletion(ann.user_id, factories.TIME, "corr", encrypted_refresh_token="no")
    assert await server.collect.deletion_worker.repository.request_deletion(deletion)
    await server.process_deletions()
    assert await server.pending_deletions() == []
    assert server.oidc.users.find(ann.user_id) is not None
    assert session.expires_at > (server.clock.now() + timedelta(days=1)).timestamp()
