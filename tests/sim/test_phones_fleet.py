"""Many phones at once, through real sockets: deliveries from a push service elsewhere, and the command that runs them."""

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
from tally.sim.command_line import stats_line
from tally.sim.commands import sim
from tally.sim.fault_injection import simulator_app
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.cricket_client import CricketClient, PhoneOwner
from tally.sim.phones.display import phone_rows
from tally.sim.phones.fleet import PhoneBehaviour, PhoneFleet
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import RemotePushService
from tests.sim.stadium import AT_ONCE, Stadium

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


class World:
    """A server, a push service, an issuer, and a fleet of phones that know them by their addresses alone."""

    def __init__(
        self, stadium: Stadium, apns: ApnsSimulator, gateway: ApnsGateway, fleet: PhoneFleet
    ) -> None:
        self.stadium, self.apns, self.gateway, self.fleet = stadium, apns, gateway, fleet

    async def start_all(self, match: str) -> None:
        """What the server would do when a match goes live: push a start to each phone."""
        alert = payloads.Alert("Live now", "")
        payload = payloads.start_payload(
            timestamp=1,
            content={},
            attributes_type="M",
            attributes={"matchId": match, "teamId": "neutral"},
            alert=alert,
        )
        for body in self.stadium.of("start token"):
            verdict = await self.gateway.send(Push(token=body["pushToStartToken"], payload=payload))
            assert verdict.is_delivered


@asynccontextmanager
async def world(directory: Path, count: int, behaviour: PhoneBehaviour) -> AsyncIterator[World]:
    clock, stadium = SystemClock(), Stadium()
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
            apple = RemotePushService(client, apns.control_url, "a fleet".replace(" ", "-"))
            phones = []
            for number in range(count):
                owner = PhoneOwner(client, cognito.url, f"fan-{number}", clock)
                api = CricketClient(client, f"{url}/cricket", owner.token)
                phones.append(
                    VirtualPhone(f"phone-{number}", api, apple, clock, retry_policy=AT_ONCE)
                )
            yield World(
                stadium,
                apns,
                gateway,
                PhoneFleet(phones, apple, clock, random.Random(1), behaviour),
            )


async def test_every_phone_of_a_fleet_shows_what_is_pushed(tmp_path: Path) -> None:
    """Registered, following, started, handed in, updated: all over HTTP, with a push service in between."""
    async with world(tmp_path, 8, CALM) as there, there.fleet.running(["7"]):
        await there.stadium.until(8, "follow")
        await there.start_all("7")
        await there.stadium.until(8, "update token")
        assert {body["matchId"] for body in there.stadium.of("follow")} == {"7"}
        update = payloads.update_payload(
            timestamp=9, content={"lines": {"lockScreen": "IND 120/3"}}
        )
        for body in there.stadium.of("update token"):
            assert (
                await there.gateway.send(Push(token=body["updateToken"], payload=update))
            ).is_delivered
        async with asyncio.timeout(60):
            await there.fleet.wait_until(
                lambda: {activity.timestamp for activity in there.fleet.running_activities()} == {9}
            )
        rows = dict(phone_rows(there.fleet))
        assert rows["Latest state"] == "IND 120/3 (on 8 of 8)"
        assert rows["Phones"] == "8 (8 launched, 8 open, 0 offline)"
        assert rows["Last error"] == "none"
        assert "pushes received: 16" in stats_line(phone_rows(there.fleet), 1.0)


@pytest.mark.soak
async def test_restless_owners_end_up_with_the_newest_token_at_the_server(tmp_path: Path) -> None:
    """Apps quit, tokens rotate, networks go: what the server was told last is what the activity has."""
    async with world(tmp_path, 5, RESTLESS) as there:
        async with there.fleet.running(["7"]):
            await there.stadium.until(5, "follow")
            await there.start_all("7")
            await there.stadium.until(40, "update token")
        for phone in there.fleet.phones:
            await phone.set_online(is_online=True)
            await phone.launch()
            told = [
                body["updateToken"]
                for body in there.stadium.of("update token")
                if body["deviceId"] == phone.device_id
            ]
            for activity in phone.activity_kit.running():
                assert told[-1] == activity.token
        assert there.fleet.last_error in {"", "The phone is offline"}


async def test_a_push_service_that_is_gone_is_told_in_words() -> None:
    async with ClientBuilder().timeout(timedelta(seconds=5)).build() as client:
        apple = RemotePushService(client, "http://127.0.0.1:9", "nobody")
        with pytest.raises(Unavailable, match="APNs simulator"):
            await apple.issue("phone", TokenKind.DEVICE)
        with pytest.raises(Unavailable, match="APNs simulator"):
            await anext(aiter(apple.deliveries()))


async def test_the_command_runs_phones_and_tells_how_they_did(tmp_path: Path) -> None:
    """`tally sim phones`, in a process of its own, follows what is live and ends with the sums."""
    async with (
        world(tmp_path, 0, CALM) as there,
        CognitoSimulator(SystemClock()).serving() as cognito,
    ):
        there.stadium.live["7"] = {"number": 1}
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
            there.stadium.url,
            "--issuer",
            cognito.url,
            "--apple",
            there.apns.control_url,
        )
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TALLY_")
        }
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, *where, env=environment, stdout=pipe
        )
        try:
            await there.stadium.until(3, "follow")
        finally:
            process.terminate()
        told = (await process.communicate())[0].decode()
        assert process.returncode == 0
        assert "phones: 3" in told
        assert {body["matchId"] for body in there.stadium.of("follow")} == {"7"}
        assert len({body["deviceId"] for body in there.stadium.of("device")}) == 3


def test_the_command_explains_a_wrong_address() -> None:
    result = CliRunner().invoke(sim, ["phones", "--url", "nowhere"])
    assert result.exit_code == 2
    assert "nowhere is not a server URL" in result.output
