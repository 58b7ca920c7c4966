"""Virtual athletes on the real collect server: milestones match the recorded activities."""

import random
from pathlib import Path
from typing import Any

import pytest

from tally.collect.model.workouts import SPORT_FAMILIES
from tally.kit.clock import ManualClock
from tally.sim.athletes.athlete import VirtualAthlete
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.fleet import AthleteFleet
from tally.sim.athletes.strava_client import StravaControlClient
from tests.collect.server_harness import CollectServer, open_server
from tests.sim.test_athletes import run_until


async def find_milestone(server: CollectServer, athlete: VirtualAthlete) -> Any:
    browser = server.browser()
    await server.sign_in(browser, athlete.profile.name)
    (milestone,) = (await browser.get("/milestones")).json["items"]
    return milestone


def expected_progress(server: CollectServer, athlete: VirtualAthlete, milestone: Any) -> float:
    """The progress of a milestone computed from the athlete's Strava activities."""
    counted = [
        activity
        for activity in server.strava.activities.values()
        if activity.athlete_id == athlete.athlete_id
        and SPORT_FAMILIES.get(activity.sport_type) == milestone["sport"]
    ]
    by_distance = milestone["metric"] == "DISTANCE_METERS"
    return sum(
        activity.distance if by_distance else activity.total_elevation_gain for activity in counted
    )


async def test_milestones_match_a_week_of_training(tmp_path: Path) -> None:
    """Athletes join through the pages, and each milestone matches its owner's activities."""
    clock = ManualClock()
    async with open_server(tmp_path) as server:
        collect = CollectClient(server.client, server.url)
        fleet = AthleteFleet(
            StravaControlClient(server.client, server.strava.url), clock, random.Random(7), collect
        )
        await fleet.sign_up(4)
        assert [athlete.stats.last_event for athlete in fleet.athletes] == ["joined"] * 4
        await run_until(fleet, clock, 7 * 24)
        await server.process_inbox()
        assert len(server.strava.activities) > 4
        for athlete in fleet.athletes:
            milestone = await find_milestone(server, athlete)
            assert milestone["progress"] == pytest.approx(
                expected_progress(server, athlete, milestone)
            )
            assert milestone["sport"] == athlete.profile.favourite.family
