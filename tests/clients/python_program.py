"""Calls every backend with the client that openapi-python-client generates.

Runs as a program beside the generated package; the variables TALLY_URL and TALLY_CREDENTIALS name
the server. Prints the number of calls.
"""

import json
import os
import sys
import time
import uuid
from http import HTTPStatus
from typing import Any, TypeVar

from tally_client import AuthenticatedClient, Client
from tally_client.api.collect import (
    collect_create_milestone,
    collect_get_account,
    collect_get_model,
    collect_list_models,
)
from tally_client.api.cricket import (
    cricket_get_display,
    cricket_get_match,
    cricket_list_live_matches,
    cricket_run_sync,
)
from tally_client.api.devices import (
    devices_create_key,
    devices_get_device,
    devices_get_latest_reading,
    devices_list_devices,
    devices_register_board,
    devices_send_readings,
)
from tally_client.api.scoreboard import (
    scoreboard_complete_action,
    scoreboard_get_leaderboard,
    scoreboard_login,
    scoreboard_register,
    scoreboard_update_score,
)
from tally_client.api.tally import check_health, check_readiness
from tally_client.models import (
    ActionTokenResponse,
    CompleteActionRequest,
    ConfirmationBody,
    CreatedKeyBody,
    DataBody,
    DeviceBody,
    DevicePage,
    DisplayBody,
    LeaderboardResponse,
    Liveness,
    LoginRequest,
    LoginResponse,
    MatchBody,
    MatchPage,
    MeBody,
    Metric,
    MilestoneBody,
    ModelList,
    NewKeyBody,
    NewMilestoneBody,
    ProblemBody,
    Readiness,
    ReadingBody,
    ReceiptBody,
    RegisterRequest,
    RegistrationBody,
    ScoreUpdateResponse,
    Sport,
    SyncRequest,
    SyncRequestWhat,
    UpdateScoreRequest,
)
from tally_client.types import Response

URL = os.environ["TALLY_URL"]
CREDENTIALS: dict[str, str] = json.loads(os.environ["TALLY_CREDENTIALS"])
HARDWARE_ID = "AA:BB:CC:DD:EE:01"

Kind = TypeVar("Kind")


class Calls:
    """Counts calls, and checks the status and type of each response."""

    def __init__(self) -> None:
        self.count = 0

    def check(self, response: Response[Any], kind: type[Kind], status: int = 200) -> Kind:
        self.count += 1
        assert response.status_code == HTTPStatus(status), response.content
        assert isinstance(response.parsed, kind), response
        assert response.headers["x-request-id"]
        return response.parsed

    def refuse(self, response: Response[Any], status: int, code: str) -> None:
        problem = self.check(response, ProblemBody, status)
        assert (problem.code, problem.type_) == (code, f"/docs/errors#{code}")
        assert problem.request_id == response.headers["x-request-id"]


def bearer(credential: str) -> AuthenticatedClient:
    return AuthenticatedClient(base_url=URL, token=credential)


def header(name: str, credential: str) -> AuthenticatedClient:
    return AuthenticatedClient(base_url=URL, token=credential, prefix="", auth_header_name=name)


def use_instance(calls: Calls) -> None:
    client = Client(base_url=URL)
    assert calls.check(check_health.sync_detailed(client=client), Liveness).status == "ok"
    calls.check(check_readiness.sync_detailed(client=client), Readiness)


def use_devices(calls: Calls) -> None:
    operator = bearer(CREDENTIALS["operator"])
    body = NewKeyBody(description="generated client")
    key = calls.check(
        devices_create_key.sync_detailed(client=operator, body=body), CreatedKeyBody, 201
    )
    board = header("X-API-Key", key.api_key)
    boot_id = str(uuid.uuid4())
    version = {"hardware_id": HARDWARE_ID, "boot_id": boot_id, "firmware_version": "1.0.16"}
    registration = RegistrationBody.from_dict(
        version | {"capabilities": {"sensors": ["bme280"], "features": {}}}
    )
    calls.check(
        devices_register_board.sync_detailed(client=board, body=registration), ConfirmationBody
    )
    now = int(time.time()) * 1000
    reading = {
        "batch_id": f"{HARDWARE_ID}_{boot_id}_{now - 600_000}_{now}",
        "timestamp_ms": now,
        "sensors": {"bme280_temp_c": 22.5},
        "sensor_status": {"bme280": "ok"},
    }
    data = DataBody.from_dict(version | {"readings": [reading]})
    calls.check(devices_send_readings.sync_detailed(client=board, body=data), ReceiptBody)
    calls.check(devices_list_devices.sync_detailed(client=operator, limit=5), DevicePage)
    device = calls.check(devices_get_device.sync_detailed(HARDWARE_ID, client=operator), DeviceBody)
    latest = calls.check(
        devices_get_latest_reading.sync_detailed(device.hardware_id, client=operator), ReadingBody
    )
    assert latest.sensors.additional_properties == {"bme280_temp_c": 22.5}
    unknown = devices_get_device.sync_detailed("AA:BB:CC:DD:EE:02", client=operator)
    calls.refuse(unknown, 404, "device_not_found")


def use_scoreboard(calls: Calls) -> None:
    anyone = Client(base_url=URL)
    username = f"python_{uuid.uuid4().hex[:12]}"
    account = RegisterRequest(
        username=username, email=f"{username}@example.com", password="violet harbour 9"
    )
    login = calls.check(
        scoreboard_register.sync_detailed(client=anyone, body=account), LoginResponse, 201
    )
    server = header("X-Internal-API-Key", CREDENTIALS["game_server"])
    action = CompleteActionRequest(
        action_id=str(uuid.uuid4()), user_id=login.user.user_id, max_score=60
    )
    completed = calls.check(
        scoreboard_complete_action.sync_detailed(client=server, body=action),
        ActionTokenResponse,
        201,
    )
    update = UpdateScoreRequest(action_token=completed.action_token, score_delta=60)
    player = bearer(login.tokens.access_token)
    score = calls.check(
        scoreboard_update_score.sync_detailed(client=player, body=update), ScoreUpdateResponse
    )
    assert score.new_score == 60
    response = scoreboard_get_leaderboard.sync_detailed(client=anyone, limit=100)
    calls.check(response, LeaderboardResponse)
    assert int(response.headers["ratelimit-limit"]) > 0
    wrong = LoginRequest(login=username, password="not the password")
    refused = scoreboard_login.sync_detailed(client=anyone, body=wrong)
    calls.refuse(refused, 401, "invalid_credentials")


def use_cricket(calls: Calls) -> None:
    user = bearer(CREDENTIALS["cricket_user"])
    page = calls.check(cricket_list_live_matches.sync_detailed(client=user), MatchPage)
    for match in page.items[:1]:
        calls.check(cricket_get_match.sync_detailed(match.match_id, client=user), MatchBody)
        calls.check(cricket_get_display.sync_detailed(match.match_id, client=user), DisplayBody)
    missing = cricket_get_match.sync_detailed("no-such-match", client=user)
    calls.refuse(missing, 404, "match_not_found")
    body = SyncRequest(what=SyncRequestWhat.LEAGUES)
    calls.refuse(cricket_run_sync.sync_detailed(client=user, body=body), 403, "not_an_operator")


def use_collect(calls: Calls) -> None:
    anyone = Client(base_url=URL)
    model = calls.check(collect_list_models.sync_detailed(client=anyone), ModelList).items[0]
    calls.refuse(
        collect_get_model.sync_detailed("no-such-model", client=anyone), 404, "model_not_found"
    )
    user = AuthenticatedClient(
        base_url=URL,
        token=f"cc_session={CREDENTIALS['collect_session']}",
        prefix="",
        auth_header_name="Cookie",
        headers={"X-Requested-With": "generated client"},
    )
    calls.check(collect_get_account.sync_detailed(client=user), MeBody)
    body = NewMilestoneBody(
        model_id=model.model_id,
        sport=Sport.RIDE,
        metric=Metric.DISTANCE_METERS,
        total_target=500_000,
    )
    calls.check(collect_create_milestone.sync_detailed(client=user, body=body), MilestoneBody, 201)


USES = {
    "collect": use_collect,
    "cricket": use_cricket,
    "devices": use_devices,
    "instance": use_instance,
    "scoreboard": use_scoreboard,
}


def main() -> None:
    calls = Calls()
    for name in sys.argv[1:]:
        USES[name](calls)
    sys.stdout.write(f"{calls.count}\n")


if __name__ == "__main__":
    main()
