"""Joins a collect server through a browser: login, Strava link, model and milestone."""

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
    """A milestone to create."""

    sport: str
    metric: str
    target: int


@dataclass(frozen=True, slots=True)
class CollectClient:
    """The collect backend at `url`, for example http://127.0.0.1:8080/collect."""

    client: Client
    url: str

    async def join(self, profile: AthleteProfile, athlete_id: int, goal: AthleteGoal) -> None:
        """Create an account, link Strava and set a milestone; Unavailable names the failed step."""
        browser = Browser(self.client)
        await self._log_in(browser, profile)
        await self._link_strava(browser, athlete_id)
        await self._create_milestone(browser, goal)

    async def _log_in(self, browser: Browser, profile: AthleteProfile) -> None:
        response = await browser.get(f"{self.url}/auth/login")
        authorize = with_query(redirect_target(response, self.url), {"login_hint": profile.name})
        callback = redirect_target(await browser.get(authorize), authorize)
        if urlsplit(callback).path.endswith("/login"):
            response = await browser.submit(
                callback.partition("?")[0], query_parameters(callback) | {"name": profile.name}
            )
            callback = redirect_target(response, callback)
        _expect_success(await browser.get(callback), "Login callback")

    async def _link_strava(self, browser: Browser, athlete_id: int) -> None:
        authorize = redirect_target(await browser.get(f"{self.url}/strava/connect"), self.url)
        parameters = query_parameters(authorize)
        granted = {f"grant:{scope}": "on" for scope in parameters.get("scope", "").split(",")}
        response = await browser.submit(
            authorize.partition("?")[0], parameters | granted | {"athlete": str(athlete_id)}
        )
        callback = redirect_target(response, authorize)
        _expect_success(await browser.get(callback), "Strava callback")

    async def _create_milestone(self, browser: Browser, goal: AthleteGoal) -> None:
        response = await browser.get(f"{self.url}/models")
        _expect_success(response, "Model list")
        models = (await response.json())["items"]
        if not models:
            raise Unavailable("The collect server has no models")
        # Deterministic: the same sport always selects the same model.
        model = models[sum(goal.sport.encode()) % len(models)]
        body: dict[str, Any] = {
            "modelId": model["modelId"],
            "sport": goal.sport,
            "metric": goal.metric,
            "totalTarget": goal.target,
        }
        _expect_success(await browser.post(f"{self.url}/milestones", body), "Milestone creation")


def _expect_success(response: Response, step: str) -> None:
    if response.status >= 400:
        raise Unavailable(f"{step} failed with status {response.status}")
