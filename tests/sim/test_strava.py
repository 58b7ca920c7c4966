"""The simulated Strava grants, limits and tells as the real one does, and goes wrong when it is told to."""

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
from tally.sim.request_parsing import with_query
from tally.sim.strava.core import Consent
from tally.sim.strava.model import StravaAthlete
from tally.sim.strava.rate_limits import RateLimit
from tally.sim.strava.simulator import StravaSimulator
from tally.sim.strava.snapshot import dump_snapshot, load_snapshot
from tests.sim.answers import target, told
from tests.sim.receiver import VERIFY_TOKEN, Receiver

CALLBACK = "http://127.0.0.1:9/strava/callback"
APPLICATION = {"client_id": "54321", "client_secret": "made-up-strava-secret"}
ASKED = {
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
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().serving() as receiver:
        yield receiver
        receiver.answering.set()


@pytest.fixture
async def subscribed(strava: StravaSimulator, receiver: Receiver, ana: StravaAthlete) -> Receiver:
    """Events go to the receiver, and Ana lets the application read everything."""
    await strava.webhooks.subscribe(receiver.url, VERIFY_TOKEN)
    strava.authorizations.grant(ana.id, ALL)
    return receiver


async def token(strava: StravaSimulator, http: Client, **sent: str) -> tuple[int, Any]:
    return await told(
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
    return await http.request(method, f"{strava.url}/_sim/{path}").body_json(body).build().send()


def fault_of(answer: Any) -> tuple[str, str, str]:
    (error,) = answer["errors"]
    return error["resource"], error["field"], error["code"]


# Consent


async def test_an_athlete_lets_the_application_in_by_the_page(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """And comes back with the state, a code, and what was really granted."""
    browser = Browser(http)
    page = await (await browser.get(with_query(f"{strava.url}/oauth/authorize", ASKED))).text()
    assert "Ana Silva" in page
    assert 'name="grant:activity:read_all" checked>' in page
    ticked = {"athlete": str(ana.id), "grant:activity:read_all": "on"}
    back = target(strava.url, await browser.submit(f"{strava.url}/oauth/authorize", ASKED | ticked))
    assert back.startswith(CALLBACK)
    assert (query_parameters(back)["state"], query_parameters(back)["scope"]) == (
        "state-1",
        "read,activity:read_all",
    )
    status, tokens = await token(
        strava, http, grant_type="authorization_code", code=query_parameters(back)["code"]
    )
    assert (status, tokens["athlete"]["id"], tokens["expires_in"]) == (200, ana.id, 6 * 3600)


async def test_an_athlete_may_grant_less(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    response = await Browser(http).submit(
        f"{strava.url}/oauth/authorize", ASKED | {"athlete": str(ana.id)}
    )
    assert query_parameters(target(strava.url, response))["scope"] == "read"


async def test_an_athlete_may_refuse(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    sent = ASKED | {"athlete": str(ana.id), "deny": "yes"}
    back = query_parameters(
        target(strava.url, await Browser(http).submit(f"{strava.url}/oauth/authorize", sent))
    )
    assert back == {"state": "state-1", "error": "access_denied"}


async def test_a_stranger_becomes_an_athlete(strava: StravaSimulator, http: Client) -> None:
    sent = ASKED | {"name": "Eve Ng"}
    back = query_parameters(
        target(strava.url, await Browser(http).submit(f"{strava.url}/oauth/authorize", sent))
    )
    _, tokens = await token(strava, http, grant_type="authorization_code", code=back["code"])
    assert (tokens["athlete"]["firstname"], tokens["athlete"]["lastname"]) == ("Eve", "Ng")


@pytest.mark.parametrize("chosen", ["", "7", "nobody", "²"])
async def test_the_page_comes_back_for_nobody(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, chosen: str
) -> None:
    response = await Browser(http).submit(
        f"{strava.url}/oauth/authorize", ASKED | {"athlete": chosen}
    )
    assert response.status == 200
    assert "Ana Silva" in await response.text()


@pytest.mark.parametrize(
    ("consent", "answer"),
    [
        (Consent(100_001), "read,activity:read_all"),
        (Consent(100_001, scope="read"), "read"),
        (Consent(100_001, denied=True), None),
    ],
)
async def test_consent_can_be_given_without_anybody(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, consent: Consent, answer: str | None
) -> None:
    strava.auto_approve = consent
    response = await Browser(http).get(with_query(f"{strava.url}/oauth/authorize", ASKED))
    assert query_parameters(target(strava.url, response)).get("scope") == answer


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
async def test_an_application_that_asks_wrongly_is_refused(
    strava: StravaSimulator, http: Client, changed: dict[str, str], field: str
) -> None:
    status, answer = await told(
        await Browser(http).get(with_query(f"{strava.url}/oauth/authorize", ASKED | changed))
    )
    assert (status, fault_of(answer)[1:]) == (400, (field, "invalid"))


# Tokens


async def test_a_code_works_once(strava: StravaSimulator, http: Client, ana: StravaAthlete) -> None:
    sent = {
        "grant_type": "authorization_code",
        "code": strava.authorizations.issue_code(ana.id, ALL),
    }
    assert (await token(strava, http, **sent))[0] == 200
    status, answer = await token(strava, http, **sent)
    assert (status, fault_of(answer)) == (400, ("AuthorizationCode", "code", "invalid"))


async def test_the_application_must_know_its_secret(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    sent = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    assert (await token(strava, http, **sent, client_secret="wrong"))[0] == 401
    status, answer = await token(strava, http, **sent, client_id="1")
    assert (status, fault_of(answer)) == (400, ("Application", "client_id", "invalid"))


async def test_a_refresh_with_time_left_brings_nothing_new(
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


async def test_a_refresh_rotates_both_tokens(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """The old refresh token is dead at once, and the old access token lives out its time."""
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(5 * 3600)
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert tokens["refresh_token"] != grant.refresh_token
    assert tokens["expires_at"] == clock.seconds() + 6 * 3600
    status, answer = await refresh(strava, http, grant.refresh_token)
    assert (status, fault_of(answer)) == (400, ("RefreshToken", "refresh_token", "invalid"))
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 200
    await clock.advance(3600)
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 401
    assert (await fetch(strava, http, activity.id, tokens["access_token"])).status == 200


async def test_an_old_refresh_token_can_have_a_grace(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Within it, the old one gives what the new one gives."""
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


async def test_rotation_can_be_off(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.authorizations.rotates = False
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(6 * 3600)
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert tokens["refresh_token"] == grant.refresh_token
    assert tokens["access_token"] != grant.access_token


async def test_a_rotation_whose_answer_is_lost_leaves_the_old_token_dead(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    await clock.advance(6 * 3600)
    strava.faults.add(InjectedFault(path="/oauth/token", drop="after"))
    with pytest.raises(PyreqwestError):
        await refresh(strava, http, grant.refresh_token)
    assert (await refresh(strava, http, grant.refresh_token))[0] == 400


async def test_the_same_grant_again_keeps_the_tokens(
    strava: StravaSimulator, ana: StravaAthlete
) -> None:
    """So that a second link of one athlete does not cut off the first; another scope is another grant."""
    first = strava.authorizations.grant(ana.id, ALL)
    assert strava.authorizations.grant(ana.id, ALL) == first
    assert strava.authorizations.grant(ana.id, PUBLIC).refresh_token != first.refresh_token


async def test_who_deauthorizes_takes_back_everything(
    subscribed: Receiver, strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """Access, refresh, and the news of activities; the application is told, once."""
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, ALL)
    revoking = http.post(f"{strava.url}/oauth/deauthorize").form(
        {"access_token": grant.access_token}
    )
    assert await told(await revoking.build().send()) == (200, {"access_token": grant.access_token})
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


# Activities


async def test_an_activity_has_the_fields_that_strava_gives_it(
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
    status, shown = await told(await fetch(strava, http, made.id, grant.access_token))
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


async def test_a_token_that_does_not_hold_is_401(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    activity = strava.record(ana.id)
    strava.authorizations.grant(ana.id, ALL)
    status, answer = await told(await fetch(strava, http, activity.id, "foreign"))
    assert (status, fault_of(answer)) == (401, ("Athlete", "access_token", "invalid"))


async def test_activities_need_their_scope(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    activity = strava.record(ana.id)
    grant = strava.authorizations.grant(ana.id, frozenset({"read"}))
    status, answer = await told(await fetch(strava, http, activity.id, grant.access_token))
    assert (status, fault_of(answer)) == (
        401,
        ("AccessToken", "activity:read_permission", "missing"),
    )


async def test_what_one_may_not_see_is_not_there(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """Private ones without the scope for them, those of others, deleted ones and none at all."""
    bo = strava.add_athlete("Bo")
    private, foreign, deleted = (
        strava.record(ana.id, private=True),
        strava.record(bo.id),
        strava.record(ana.id),
    )
    strava.delete(deleted.id)
    public = strava.authorizations.grant(ana.id, PUBLIC).access_token
    for activity_id in (private.id, foreign.id, deleted.id, 1):
        status, answer = await told(await fetch(strava, http, activity_id, public))
        assert (status, fault_of(answer)[0]) == (404, "Activity")
    everything = strava.authorizations.grant(ana.id, ALL).access_token
    assert (await fetch(strava, http, private.id, everything)).status == 200


async def test_an_athlete_is_shown_to_whom_they_trust(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    response = (
        await http.get(f"{strava.url}/api/v3/athlete")
        .bearer_auth(grant.access_token)
        .build()
        .send()
    )
    assert (await told(response))[1]["firstname"] == "Ana"


# Limits


async def test_every_answer_says_how_much_is_left(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    grant = strava.authorizations.grant(ana.id, ALL)
    for used in (1, 2):
        response = await fetch(strava, http, 1, grant.access_token)
        assert response.headers["x-ratelimit-limit"] == "200,2000"
        assert response.headers["x-ratelimit-usage"] == f"{used},{used}"
        assert response.headers["x-readratelimit-limit"] == "100,1000"
        assert response.headers["x-readratelimit-usage"] == f"{used},{used}"


async def test_beyond_a_limit_it_is_429_until_the_window_ends(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    """At the natural quarter of an hour, not fifteen minutes later; refused requests count for the day."""
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
    assert fault_of(await response.json()) == ("Application", "rate limit", "exceeded")


async def test_the_day_ends_at_midnight(
    strava: StravaSimulator, http: Client, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.limits.overall = RateLimit(10, 1)
    activity = strava.record(ana.id)
    for wait, expected in ((0, 200), (15 * 3600, 429), (3600, 200)):
        await clock.advance(wait)
        access = strava.authorizations.grant(ana.id, ALL).access_token
        assert (await fetch(strava, http, activity.id, access)).status == expected


# Webhooks


async def test_a_subscription_is_made_after_a_handshake(
    strava: StravaSimulator, http: Client, receiver: Receiver
) -> None:
    """One for each application; it can be looked up and ended."""
    url = f"{strava.url}/api/v3/push_subscriptions"
    wanted = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    status, made = await told(await http.post(url).form(wanted).build().send())
    assert (status, made) == (201, {"id": 1})
    status, answer = await told(await http.post(url).form(wanted).build().send())
    assert (status, fault_of(answer)[2]) == (400, "already exists")
    _, listed = await told(await http.get(with_query(url, APPLICATION)).build().send())
    assert [(each["id"], each["callback_url"]) for each in listed] == [(1, receiver.url)]
    assert (await http.delete(with_query(f"{url}/2", APPLICATION)).build().send()).status == 404
    assert (await http.delete(with_query(f"{url}/1", APPLICATION)).build().send()).status == 204
    assert await told(await http.get(with_query(url, APPLICATION)).build().send()) == (200, [])


async def test_a_callback_that_does_not_answer_rightly_is_refused(
    strava: StravaSimulator, http: Client, receiver: Receiver
) -> None:
    url = f"{strava.url}/api/v3/push_subscriptions"
    wanted = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    receiver.challenge = {"hub.challenge": "another"}
    answers = []
    for changed in (
        {},
        {"verify_token": "wrong"},
        {"callback_url": ""},
        {"callback_url": "http://127.0.0.1:9/"},
    ):
        _, answer = await told(await http.post(url).form(wanted | changed).build().send())
        answers.append(fault_of(answer)[2])
    assert answers == [
        "not verifiable",
        "GET to callback URL does not return 200",
        "missing",
        "not verifiable",
    ]
    assert strava.webhooks.subscription is None


async def test_a_callback_has_two_seconds_to_answer(
    strava: StravaSimulator, http: Client, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.answering.clear()
    wanted = APPLICATION | {"callback_url": receiver.url, "verify_token": VERIFY_TOKEN}
    asking = asyncio.create_task(
        http.post(f"{strava.url}/api/v3/push_subscriptions").form(wanted).build().send()
    )
    await clock.until_sleeping()
    await clock.advance(2)
    assert (await asking).status == 400


async def test_events_say_what_happened(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Creation, a change of title, type or privacy, and deletion; a corrected distance is not told."""
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


async def test_a_world_that_runs_for_long_can_keep_the_latest_alone(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    """Of activities, of what was asked, and of what was told."""
    strava.max_activities = 2
    strava.webhooks.limit_log(2)
    strava.faults.limit_requests(2)
    made = [strava.record(ana.id).id for _ in range(3)]
    await strava.webhooks.wait_idle()
    assert list(strava.activities) == made[1:]
    assert len(strava.webhooks.log) == 2
    assert strava.faults.requests.maxlen == 2


async def test_privacy_looks_like_deletion_to_who_may_not_see(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete
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


async def test_nothing_is_told_of_who_did_not_allow_it(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.record(strava.add_athlete("Bo").id)
    strava.authorizations.grant(ana.id, frozenset({"read"}))
    strava.record(ana.id)
    await strava.webhooks.wait_idle()
    assert subscribed.events == []


async def test_an_event_comes_up_to_three_times(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    """Until it is answered with 200; then it is given up."""
    subscribed.statuses = [500, 503, 200]
    strava.record(ana.id)
    for attempts in (1, 2):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [each.status for each in strava.webhooks.log] == [500, 503, 200]
    subscribed.statuses = [204, 302, 404, 200]
    strava.record(ana.id)
    for attempts in (4, 5):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [each.status for each in strava.webhooks.log][3:] == [204, 302, 404]
    assert len({str(event) for event in subscribed.events}) == 2


async def test_an_answer_after_two_seconds_is_none(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    subscribed.answering.clear()
    strava.record(ana.id)
    await clock.until_sleeping()
    await clock.advance(2)
    subscribed.answering.set()
    await strava.webhooks.wait_for_attempts(1)
    await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [each.status for each in strava.webhooks.log] == [0, 200]


async def test_events_can_come_more_than_once(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete
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
async def test_events_can_come_in_another_order(
    subscribed: Receiver,
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


async def test_events_can_be_shuffled_and_none_is_lost(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete
) -> None:
    strava.webhooks.hold()
    made = [strava.record(ana.id).id for _ in range(20)]
    strava.webhooks.release("shuffled")
    await strava.webhooks.wait_idle()
    heard = [event["object_id"] for event in subscribed.events]
    assert heard != made
    assert sorted(heard) == made


async def test_events_can_be_lost_or_late(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
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


async def test_a_receiver_that_is_gone_is_tried_again(
    subscribed: Receiver, strava: StravaSimulator, ana: StravaAthlete, clock: ManualClock
) -> None:
    strava.webhooks.unsubscribe()
    strava.record(ana.id)
    async with Receiver().serving() as other:
        await strava.webhooks.subscribe(other.url, VERIFY_TOKEN)
    strava.record(ana.id)
    for attempts in (1, 2, 3):
        await strava.webhooks.wait_for_attempts(attempts)
        await clock.advance(120)
    await strava.webhooks.wait_idle()
    assert [(each.attempt, each.status) for each in strava.webhooks.log] == [(1, 0), (2, 0), (3, 0)]


# After a restart


async def test_the_world_goes_on_after_a_restart(
    subscribed: Receiver,
    strava: StravaSimulator,
    http: Client,
    ana: StravaAthlete,
    clock: ManualClock,
) -> None:
    """Tokens hold, activities are there, new ones have new ids, and the application still hears of them."""
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


async def test_it_can_be_driven_from_another_process(
    subscribed: Receiver, strava: StravaSimulator, http: Client, clock: ManualClock
) -> None:
    """Everything that tests do with the object, the control API does too."""
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
    state = await (await http.get(f"{strava.url}/_sim/state").build().send()).json()
    assert (state["deliveries"]["accepted"], len(state["athletes"]), len(state["connected"])) == (
        4,
        2,
        1,
    )


async def test_the_network_and_the_rules_are_set_from_outside(
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
async def test_the_control_api_refuses_what_does_not_fit(
    strava: StravaSimulator, http: Client, path: str, body: Any, status: int
) -> None:
    assert (await control(strava, http, "POST", path, body)).status == status


async def test_access_can_be_over_at_once(
    strava: StravaSimulator, http: Client, ana: StravaAthlete
) -> None:
    """A refresh then brings a new one."""
    activity, grant = strava.record(ana.id), strava.authorizations.grant(ana.id, ALL)
    assert (await control(strava, http, "POST", f"athletes/{ana.id}/expire", None)).status == 204
    assert (await fetch(strava, http, activity.id, grant.access_token)).status == 401
    _, tokens = await refresh(strava, http, grant.refresh_token)
    assert (await fetch(strava, http, activity.id, tokens["access_token"])).status == 200
