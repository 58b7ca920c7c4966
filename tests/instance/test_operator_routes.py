"""Every admin route of every backend takes the bearer token of an operator and audits changes."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from pyreqwest.client import Client, ClientBuilder

from tally.app import Application, build_app, open_application
from tally.instance.repository.operator_audit import AuditRecord
from tally.kit.clock import SystemClock
from tally.kit.operators import Role
from tally.kit.server import serving
from tally.settings import Secret, Settings
from tally.sim.oidc.cognito import CognitoSimulator
from tests.api_response import ApiResponse

AUTOMATION_TOKEN = "automation-token-of-forty-characters-012"
# All routes for operators, with values for the parameters of their paths.
BOARD = "AA:BB:CC:DD:EE:FF"
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
ROUTES = (
    ("GET", "/collect/admin/audit?user=ada"),
    ("GET", "/collect/admin/deletions"),
    ("GET", "/collect/admin/parked-events"),
    ("POST", "/collect/admin/parked-events/retry"),
    ("PATCH", "/cricket/teams/1"),
    ("PATCH", "/cricket/leagues/1"),
    ("DELETE", "/cricket/leagues/1"),
    ("GET", "/cricket/admin/fixtures?leagueId=1"),
    ("POST", "/cricket/admin/sync"),
    ("GET", "/cricket/admin/matches/1/state"),
    ("POST", "/cricket/admin/matches/1/replay"),
    ("POST", "/cricket/admin/matches/1/start"),
    ("PUT", "/cricket/admin/matches/1/hold"),
    ("DELETE", "/cricket/admin/matches/1/hold"),
    ("PUT", "/cricket/admin/matches/1/result"),
    ("DELETE", "/cricket/admin/matches/1/result"),
    ("POST", "/cricket/admin/matches/1/restore-follows"),
    ("POST", "/devices/api-keys"),
    ("GET", "/devices/api-keys"),
    ("DELETE", "/devices/api-keys/1"),
    ("GET", "/devices/devices"),
    ("GET", f"/devices/devices/{BOARD}"),
    ("PATCH", f"/devices/devices/{BOARD}"),
    ("GET", f"/devices/devices/{BOARD}/latest"),
    ("GET", f"/devices/devices/{BOARD}/readings"),
    ("GET", f"/devices/devices/{BOARD}/series?sensor=x&from=0&to=1"),
    ("GET", f"/devices/devices/{BOARD}/export"),
    ("GET", f"/devices/devices/{BOARD}/stream"),
    ("DELETE", f"/devices/devices/{BOARD}"),
    ("DELETE", f"/devices/devices/{BOARD}/readings"),
    ("PUT", f"/devices/devices/{BOARD}/desired-state"),
    ("GET", f"/devices/devices/{BOARD}/desired-state"),
    ("GET", "/devices/sensors"),
    ("GET", "/devices/sensors/x"),
    ("PUT", "/devices/sensors/x"),
    ("DELETE", "/devices/sensors/x"),
    ("GET", "/devices/fleet/latest"),
    ("GET", "/devices/fleet/series?group=x&sensor=x&from=0&to=1"),
    ("GET", "/devices/fleet/export?group=x"),
    ("GET", "/devices/fleet/metrics"),
    ("POST", "/devices/alarm-rules"),
    ("GET", "/devices/alarm-rules"),
    ("GET", f"/devices/alarm-rules/{UNKNOWN_ID}"),
    ("PUT", f"/devices/alarm-rules/{UNKNOWN_ID}"),
    ("DELETE", f"/devices/alarm-rules/{UNKNOWN_ID}"),
    ("GET", "/devices/alarms"),
    ("GET", "/devices/alarms/stream"),
    ("GET", f"/devices/alarms/{UNKNOWN_ID}"),
    ("POST", f"/devices/alarms/{UNKNOWN_ID}/acknowledge"),
    ("POST", "/devices/claims"),
    ("GET", "/devices/deletions"),
    ("GET", f"/devices/deletions/{UNKNOWN_ID}"),
    ("POST", "/scoreboard/api/v1/admin/leaderboard/rebuild"),
    ("GET", "/scoreboard/api/v1/admin/leaderboard/drift"),
    ("POST", f"/scoreboard/api/v1/admin/players/{UNKNOWN_ID}/adjust"),
    ("POST", f"/scoreboard/api/v1/admin/players/{UNKNOWN_ID}/ban"),
    ("POST", f"/scoreboard/api/v1/admin/players/{UNKNOWN_ID}/unban"),
    ("POST", "/scoreboard/api/v1/admin/boards"),
    ("GET", "/admin/webhook-kinds"),
    ("POST", "/admin/webhooks"),
    ("GET", "/admin/webhooks"),
    ("GET", "/admin/webhooks/1"),
    ("PATCH", "/admin/webhooks/1"),
    ("DELETE", "/admin/webhooks/1"),
    ("POST", "/admin/webhooks/1/secret"),
    ("GET", "/admin/webhooks/1/deliveries"),
    ("POST", "/admin/webhooks/1/replay"),
    ("GET", "/admin/consumers"),
    ("GET", "/admin/consumers/1/dead-letters"),
    ("POST", "/admin/consumers/1/dead-letters/retry"),
    ("POST", "/admin/consumers/1/dead-letters/discard"),
)
CHANGES = [route for route in ROUTES if route[0] != "GET"]
READS = [route for route in ROUTES if route[0] == "GET"]


@dataclass(frozen=True, slots=True)
class OperatedInstance:
    """An instance with all backends, and the tokens of a viewer and of an operator."""

    url: str
    application: Application
    client: Client
    cognito: CognitoSimulator
    viewer: str
    operator: str

    async def send(self, method: str, path: str, **headers: str) -> ApiResponse:
        request = self.client.request(method, f"{self.url}{path}").headers(headers)
        if method in {"POST", "PATCH", "PUT"}:
            request = request.body_json({})
        return await ApiResponse.read(await request.build().send())

    async def send_as(self, token: str, method: str, path: str, **headers: str) -> ApiResponse:
        return await self.send(method, path, Authorization=f"Bearer {token}", **headers)

    async def change_of(self, request_id: str) -> AuditRecord:
        """Return the change that a request made."""
        records, _ = await self.application.operators.changes(None, 1000)
        (record,) = [record for record in records if record.request_id == request_id]
        return record

    async def number_of_changes(self) -> int:
        records, _ = await self.application.operators.changes(None, 1000)
        return len(records)


@pytest.fixture(scope="session")
async def instance(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[OperatedInstance]:
    async with CognitoSimulator(SystemClock()).serving() as cognito:
        settings = Settings(
            data_dir=tmp_path_factory.mktemp("operated"),
            operator_token=Secret(AUTOMATION_TOKEN),
            cricket_issuer=cognito.issuer,
            cricket_client_id=cognito.client_id,
        )
        async with (
            open_application(settings) as application,
            serving(build_app(replace(application, jobs=())), on_stopping=application.drain) as url,
            ClientBuilder().no_proxy().build() as client,
        ):
            operators = application.operators
            yield OperatedInstance(
                url,
                application,
                client,
                cognito,
                await operators.add("vera", Role.VIEWER, None),
                await operators.add("ada", Role.OPERATOR, None),
            )


def expect_error(response: ApiResponse, status: int, code: str) -> None:
    assert (response.status, code in response.body.decode().lower()) == (status, True), response


def test_the_list_of_routes_is_complete(instance: OperatedInstance) -> None:
    """It names every endpoint that declares the security scheme `operator`."""
    declared = {
        (endpoint.method, f"{api.prefix}{endpoint.path}".count("/"), api.name)
        for api in instance.application.apis
        for endpoint in api.endpoints
        if "operator" in endpoint.security
    }
    listed = {
        (method, path.partition("?")[0].count("/"), path.split("/")[1]) for method, path in ROUTES
    }
    assert listed == declared
    count = sum(
        "operator" in endpoint.security
        for api in instance.application.apis
        for endpoint in api.endpoints
    )
    assert len(ROUTES) == count


async def test_the_openapi_document_names_the_token_and_the_refusal_of_viewers(
    instance: OperatedInstance,
) -> None:
    document = (await instance.send("GET", "/openapi.json")).json
    create = document["paths"]["/devices/api-keys"]["post"]
    (scheme,) = [name for entry in create["security"] for name in entry]
    assert document["components"]["securitySchemes"][scheme]["scheme"] == "bearer"
    assert "read_only_operator" in str(create["responses"]["403"])


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_admin_route_refuses_everybody_but_operators(
    instance: OperatedInstance, method: str, path: str
) -> None:
    """Without a token, with a wrong one, and with the headers and keys of earlier versions."""
    before = await instance.number_of_changes()
    assert (await instance.send(method, path)).status == 401
    for wrong in (instance.operator[:-1], instance.viewer[:-2] + "zz", AUTOMATION_TOKEN[:-1], "x"):
        assert (await instance.send_as(wrong, method, path)).status == 401
    for header in ("X-Admin-Key", "X-Admin-API-Key", "X-API-Key"):
        assert (await instance.send(method, path, **{header: instance.operator})).status == 401
    basic = await instance.send(method, path, Authorization=f"Basic {instance.operator}")
    assert basic.status == 401
    assert await instance.number_of_changes() == before


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_viewer_cannot_make_changes(
    instance: OperatedInstance, method: str, path: str
) -> None:
    before = await instance.number_of_changes()
    refused = await instance.send_as(instance.viewer, method, path)
    expect_error(refused, 403, "read_only_operator")
    assert await instance.number_of_changes() == before


@pytest.mark.parametrize(
    ("method", "path"), [route for route in READS if not route[1].endswith("/stream")]
)
async def test_a_viewer_reads_and_reading_is_not_a_change(
    instance: OperatedInstance, method: str, path: str
) -> None:
    before = await instance.number_of_changes()
    for token in (instance.viewer, instance.operator, AUTOMATION_TOKEN):
        assert (await instance.send_as(token, method, path)).status in {200, 404}
    assert (await instance.send_as(instance.viewer, "HEAD", path)).status in {200, 404}
    assert await instance.number_of_changes() == before


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_every_change_is_audited_with_operator_target_request_and_outcome(
    instance: OperatedInstance, method: str, path: str
) -> None:
    for name, token in (("ada", instance.operator), ("automation", AUTOMATION_TOKEN)):
        request_id = str(uuid.uuid4())
        response = await instance.send_as(token, method, path, **{"X-Request-Id": request_id})
        assert response.status not in {401, 403, 500}
        record = await instance.change_of(request_id)
        assert (record.operator, record.target) == (name, path)
        assert record.action.startswith(f"{method} /{path.split('/')[1]}/")
        outcome = "succeeded" if response.status < 400 else "failed"
        assert (record.outcome, record.error is None) == (outcome, response.status < 400)


async def test_the_audit_trail_names_the_whole_target(instance: OperatedInstance) -> None:
    request_id, path = str(uuid.uuid4()), "/devices/api-keys/a%3Fb%0Ac"
    await instance.send_as(instance.operator, "DELETE", path, **{"X-Request-Id": request_id})
    assert (await instance.change_of(request_id)).target == "/devices/api-keys/a?b\nc"


async def test_a_created_secret_is_not_in_the_audit_trail(instance: OperatedInstance) -> None:
    created = await instance.send_as(instance.operator, "POST", "/devices/api-keys")
    assert created.status == 201
    records, _ = await instance.application.operators.changes(None, 1000)
    for secret in (created.json["api_key"], instance.operator, AUTOMATION_TOKEN):
        assert secret not in str(records)


async def test_cricket_tells_json_web_tokens_from_operator_tokens(
    instance: OperatedInstance,
) -> None:
    """A user with the group `admin` is audited too; other users are refused."""
    path, request_id = "/cricket/admin/sync", str(uuid.uuid4())
    admin = instance.cognito.admin_token("olga")
    response = await instance.send_as(admin, "POST", path, **{"X-Request-Id": request_id})
    assert response.status not in {401, 403}
    assert (await instance.change_of(request_id)).operator == "cricket:olga"
    user = await instance.send_as(instance.cognito.user_token("ana"), "POST", path)
    expect_error(user, 403, "not_an_operator")
    forged = await instance.send_as(f"{admin[:-4]}AAAA", "POST", path)
    expect_error(forged, 401, "invalid_token")
    for garbage in ("a.b.c", ".", "..", "a.b", f"{instance.operator}."):
        assert (await instance.send_as(garbage, "POST", path)).status == 401


async def test_an_operator_token_is_no_credential_of_a_user(instance: OperatedInstance) -> None:
    """Neither in cricket nor in the scoreboard, and a player's token is none of an operator."""
    for path in ("/cricket/matches/live", "/scoreboard/api/v1/scores/me"):
        assert (await instance.send_as(instance.operator, "GET", path)).status == 401


async def test_a_removed_operator_is_refused_at_once(instance: OperatedInstance) -> None:
    token = await instance.application.operators.add("eve", Role.OPERATOR, None)
    assert (await instance.send_as(token, "GET", "/devices/devices")).status == 200
    await instance.application.operators.remove("eve")
    assert (await instance.send_as(token, "GET", "/devices/devices")).status == 401
