"""A client for the control API of the Strava simulator."""

from dataclasses import asdict, dataclass
from typing import Any

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError

from tally.errors import Unavailable
from tally.sim.athletes.training import TrainingSession
from tally.sim.page_protection import CONTROL_HEADERS


@dataclass(frozen=True, slots=True)
class StravaControlClient:
    """Signs athletes up and manages their activities; raises Unavailable on failure."""

    client: Client
    url: str

    async def sign_up(self, firstname: str, lastname: str) -> int:
        created = await self._send(
            "POST", "athletes", {"firstname": firstname, "lastname": lastname}
        )
        return int(created["id"])

    async def upload(self, athlete_id: int, session: TrainingSession, start: int) -> int:
        created = await self._send(
            "POST", "activities", asdict(session) | {"athlete_id": athlete_id, "start": start}
        )
        return int(created["id"])

    async def edit(self, activity_id: int, **fields: str | bool) -> None:
        await self._send("PATCH", f"activities/{activity_id}", fields)

    async def delete(self, activity_id: int) -> None:
        await self._send("DELETE", f"activities/{activity_id}", None)

    async def state(self) -> Any:
        return await self._send("GET", "state", None)

    async def _send(self, method: str, path: str, body: object) -> Any:
        request = self.client.request(method, f"{self.url}/_sim/{path}").headers(CONTROL_HEADERS)
        if body is not None:
            request = request.body_json(body)
        try:
            response = await request.build().send()
            if response.status >= 400:
                raise Unavailable(
                    f"The Strava simulator returned {response.status} for {method} {path}"
                )
            return None if response.status == 204 else await response.json()
        except PyreqwestError as error:
            raise Unavailable(
                f"Cannot reach the Strava simulator at {self.url}: {type(error).__name__}"
            ) from error
