"""Made-up athletes on the real collect server: what they do is what they have earned."""

import random
from pathlib import Path
from typing import Any

import pytest

from tally.collect.model.rules import SPORT_FAMILIES
from tally.kit.clock import ManualClock
from tally.sim.athletes.athlete import VirtualAthlete
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.fleet import AthleteFleet
from tally.sim.athletes.strava_client import StravaControlClient
from tests.collect.server_harness import CollectServer, open_server
from tests.sim.test_athletes import live_through


async def milestone_of(server: CollectServer, athlete: VirtualAthlete) -> Any:
    browser = server.browser()
    await server.sign_in(browser, athlete.profile.name)
    (milestone,) = (await browser.get("/milestones")).json["milestones"]
    return milestone


def done(server: CollectServer, athlete: VirtualAthlete, milestone: Any) -> float:
    """What counts for the milestone, by what Strava has of the athlete."""
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


async def test_a_week_of_training_is_a_week_of_progress(tmp_path: Path) -> None:
    """Each joins by the pages, and each milestone stands where the activities of its owner put it."""
    clock = ManualClock()
    async with open_server(tmp_path) as server:
        collect = CollectClient(server.client, server.url)
        fleet = AthleteFleet(
            StravaControlClient(server.client, server.strava.url), clock, random.Random(7), collect
        )
        await fleet.sign_up(4)
        assert [athlete.stats.last_event for athlete in fleet.athletes] == ["joined"] * 4
        await live_through(fleet, clock, 7 * 24)
        await server.process_inbox()
        assert len(server.strava.activities) > 4
        for athlete in fleet.athletes:
            milestone = await milestone_of(server, athlete)
            assert milestone["progress"] == pytest.approx(done(server, athlete, milestone))
            assert milestone["sport"] == athlete.profile.favourite.family
