"""The Strava simulator from the athletes' side: they sign up, upload, edit and delete through its control API."""

from dataclasses import asdict, dataclass
from typing import Any

from pyreqwest.client import Client
from pyreqwest.exceptions import PyreqwestError

from tally.errors import Unavailable
from tally.sim.athletes.training import TrainingSession


@dataclass(frozen=True, slots=True)
class StravaControlClient:
    """Anyone's account at the simulator at `url`; Unavailable says what went wrong."""

    client: Client
    url: str

    async def sign_up(self, firstname: str, lastname: str) -> int:
        made = await self._send("POST", "athletes", {"firstname": firstname, "lastname": lastname})
        return int(made["id"])

    async def upload(self, athlete_id: int, effort: TrainingSession, start: int) -> int:
        made = await self._send(
            "POST", "activities", asdict(effort) | {"athlete_id": athlete_id, "start": start}
        )
        return int(made["id"])

    async def edit(self, activity_id: int, **fields: str | bool) -> None:
        await self._send("PATCH", f"activities/{activity_id}", fields)

    async def delete(self, activity_id: int) -> None:
        await self._send("DELETE", f"activities/{activity_id}", None)

    async def state(self) -> Any:
        return await self._send("GET", "state", None)

    async def _send(self, method: str, path: str, body: object) -> Any:
        building = self.client.request(method, f"{self.url}/_sim/{path}")
        if body is not None:
            building = building.body_json(body)
        try:
            response = await building.build().send()
            if response.status >= 400:
                raise Unavailable(
                    f"{method} {path} got {response.status} from the Strava simulator"
                )
            return None if response.status == 204 else await response.json()
        except PyreqwestError as error:
            raise Unavailable(
                f"The Strava simulator at {self.url} does not answer: {type(error).__name__}"
            ) from error
