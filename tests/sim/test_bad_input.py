"""Simulators respond to arbitrary input like the real service, never with an internal error."""

import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.request import ConsumedRequest

from tally.kit.clock import ManualClock
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.page_protection import CONTROL_HEADERS
from tally.sim.request_parsing import with_query
from tally.sim.strava.simulator import StravaSimulator

PATHS = [
    "/oauth2/authorize",
    "/login",
    "/logout",
    "/oauth2/token",
    "/oauth2/revoke",
    "/oauth2/userInfo",
    "/",
    "/oauth/authorize",
    "/oauth/token",
    "/oauth/deauthorize",
    "/oauth/revoke",
    "/api/v3/activities/1",
    "/api/v3/push_subscriptions",
    "/_sim/state",
    "/_sim/tokens",
    "/_sim/people",
    "/_sim/flaws",
    "/_sim/faults",
    "/_sim/approval",
    "/_sim/limits",
    "/_sim/athletes",
    "/_sim/activities",
    "/_sim/activities/1",
    "/_sim/athletes/1/expire",
    "/_sim/webhooks",
]
NAMES = [
    "client_id",
    "client_secret",
    "redirect_uri",
    "response_type",
    "scope",
    "state",
    "code",
    "grant_type",
    "athlete",
    "code_challenge",
    "code_challenge_method",
    "refresh_token",
    "access_token",
    "token",
    "name",
    "who",
    "login_hint",
    "callback_url",
    "verify_token",
    "sub",
    "groups",
    "firstname",
    "athlete_id",
    "distance",
    "logout_uri",
    "AccessToken",
]
WORDS = [
    "tally-collect",
    "54321",
    "http://127.0.0.1:9/",
    "http://[",
    "code",
    "openid",
    "read",
    "S256",
    "100001",
    "authorization_code",
    "refresh_token",
    "made-up-client-secret",
    "made-up-strava-secret",
]
VALUES = st.sampled_from(WORDS) | st.text(max_size=20)
FIELDS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner)
    ),
    max_leaves=8,
)
HEADERS = st.sampled_from(
    ["", "Basic !", "Basic YTpi", "Bearer x", "Bearer a.b.c", "Bearer eyJhbGciOiJub25lIn0.e30."]
)
TARGETS = st.sampled_from(["", "AWSCognitoIdentityProviderService.DeleteUser"])


@pytest.fixture(scope="module")
async def client() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


@pytest.fixture(scope="module")
async def issuer() -> AsyncIterator[OidcSimulator]:
    async with OidcSimulator(ManualClock(), rng=random.Random(1)).serving() as issuer:
        yield issuer


@pytest.fixture(scope="module")
async def strava() -> AsyncIterator[StravaSimulator]:
    async with StravaSimulator(ManualClock(), rng=random.Random(1)).serving() as strava:
        strava.add_athlete("Ana")
        yield strava


@dataclass(frozen=True)
class Sent:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    is_form: bool
    authorization: str
    operation: str

    def to(self, client: Client, url: str) -> ConsumedRequest:
        request = client.request(self.method, with_query(f"{url}{self.path}", self.query))
        request = request.header("authorization", self.authorization)
        request = request.header("x-amz-target", self.operation).headers(CONTROL_HEADERS)
        if isinstance(self.body, bytes):
            return (
                request.header("content-type", "application/x-www-form-urlencoded")
                .body_bytes(self.body)
                .build()
            )
        if self.is_form and isinstance(self.body, dict):
            return request.form({name: str(value) for name, value in self.body.items()}).build()
        return (
            request.header("content-type", "application/json")
            .body_bytes(json.dumps(self.body).encode())
            .build()
        )


SENT = st.builds(
    Sent,
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]),
    path=st.sampled_from(PATHS),
    query=FIELDS,
    body=FIELDS | JSON | st.binary(max_size=40),
    is_form=st.booleans(),
    authorization=HEADERS,
    operation=TARGETS,
)


@given(sent=SENT)
async def test_arbitrary_requests_do_not_break_a_simulator(
    client: Client, issuer: OidcSimulator, strava: StravaSimulator, sent: Sent
) -> None:
    for simulator in (issuer, strava):
        # A generated fault or approval is valid, but would hide a bad response.
        simulator.faults.clear()
        simulator.auto_approve = None
        response = await sent.to(client, simulator.url).send()
        assert response.status < 500, await response.text()
