"""People with phones who follow whatever is live, and one more phone: that of whoever looks at the console."""

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

FANS: Final = 24
LOOK_SECONDS: Final = 15.0
MAILBOX: Final = "demo"
VISITOR: Final = "visitor"
# Half of them have a system that listens to channels.
SYSTEMS: Final = ("17.4", "18.1")

_log = logs.logger()


@dataclass(slots=True)
class DemoPhones:
    """The phones of the demo; `visitor` is there once they live."""

    apns: ApnsSimulator
    cognito: CognitoSimulator
    clock: Clock
    rng: random.Random
    fleet: PhoneFleet | None = None
    visitor: VirtualPhone | None = field(default=None)

    async def live(self, client: Client, url: str) -> None:
        """For ever: launch, and follow what goes live."""
        apple = LocalPushService(self.apns.devices, MAILBOX)

        def phone(user_id: str, number: int) -> VirtualPhone:
            api = CricketClient(client, url, self._token_of(user_id))
            return VirtualPhone(
                f"phone-of-{user_id}", api, apple, self.clock, os_version=SYSTEMS[number % 2]
            )

        # Other people at every start: a phone that comes back without its memory is a new phone.
        group = self.clock.seconds()
        fans = [phone(f"fan-{group}-{number}", number) for number in range(FANS)]
        self.visitor = phone(f"{VISITOR}-{group}", 0)
        self.fleet = PhoneFleet(
            [*fans, self.visitor],
            apple,
            self.clock,
            self.rng,
            PhoneBehaviour(interval=LOOK_SECONDS),
        )
        async with self.fleet.living([]):
            while True:
                await self.clock.sleep(LOOK_SECONDS / 3)
                await self._look(fans)

    async def _look(self, fans: list[VirtualPhone]) -> None:
        try:
            live = await fans[0].api.live()
            for fan in fans:
                app = fan.app
                if live and app is not None and not set(live) & set(app.follows.followed):
                    await app.follows.follow(self.rng.choice(live))
        except TallyError as error:
            _log.warning(
                "The crowd of the demo does not see the matches", action="demo", error=error
            )

    def _token_of(self, user_id: str) -> Callable[[], Awaitable[str]]:
        async def token() -> str:
            return self.cognito.user_token(user_id)

        return token
