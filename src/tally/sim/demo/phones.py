"""The phones of the demo: fans who follow live matches, and the phone shown in the console."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from pyreqwest.client import Client

from tally.errors import TallyError
from tally.kit import logs
from tally.kit.clock import Clock
from tally.sim.apns.simulator import ApnsSimulator
from tally.sim.oidc.cognito import CognitoSimulator
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.fleet import PhoneBehaviour, PhoneFleet
from tally.sim.phones.phone import VirtualPhone
from tally.sim.phones.push_services import LocalPushService

FAN_COUNT: Final = 24
BEHAVIOUR_SECONDS: Final = 15.0
MAILBOX: Final = "demo"
VISITOR: Final = "visitor"
# Half of the phones support broadcast channels.
OS_VERSIONS: Final = ("17.4", "18.1")

_log = logs.logger()


@dataclass(slots=True)
class DemoPhones:
    """The phone fleet; `visitor` is the console's phone, set by `run`."""

    apns: ApnsSimulator
    cognito: CognitoSimulator
    clock: Clock
    rng: random.Random
    fleet: PhoneFleet | None = None
    visitor: VirtualPhone | None = field(default=None)

    async def run(self, client: Client, url: str) -> None:
        """Launch the phones and follow live matches until cancelled."""
        push_service = LocalPushService(self.apns.devices, MAILBOX)

        def phone(user_id: str, number: int) -> VirtualPhone:
            api = CricketClient(client, url, self._token_source(user_id))
            version = OS_VERSIONS[number % 2]
            return VirtualPhone(
                f"phone-of-{user_id}", api, push_service, self.clock, os_version=version
            )

        # New users at every start, because phones do not persist their app data.
        group = self.clock.seconds()
        fans = [phone(f"fan-{group}-{number}", number) for number in range(FAN_COUNT)]
        self.visitor = phone(f"{VISITOR}-{group}", 0)
        behaviour = PhoneBehaviour(interval=BEHAVIOUR_SECONDS)
        self.fleet = PhoneFleet(
            [*fans, self.visitor], push_service, self.clock, self.rng, behaviour
        )
        async with self.fleet.running([]):
            while True:
                await self.clock.sleep(BEHAVIOUR_SECONDS / 3)
                await follow_live_matches(fans, self.rng)

    def _token_source(self, user_id: str) -> Callable[[], Awaitable[str]]:
        async def token() -> str:
            return self.cognito.user_token(user_id)

        return token


async def follow_live_matches(fans: list[VirtualPhone], rng: random.Random) -> None:
    """Let each phone that is online follow a live match, if it follows none."""
    online = [fan for fan in fans if fan.api.is_online]
    try:
        live = await online[0].api.live_matches() if online else []
        for fan in online:
            app = fan.app
            if live and app is not None and not set(live) & set(app.follows.followed):
                await app.follows.follow(rng.choice(live))
    except TallyError as error:
        _log.warning("Live matches request failed", action="live_matches_failed", error=error)
