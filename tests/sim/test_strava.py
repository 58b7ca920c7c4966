"""The Strava simulator grants, limits and sends events like Strava, and fails on request."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.response import Response

from tally.kit.clock import ManualClock
from tally.sim.browser import Browser, query_parameters
from tally.sim.fault_injection import InjectedFault
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.request_parsing import with_query
from tally.sim.strava.core import Consent
from tally.sim.strava.model import StravaAthlete
from tally.sim.strava.rate_limits import RateLimit
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.snapshot import dump_snapshot, load_snapshot
from tests.sim.responses import redirect_url, status_and_json
from tests.sim.webhook_receiver import VERIFY_TOKEN, WebhookReceiver

CALLBACK = "http://127.0.0.1:9/strava/callback"
APPLICATION = {"client_id": "54321", "client_secret": "made-up-strava-secret"}
AUTHORIZE_PARAMETERS = {
    "client_id": "54321",
    "redirect_uri": CALLBACK,
    "response_type": "code",
    "approval_prompt": "auto",
    "scope": "read,activity:read_all",
    "state": "state-1",
}
ALL = frozenset({"read", "activity:read_all"})
PUBLIC = frozenset({"read", "activity:read"})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2026, 3, 1, 8, 0, tzinfo=UTC))


@pytest.fixture
async def http() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


@pytest.fixture
async def strava(clock: ManualClock) -> AsyncIterator[StravaSimulator]:
    async with StravaSimulator(clock, rng=random.Random(1)).serving() as strava:
        yield strava


@pytest.fixture
def ana(strava: StravaSimulator) -> StravaAthlete:
    return strava.add_athlete("Ana", "Silva")


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with WebhookReceiver().serving() as receiver:
        yield receiver
        receiver.responding.set()


@pytest.fixture
async def subscribed(
    strava: StravaSimulator, receiver: WebhookReceiver, ana: StravaAthlete
) -> WebhookReceiver:
    """Events go to the receiver, and Ana authorizes reading everything."""
    await strava.webhooks.subscribe(receiver.url, VERIFY_TOKEN)
    strava.authorizations.grant(ana.id, ALL)
    return receiver


async def token(strava: StravaSimulator, http: Client, **sent: str) -> tuple[int, Any]:
    return await status_and_json(
        await http.post(f"{strava.url}/oauth/token").form(APPLICATION | sent).build().send()
    )


async def refresh(strava: StravaSimulator, http: Client, refresh_token: str) -> tuple[int, Any]:
    return await token(strava, http, grant_type="refresh_token", refresh_token=refresh_token)


async def fetch(
    strava: StravaSimulator, http: Client, activity_id: int, access_token: str
) -> Response:
    return (
        await http.get(f"{strava.url}/api/v3/activities/{activity_id}")
        .bearer_auth(access_token)
        .build()
        .send()
    )


async def control(
    strava: StravaSimulator, http: Client, method: str, path: str, body: Any
) -> Response:
    request = http.request(method, f"{strava.url}/_sim/{path}").headers(CONTROL_HEADERS)
    return await request.body_json(body).build().send()


def error_fields(body: Any) -> tuple[str, str, str]:
    (error,) = body["errors"]
    return error["resource"], error["field"], error["code"]


# Consent


async def test_athlete_authorizes_through_the_page(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """The redirect has the state, a code and the granted scopes."""
    browser = Browser(http)
    page = await (
        await browser.get(with_query(f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS))
    ).text()
    assert "Ana Silva" in page
    assert 'name="grant:activity:read_all" checked>' in page
    ticked = {"athlete": str(ana.id), "grant:activity:read_all": "on"}
    back = redirect_url(
        strava.url,
        await browser.submit(f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS | ticked),
    )
    assert back.startswith(CALLBACK)
    assert (query_parameters(back)["state"], query_parameters(back)["scope"]) == (
        "state-1",
        "read,activity:read_all",
    )
    status, tokens = await token(
        strava, http, grant_type="authorization_code", code=query_parameters(back)["code"]
    )
    assert (status, tokens["athlete"]["id"], tokens["expires_in"]) == (200, ana.id, 6 * 3600)


async def test_athlete_may_grant_fewer_scopes(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    response = await Browser(http).submit(
        f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS | {"athlete": str(ana.id)}
    )
    assert query_parameters(redirect_url(strava.url, response))["scope"] == "read"


async def test_athlete_may_deny(strava: StravaSimulator, http: Client, ana: StravaAthlete) -> None:
    sent = AUTHORIZE_PARAMETERS | {"athlete": str(ana.id), "deny": "yes"}
    back = query_parameters(
        redirect_url(strava.url, await Browser(http).submit(f"{strava.url}/oauth/authorize", sent))
    )
    assert back == {"state": "state-1", "error": "access_denied"}


async def test_new_athlete_can_be_created_on_the_page(
    strava: StravaSimulator, http: Client
) -> None:
    sent = AUTHORIZE_PARAMETERS | {"name": "Eve Ng"}
    back = query_parameters(
        redirect_url(strava.url, await Browser(http).submit(f"{strava.url}/oauth/authorize", sent))
    )
    _, tokens = await token(strava, http, grant_type="authorization_code", code=back["code"])
    assert (tokens["athlete"]["firstname"], tokens["athlete"]["lastname"]) == ("Eve", "Ng")


@pytest.mark.parametrize("chosen", ["", "7", "nobody", "²"])
async def test_page_is_shown_again_without_an_athlete(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, chosen: str
) -> None:
    response = await Browser(http).submit(
        f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS | {"athlete": chosen}
    )
    assert response.status == 200
    assert "Ana Silva" in await response.text()


@pytest.mark.parametrize(
    ("consent", "scope"),
    [
        (Consent(100_001), "read,activity:read_all"),
        (Consent(100_001, scope="read"), "read"),
        (Consent(100_001, denied=True), None),
    ],
)
async def test_consent_can_be_automatic(
    strava: StravaSimulator,
    http: Client,
    ana: StravaAthlete,
    consent: Consent,
    scope: str | None,
) -> None:
    strava.auto_approve = consent
    response = await Browser(http).get(
        with_query(f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS)
    )
    assert query_parameters(redirect_url(strava.url, response)).get("scope") == scope


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"client_id": "1"}, "client_id"),
        ({"redirect_uri": "https://elsewhere.test/"}, "redirect_uri"),
        ({"redirect_uri": "http://["}, "redirect_uri"),
        ({"response_type": "token"}, "response_type"),
        ({"scope": "everything"}, "scope"),
    ],
)
async def test_invalid_authorization_request_is_rejected(
    strava: StravaSimulator, http: Client, changed: dict[str, str], field: str
) -> None:
    status, body = await status_and_json(
        await Browser(http).get(
            with_query(f"{strava.url}/oauth/authorize", AUTHORIZE_PARAMETERS | changed)
        )
    )
    assert (status, error_fields(body)[1:]) == (400, (field, "invalid"))


# Tokens


async def test_code_is_valid_once(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    sent = {
        "grant_type": "authorization_code",
        "code": strava.authorizations.issue_code(ana.id, ALL),
    }
    assert (await token(strava, http, **sent))[0] == 200
    status, body = await token(strava, http, **sent)
    assert (status, error_fields(body)) == (400, ("AuthorizationCode", "code", "invalid"))


async def test_client_secret_is_required(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    sent = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    assert (await token(strava, http, **sent, client_secret="wrong"))[0] == 401
    status, body = await token(strava, http, **sent, client_id="1")
    assert (status, error_fields(body)) == (400, ("Application", "client_id", "invalid"))


async def test_early_refresh_returns_the_current_tokens(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(5 * 3600 - 1)
    status, tokens = await refresh(strava, http, grant.refresh_token)
    assert (status, tokens["access_token"], tokens["refresh_token"]) == (
        200,
        grant.access_token,
        grant.refresh_token,
    )
    assert "athlete" not in tokens


async def test_refresh_rotates_both_tokens(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """The old refresh token is invalid immediately; the old access token expires normally."""
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(5 * 3600)
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert tokens["refresh_token"] != grant.refresh_token
    assert tokens["expires_at"] == clock.seconds() + 6 * 3600
    status, body = await refresh(strava, http, grant.refresh_token)
    assert (status, error_fields(body)) == (400, ("RefreshToken", "refresh_token", "invalid"))
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 200
    await clock.advance(3600)
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 401
    assert (await fetch(strava, http, activity.id, tokens["access_token"])).status == 200


async def test_old_refresh_token_can_have_a_grace_period(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """During it, the old token returns what the new one returns."""
    strava.authorizations.grace = 60
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(6 * 3600)
    _, new = await refresh(strava, http, grant.refresh_token)
    await clock.advance(59)
    assert (await refresh(strava, http, grant.refresh_token))[1]["refresh_token"] == new[
        "refresh_token"
    ]
    await clock.advance(1)
    assert (await refresh(strava, http, grant.refresh_token))[0] == 400


async def test_rotation_can_be_disabled(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.authorizations.rotates = False
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(6 * 3600)
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert tokens["refresh_token"] == grant.refresh_token
    assert tokens["access_token"] != grant.access_token


async def test_lost_rotation_response_leaves_the_old_token_invalid(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(6 * 3600)
    strava.faults.add(InjectedFault(path="/oauth/token", drop="after"))
    with pytest.raises(PyreqwestError):
        await refresh(strava, http, grant.refresh_token)
    assert (await refresh(strava, http, grant.refresh_token))[0] == 400


async def test_repeated_grant_keeps_the_tokens(strava: StravaSimulator, ana: StravaAthlete) -> None:
    """A second link does not break the first; another scope is another grant."""
    first = strava.authorizations.grant(ana.id, ALL)
    assert strava.authorizations.grant(ana.id, ALL) == first
    assert strava.authorizations.grant(ana.id, PUBLIC).refresh_token != first.refresh_token


async def test_deauthorization_revokes_everything(
    subscribed: WebhookReceiver, strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """Access, refresh and events; the application gets one deauthorization event."""
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, ALL)
    revoking = http.post(f"{strava.url}/oauth/deauthorize").form(
        {"access_token": grant.access_token}
    )
    assert await status_and_json(await revoking.build().send()) == (
        200,
        {"access_token": grant.access_token},
    )
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 401
    assert (await refresh(strava, http, grant.refresh_token))[0] == 400
    strava.record(ana.id)
    strava.deauthorize(ana.id)
    await strava.webhooks.wait_idle()
    assert [event["object_type"] for event in subscribed.events] == ["activity", "athlete"]
    last = subscribed.events[-1]
    assert (last["object_id"], last["owner_id"], last["updates"]) == (
        ana.id,
        ana.id,
        {"authorized": "false"},
    )
    again = http.post(f"{strava.url}/oauth/deauthorize").bearer_auth(grant.access_token)
    assert (await again.build().send()).status == 401


async def revoke(
    strava: StravaSimulator, http: Client, token: str, secret: str | None = None
) -> int:
    application = strava.application
    request = http.post(f"{strava.url}/oauth/revoke").form({"token": token})
    secret = application.client_secret if secret is None else secret
    return (await request.basic_auth(str(application.client_id), secret).build().send()).status


async def test_revocation_takes_either_token_and_needs_the_client_secret(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """A repetition and an unknown token succeed, as in RFC 7009."""
    for name in ("access_token", "refresh_token"):
        grant = strava.authorizations.grant(ana.id, ALL)
        assert await revoke(strava, http, getattr(grant, name), "wrong") == 401
        assert strava.authorizations.access_token_for(ana.id) is not None
        assert await revoke(strava, http, getattr(grant, name)) == 200
        assert strava.authorizations.access_token_for(ana.id) is None
        assert await revoke(strava, http, getattr(grant, name)) == 200
    assert await revoke(strava, http, "unknown") == 200
    assert await revoke(strava, http, "") == 400
    assert (await http.post(f"{strava.url}/oauth/revoke").build().send()).status == 400


async def test_an_inactive_application_gets_403_for_every_call(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """Until its owner subscribes."""
    activity, grant = strava.record(ana.id), strava.authorizations.grant(ana.id, ALL)
    await control(strava, http, "POST", "application", {"inactive": True})
    refused = await fetch(strava, http, activity.id, grant.access_token)
    fault = {"resource": "Application", "field": "Status", "code": "Inactive"}
    assert (refused.status, (await refused.json())["errors"]) == (403, [fault])
    assert (await refresh(strava, http, grant.refresh_token))[0] == 403
    assert await revoke(strava, http, grant.refresh_token) == 403
    await control(strava, http, "POST", "application", {"inactive": False})
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 200


# Activities


async def test_activity_has_strava_fields(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    made = strava.record(
        ana.id,
        "GravelRide",
        42_195.5,
        moving_time=5400,
        elapsed_time=6000,
        total_elevation_gain=512.0,
    )
    status, shown = await status_and_json(await fetch(strava, http, made.id, grant.access_token))
    assert status == 200
    expected = {
        "id": made.id,
        "sport_type": "GravelRide",
        "type": "Ride",
        "start_date": "2026-03-01T08:00:00Z",
        "distance": 42_195.5,
        "moving_time": 5400,
        "elapsed_time": 6000,
        "total_elevation_gain": 512.0,
        "athlete": {"id": ana.id, "resource_state": 1},
        "private": False,
        "manual": False,
        "flagged": False,
    }
    assert {name: shown[name] for name in expected} == expected


async def test_invalid_token_gets_401(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    activity = strava.record(ana.id)
    strava.authorizations.grant(ana.id, ALL)
    status, body = await status_and_json(await fetch(strava, http, activity.id, "foreign"))
    assert (status, error_fields(body)) == (401, ("Athlete", "access_token", "invalid"))


async def test_activities_require_their_scope(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, frozenset({"read"}))
    status, body = await status_and_json(await fetch(strava, http, activity.id, grant.access_token))
    assert (status, error_fields(body)) == (
        401,
        ("AccessToken", "activity:read_permission", "missing"),
    )


async def test_inaccessible_activities_get_404(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """Private ones without the scope, those of others, deleted and unknown ones."""
    bo = strava.add_athlete("Bo")
    private, foreign, deleted = (
        strava.record(ana.id, private=True),
        strava.record(bo.id),
        strava.record(ana.id),
    )
    strava.delete(deleted.id)
    public = strava.authorizations.grant(ana.id, PUBLIC).access_token
    for activity_id in (private.id, foreign.id, deleted.id, 1):
        status, body = await status_and_json(await fetch(strava, http, activity_id, public))
        assert (status, error_fields(body)[0]) == (404, "Activity")
    everything = strava.authorizations.grant(ana.id, ALL).access_token
    assert (await fetch(strava, http, private.id, everything)).status == 200


async def test_athlete_profile_requires_authorization(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    response = (
        await http.get(f"{strava.url}/api/v3/athlete")
        .bearer_auth(grant.access_token)
        .build()
        .send()
    )
    assert (await status_and_json(response))[1]["firstname"] == "Ana"


# Limits


async def test_responses_carry_rate_limit_headers(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    for used in (1, 2):
        response = await fetch(strava, http, 1, grant.access_token)
        assert response.headers["x-ratelimit-limit"] == "200,2000"
        assert response.headers["x-ratelimit-usage"] == f"{used},{used}"
        assert response.headers["x-readratelimit-limit"] == "100,1000"
        assert response.headers["x-readratelimit-usage"] == f"{used},{used}"


async def test_requests_beyond_a_limit_get_429_until_the_window_ends(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Windows are aligned to quarter hours; rejected requests count for the day."""
    strava.limits.reads = RateLimit(2, 5)
    grant = strava.authorizations.grant(ana.id, ALL)
    activity = strava.record(ana.id)

    async def statuses(count: int) -> list[int]:
        return [
            (await fetch(strava, http, activity.id, grant.access_token)).status
            for _ in range(count)
        ]

    await clock.advance(14 * 60)
    assert await statuses(3) == [200, 200, 429]
    await clock.advance(60)
    assert await statuses(2) == [200, 200]
    await clock.advance(15 * 60)
    response = await fetch(strava, http, activity.id, grant.access_token)
    assert (response.status, response.headers["x-readratelimit-usage"]) == (429, "1,6")
    assert error_fields(await response.json()) == ("Application", "rate limit", "exceeded")


async def test_daily_limit_resets_at_midnight(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.limits.overall = RateLimit(10, 1)
    activity = strava.record(ana.id)
    for wait, expected in ((0, 200), (15 * 3600, 429), (3600, 200)):
        await clock.advance(wait)
        access = strava.authorizations.grant(ana.id, ALL).access_token
        assert (await fetch(strava, http, activity.id, access)).status == expected


# Webhooks


async def test_subscription_requires_a_handshake(
    strava: StravaSimulator, http: Client, receiver: WebhookReceiver
) -> None:
    """One per application; it can be read and deleted."""
    url = f"{strava.url}/api/v3/push_subscriptions"
    form = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    status, made = await status_and_json(await http.post(url).form(form).build().send())
    assert (status, made) == (201, {"id": 1})
    status, body = await status_and_json(await http.post(url).form(form).build().send())
    assert (status, error_fields(body)[2]) == (400, "already exists")
    _, listed = await status_and_json(await http.get(with_query(url, APPLICATION)).build().send())
    assert [(entry["id"], entry["callback_url"]) for entry in listed] == [(1, receiver.url)]
    assert (await http.delete(with_query(f"{url}/2", APPLICATION)).build().send()).status == 404
    assert (await http.delete(with_query(f"{url}/1", APPLICATION)).build().send()).status == 204
    assert await status_and_json(await http.get(with_query(url, APPLICATION)).build().send()) == (
        200,
        [],
    )


async def test_callback_with_wrong_response_is_rejected(
    strava: StravaSimulator, http: Client, receiver: WebhookReceiver
) -> None:
    url = f"{strava.url}/api/v3/push_subscriptions"
    form = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    receiver.challenge = {"hub.challenge": "another"}
    messages = []
    for changed in (
        {},
        {"verify_token": "wrong"},
        {"callback_url": ""},
        {"callback_url": "http://127.0.0.1:9/"},
    ):
        _, body = await status_and_json(await http.post(url).form(form | changed).build().send())
        messages.append(error_fields(body)[2])
    assert messages == [
        "not verifiable",
        "GET to callback URL does not return 200",
        "missing",
        "not verifiable",
    ]
    assert strava.webhooks.subscription is None


async def test_callback_must_respond_within_two_seconds(
    strava: StravaSimulator, http: Client, receiver: WebhookReceiver, clock: ManualClock
) -> None:
    receiver.responding.clear()
    form = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    asking = asyncio.create_task(
        http.post(f"{strava.url}/api/v3/push_subscriptions").form(form).build().send()
    )
    await clock.until_sleeping()
    await clock.advance(2)
    assert (await asking).status == 400


async def test_events_report_changes(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Creation, changes of title, type or privacy, and deletion; other changes send none."""
    ride = strava.record(ana.id, "Ride", 10_000)
    await strava.webhooks.wait_idle()
    for changed in (
        {"name": "Evening"},
        {"sport_type": "TrailRun"},
        {"private": True},
        {"distance": 1.0},
    ):
        strava.edit(ride.id, **changed)
        await strava.webhooks.wait_idle()
    strava.delete(ride.id)
    await strava.webhooks.wait_idle()
    assert [(event["aspect_type"], event["updates"]) for event in subscribed.events] == [
        ("create", {}),
        ("update", {"title": "Evening"}),
        ("update", {"type": "Run"}),
        ("update", {"private": "true"}),
        ("delete", {}),
    ]
    assert subscribed.events[0] == {
        "aspect_type": "create",
        "event_time": clock.seconds(),
        "object_id": ride.id,
        "object_type": "activity",
        "owner_id": ana.id,
        "subscription_id": 1,
        "updates": {},
    }


async def test_retention_can_be_limited(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    """Of activities, requests and webhook attempts."""
    strava.max_activities = 2
    strava.webhooks.limit_log(2)
    strava.faults.limit_requests(2)
    made = [strava.record(ana.id).id for _ in range(3)]
    await strava.webhooks.wait_idle()
    assert list(strava.activities) == made[1:]
    assert len(strava.webhooks.log) == 2
    assert strava.faults.requests.maxlen == 2


async def test_private_activity_looks_deleted_without_the_scope(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.authorizations.grant(ana.id, PUBLIC)
    ride = strava.record(ana.id)
    await strava.webhooks.wait_idle()
    for private in (True, False):
        strava.edit(ride.id, private=private)
        await strava.webhooks.wait_idle()
    strava.record(ana.id, private=True)
    await strava.webhooks.wait_idle()
    assert [event["aspect_type"] for event in subscribed.events] == ["create", "delete", "create"]


async def test_no_events_without_authorization(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.record(strava.add_athlete("Bo").id)
    strava.authorizations.grant(ana.id, frozenset({"read"}))
    strava.record(ana.id)
    await strava.webhooks.wait_idle()
    assert subscribed.events == []


async def test_event_is_attempted_up_to_three_times(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Until it gets 200; then Strava gives up."""
    subscribed.statuses = [500, 503, 200]
    strava.record(ana.id)
    for attempts in (1, 2):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [attempt.status for attempt in strava.webhooks.log] == [500, 503, 200]
    subscribed.statuses = [204, 302, 404, 200]
    strava.record(ana.id)
    for attempts in (4, 5):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [attempt.status for attempt in strava.webhooks.log][3:] == [204, 302, 404]
    assert len({str(event) for event in subscribed.events}) == 2


async def test_response_after_two_seconds_counts_as_failure(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    subscribed.responding.clear()
    strava.record(ana.id)
    await clock.until_sleeping()
    await clock.advance(2)
    subscribed.responding.set()
    await strava.webhooks.wait_for_attempts(1)
    await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [attempt.status for attempt in strava.webhooks.log] == [0, 200]


async def test_events_can_be_duplicated(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.webhooks.duplicates = 2
    strava.record(ana.id)
    await strava.webhooks.wait_idle()
    strava.webhooks.redeliver(strava.webhooks.log[0].event, times=47)
    await strava.webhooks.wait_idle()
    assert len(subscribed.events) == 50
    assert len({str(event) for event in subscribed.events}) == 1


@pytest.mark.parametrize(
    ("order", "expected"), [("sent", [0, 1, 2, 3, 4]), ("reversed", [4, 3, 2, 1, 0])]
)
async def test_events_can_be_reordered(
    subscribed: WebhookReceiver,
    strava: StravaSimulator,
    ana: StravaAthlete,
    order: Any,
    expected: list[int],
) -> None:
    strava.webhooks.hold()
    made = [strava.record(ana.id).id for _ in range(5)]
    await strava.webhooks.wait_idle()
    assert subscribed.events == []
    strava.webhooks.release(order)
    await strava.webhooks.wait_idle()
    assert [made.index(event["object_id"]) for event in subscribed.events] == expected


async def test_events_can_be_shuffled_without_loss(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.webhooks.hold()
    made = [strava.record(ana.id).id for _ in range(20)]
    strava.webhooks.release("shuffled")
    await strava.webhooks.wait_idle()
    received = [event["object_id"] for event in subscribed.events]
    assert received != made
    assert sorted(received) == made


async def test_events_can_be_dropped_or_delayed(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.webhooks.drops = 1
    strava.webhooks.delay = 30
    strava.record(ana.id)
    late = strava.record(ana.id)
    await clock.until_sleeping()
    assert subscribed.events == []
    await clock.advance(30)
    await strava.webhooks.wait_idle()
    assert [event["object_id"] for event in subscribed.events] == [late.id]


async def test_unreachable_receiver_is_retried(
    subscribed: WebhookReceiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.webhooks.unsubscribe()
    strava.record(ana.id)
    async with WebhookReceiver().serving() as other:
        await strava.webhooks.subscribe(other.url, VERIFY_TOKEN)
    strava.record(ana.id)
    for attempts in (1, 2, 3):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [(attempt.attempt, attempt.status) for attempt in strava.webhooks.log] == [
        (1, 0),
        (2, 0),
        (3, 0),
    ]


# After a restart


async def test_snapshot_restores_the_simulator(
    subscribed: WebhookReceiver,
    strava: StravaSimulator,
    http: Client,
    ana: StravaAthlete,
    clock: ManualClock,
) -> None:
    """Tokens stay valid, activities exist, new ids are unique, and events continue."""
    before, grant = strava.record(ana.id), strava.authorizations.grant(ana.id, ALL)
    await strava.webhooks.wait_idle()
    async with StravaSimulator(clock).serving() as again:
        load_snapshot(again, dump_snapshot(strava))
        assert (await fetch(again, http, before.id, grant.access_token)).status == 200
        after = again.record(ana.id)
        await again.webhooks.wait_idle()
        await clock.advance(6 * 3600)
        assert (await refresh(again, http, grant.refresh_token))[0] == 200
        assert again.add_athlete("Bo").id != ana.id
    assert after.id != before.id
    assert [event["object_id"] for event in subscribed.events] == [before.id, after.id]


# From another process


async def test_control_api_covers_every_function(
    subscribed: WebhookReceiver, strava: StravaSimulator, http: Client, clock: ManualClock
) -> None:
    """The control API offers what the Python object does."""
    eve = await (await control(strava, http, "POST", "athletes", {"firstname": "Eve"})).json()
    strava.authorizations.grant(eve["id"], ALL)
    made = await (
        await control(
            strava, http, "POST", "activities", {"athlete_id": eve["id"], "distance": 5.5}
        )
    ).json()
    await strava.webhooks.wait_idle()
    path = f"activities/{made['id']}"
    assert (await control(strava, http, "PATCH", path, {"name": "Renamed"})).status == 200
    await strava.webhooks.wait_idle()
    assert strava.activities[made["id"]].name == "Renamed"
    assert (await control(strava, http, "DELETE", path, None)).status == 204
    assert (await control(strava, http, "DELETE", path, None)).status == 404
    assert (
        await control(strava, http, "POST", f"athletes/{eve['id']}/deauthorize", None)
    ).status == 204
    await strava.webhooks.wait_idle()
    assert [event["aspect_type"] for event in subscribed.events] == [
        "create",
        "update",
        "delete",
        "update",
    ]
    request = http.get(f"{strava.url}/_sim/state").headers(CONTROL_HEADERS)
    state = await (await request.build().send()).json()
    assert (state["deliveries"]["accepted"], len(state["athletes"]), len(state["connected"])) == (
        4,
        2,
        1,
    )


async def test_control_api_sets_webhook_conditions_and_rules(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    limits = {"reads": {"quarter": 1, "day": 2}}
    for path, body in (
        ("webhooks", {"delay": 1.5, "duplicates": 2, "drops": 3, "retry_pause": 4, "hold": True}),
        ("limits", limits),
        ("tokens", {"rotates": False, "grace": 9}),
        ("approval", {"consent": {"athlete_id": ana.id, "scope": "read"}}),
        ("faults", {"path": "/oauth/token", "status": 502, "times": None}),
        ("webhooks", {"release": "shuffled"}),
    ):
        assert (await control(strava, http, "POST", path, body)).status == 204
    webhooks = strava.webhooks
    assert (webhooks.delay, webhooks.duplicates, webhooks.drops, webhooks.retry_pause) == (
        1.5,
        2,
        3,
        4,
    )
    assert strava.limits.reads == RateLimit(1, 2)
    assert (strava.authorizations.rotates, strava.authorizations.grace) == (False, 9)
    assert strava.auto_approve == Consent(ana.id, "read")
    assert (await http.post(f"{strava.url}/oauth/token").build().send()).status == 502
    assert (await control(strava, http, "DELETE", "faults", None)).status == 204
    assert (await http.post(f"{strava.url}/oauth/token").build().send()).status == 400


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("activities", {"athlete_id": 1}, 404),
        ("activities", {"distance": 1}, 400),
        ("activities", {"athlete_id": 1, "speed": 2}, 400),
        ("athletes", {"firstname": 7}, 400),
        ("nothing", {}, 404),
    ],
)
async def test_control_api_rejects_invalid_bodies(
    strava: StravaSimulator, http: Client, path: str, body: Any, status: int
) -> None:
    assert (await control(strava, http, "POST", path, body)).status == status


async def test_access_tokens_can_be_expired(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """A refresh then issues a new one."""
    activity, grant = strava.record(ana.id), strava.authorizations.grant(ana.id, ALL)
    assert (await control(strava, http, "POST", f"athletes/{ana.id}/expire", None)).status == 204
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 401
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert (await fetch(strava, http, activity.id, tokens["access_token"])).status == 200
