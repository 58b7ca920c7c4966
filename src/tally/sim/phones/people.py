"""The owners of phones: who they are to the server, by tokens of a simulated issuer."""

from dataclasses import dataclass
from typing import Final

import msgspec
from pyreqwest.client import Client

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.fetch import fetch

WHO: Final = "The issuer"
# Tokens are good for an hour.
KEPT_SECONDS: Final = 50 * 60


class _Made(msgspec.Struct, frozen=True):
    token: str


@dataclass(slots=True)
class Owner:
    """A person with an account.

    `issuer` is the address of the simulator, such as http://127.0.0.1:8102.
    """

    client: Client
    issuer: str
    user_id: str
    clock: Clock
    client_id: str | None = None
    _token: str = ""
    _until: float = 0.0

    async def token(self) -> str:
        """A token that holds, asked for again shortly before the last one is over."""
        if self.clock.monotonic() >= self._until:
            request = self.client.post(f"{self.issuer}/_sim/tokens")
            answer = await fetch(
                request.body_json({"sub": self.user_id, "client_id": self.client_id}), WHO
            )
            if answer.status != 200:
                raise Unavailable(f"{WHO} makes no token: {answer.status}")
            self._token, self._until = (
                answer.decode(_Made, WHO).token,
                self.clock.monotonic() + KEPT_SECONDS,
            )
        return self._token
