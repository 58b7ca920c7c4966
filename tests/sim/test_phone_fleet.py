"""A fleet of phones over real sockets, and `tally sim phones`."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pyreqwest.client import ClientBuilder
from typer.testing import CliRunner

from tally.cricket.apns.gateway import ApnsGateway, open_apns
from tally.cricket.model import payloads
from tally.cricket.model.push import Push
from tally.errors import Unavailable
from tally.kit.clock import SystemClock
from tally.kit.metrics import Metrics
from tally.kit.server import serving
from tally.settings import Settings
from tally.sim.apns.devices import TokenKind
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.command_line import COGNITO_PORT, stats_line
from tally.sim.commands import sim
from tally.sim.fault_injection import simulator_app
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.cricket_client import CricketClient, PhoneOwner
from tally.sim.phones.display import phone_rows
from tally.sim.phones.fleet import PhoneBehaviour, PhoneFleet
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import RemotePushService
from tests.sim.phone_harness import IMMEDIATE_RETRIES, FakeCricketApi

CALM = PhoneBehaviour(
    quit_probability=0, offline_probability=0, dismiss_probability=0, rotate_probability=0
)
RESTLESS = PhoneBehaviour(
    interval=0.01,
    quit_probability=0.5,
    offline_probability=0.3,
    dismiss_probability=0.0,
    rotate_probability=0.5,
)


class FleetSite:
    """A server, an APNs simulator in another process and a fleet of phones."""

    def __init__(
        self, stadium: FakeCricketApi, apns: ApnsSimulator, gateway: ApnsGateway, fleet: PhoneFleet
    ) -> None:
        self.stadium, self.apns, self.gateway, self.fleet = stadium, apns, gateway, fleet

    async def start_all(self, match: str) -> None:
        """Send a push-to-start to every phone, like the server when a match goes live."""
        alert = payloads.Alert("Live now", "")
        payload = payloads.start_payload(
            timestamp=1,
            content={},
            attributes_type="M",
            attributes={"matchId": match, "teamId": "neutral"},
            alert=alert,
        )
        for body in self.stadium.calls_of("start token"):
            verdict = await self.gateway.send(Push(token=body["pushToStartToken"], payload=payload))
            assert verdict.is_delivered


@asynccontextmanager
async def run_site(
    directory: Path, count: int, behaviour: PhoneBehaviour
) -> AsyncIterator[FleetSite]:
    clock, stadium = SystemClock(), FakeCricketApi()
    app = simulator_app("stadium", stadium.routes(), stadium.faults, clock)
    async with (
        ApnsSimulator(clock).serving() as apns,
        serving(app) as url,
        CognitoSimulator(clock).serving() as cognito,
    ):
        stadium.url = url
        settings = apns.configure(Settings(), directory / "authority.pem")
        async with (
            open_apns(settings, clock, Metrics()) as gateway,
            ClientBuilder().build() as client,
        ):
            push_service = RemotePushService(client, apns.control_url, "a fleet".replace(" ", "-"))
            phones = []
            for number in range(count):
                owner = PhoneOwner(client, cognito.url, f"fan-{number}", clock)
                api = CricketClient(client, f"{url}/cricket", owner.token)
                phones.append(
                    VirtualPhone(
                        f"phone-{number}", api, push_service, clock, retry_policy=IMMEDIATE_RETRIES
                    )
                )
            yield FleetSite(
                stadium,
                apns,
                gateway,
                PhoneFleet(phones, push_service, clock, random.Random(1), behaviour),
            )


async def test_every_phone_shows_the_pushed_state(tmp_path: Path) -> None:
    """Registration, follow, start, token and update, all over HTTP."""
    async with run_site(tmp_path, 8, CALM) as site, site.fleet.running(["7"]):
        await site.stadium.wait_for_calls(8, "follow")
        await site.start_all("7")
        await site.stadium.wait_for_calls(8, "update token")
        assert {body["matchId"] for body in site.stadium.calls_of("follow")} == {"7"}
        update = payloads.update_payload(
            timestamp=9, content={"lines": {"lockScreen": "IND 120/3"}}
        )
        for body in site.stadium.calls_of("update token"):
            assert (
                await site.gateway.send(Push(token=body["updateToken"], payload=update))
            ).is_delivered
        async with asyncio.timeout(60):
            await site.fleet.wait_until(
                lambda: {activity.timestamp for activity in site.fleet.running_activities()} == {9}
            )
        rows = dict(phone_rows(site.fleet))
        assert rows["Latest state"] == "IND 120/3 (on 8 of 8)"
        assert rows["Phones"] == "8 (8 launched, 8 open, 0 offline)"
        assert rows["Last error"] == "none"
        assert "pushes received: 16" in stats_line(phone_rows(site.fleet), 1.0)


@pytest.mark.soak
async def test_server_has_the_newest_token_of_every_activity(tmp_path: Path) -> None:
    """Apps quit, tokens rotate and phones go offline."""
    async with run_site(tmp_path, 5, RESTLESS) as site:
        async with site.fleet.running(["7"]):
            await site.stadium.wait_for_calls(5, "follow")
            await site.start_all("7")
            await site.stadium.wait_for_calls(40, "update token")
        for phone in site.fleet.phones:
            await phone.set_online(is_online=True)
            await phone.launch()
            registered = [
                body["updateToken"]
                for body in site.stadium.calls_of("update token")
                if body["deviceId"] == phone.device_id
            ]
            for activity in phone.activity_kit.running():
                assert registered[-1] == activity.token
        assert site.fleet.last_error in {"", "The phone is offline"}


async def test_unreachable_push_service_is_named_in_the_error() -> None:
    async with ClientBuilder().timeout(timedelta(seconds=5)).build() as client:
        push_service = RemotePushService(client, "http://127.0.0.1:9", "nobody")
        with pytest.raises(Unavailable, match="APNs simulator"):
            await push_service.issue("phone", TokenKind.DEVICE)
        with pytest.raises(Unavailable, match="APNs simulator"):
            await anext(aiter(push_service.deliveries()))


async def test_command_runs_phones_and_prints_totals(tmp_path: Path) -> None:
    """`tally sim phones` follows the live matches."""
    async with (
        run_site(tmp_path, 0, CALM) as site,
        CognitoSimulator(SystemClock()).serving() as cognito,
    ):
        site.stadium.live["7"] = {"number": 1}
        words = (
            "-m",
            "tally.cli",
            "sim",
            "phones",
            "--count",
            "3",
            "--calm",
            "--seed",
            "1",
            "--seconds",
            "60",
        )
        where = (
            "--url",
            site.stadium.url,
            "--issuer",
            cognito.url,
            "--apple",
            site.apns.control_url,
        )
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, *where, env=environment, stdout=pipe
        )
        try:
            await site.stadium.wait_for_calls(3, "follow")
        finally:
            process.terminate()
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0
        assert "phones: 3" in output
        assert {body["matchId"] for body in site.stadium.calls_of("follow")} == {"7"}
        assert len({body["deviceId"] for body in site.stadium.calls_of("device")}) == 3


def test_command_rejects_an_invalid_url() -> None:
    result = CliRunner().invoke(sim, ["phones", "--url", "nowhere"])
    assert result.exit_code == 2
    assert "nowhere is not a server URL" in result.output


def test_phones_use_the_token_issuer_of_tally_up_by_default() -> None:
    """`tally up` serves the Cognito simulator on this port, and SportMonks on another."""
    result = CliRunner().invoke(sim, ["phones", "--help"], env={"COLUMNS": "200"})
    assert f"http://127.0.0.1:{COGNITO_PORT}" in result.output
