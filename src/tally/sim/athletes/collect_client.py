"""How a made-up person joins a collect server: logs in, links Strava, chooses a model and a goal, as with a browser."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyreqwest.client import Client
from pyreqwest.response import Response

from tally.errors import Unavailable
from tally.sim.athletes.training import AthleteProfile
from tally.sim.browser import Browser, query_parameters, redirect_target
from tally.sim.request_parsing import with_query


@dataclass(frozen=True, slots=True)
class AthleteGoal:
    """What somebody sets out to do, and with which model."""

    sport: str
    metric: str
    target: int


@dataclass(frozen=True, slots=True)
class CollectClient:
    """The server at `url`, such as http://127.0.0.1:8000/collect."""

    client: Client
    url: str

    async def join(self, character: AthleteProfile, athlete_id: int, goal: AthleteGoal) -> None:
        """From nobody to somebody with a linked account and a milestone; Unavailable says at which step it ended."""
        visitor = Browser(self.client)
        await self._log_in(visitor, character)
        await self._link_strava(visitor, athlete_id)
        await self._set_out(visitor, goal)

    async def _log_in(self, visitor: Browser, character: AthleteProfile) -> None:
        leaving = await visitor.get(f"{self.url}/auth/login")
        authorize = with_query(redirect_target(leaving, self.url), {"login_hint": character.name})
        here = redirect_target(await visitor.get(authorize), authorize)
        if urlsplit(here).path.endswith("/login"):
            answered = await visitor.submit(
                here.partition("?")[0], query_parameters(here) | {"name": character.name}
            )
            here = redirect_target(answered, here)
        _expect(await visitor.get(here), "the way back from the login")

    async def _link_strava(self, visitor: Browser, athlete_id: int) -> None:
        authorize = redirect_target(await visitor.get(f"{self.url}/strava/connect"), self.url)
        asked = query_parameters(authorize)
        ticked = {f"grant:{scope}": "on" for scope in asked.get("scope", "").split(",")}
        answered = await visitor.submit(
            authorize.partition("?")[0], asked | ticked | {"athlete": str(athlete_id)}
        )
        here = redirect_target(answered, authorize)
        _expect(await visitor.get(here), "the way back from Strava")

    async def _set_out(self, visitor: Browser, goal: AthleteGoal) -> None:
        listed = await visitor.get(f"{self.url}/models")
        _expect(listed, "the list of models")
        models = (await listed.json())["models"]
        if not models:
            raise Unavailable("The collect server has no models to choose from")
        # Somebody's choice, and the same one every time.
        chosen = models[sum(goal.sport.encode()) % len(models)]
        wanted: dict[str, Any] = {
            "modelId": chosen["modelId"],
            "sport": goal.sport,
            "metric": goal.metric,
            "totalTarget": goal.target,
        }
        _expect(await visitor.post(f"{self.url}/milestones", wanted), "the milestone")


def _expect(response: Response, what: str) -> None:
    if response.status >= 400:
        raise Unavailable(f"{what} was refused with {response.status}")
