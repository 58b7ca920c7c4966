"""Virtual athletes train plausibly, join the collect server and produce Strava events."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyreqwest.client import Client, ClientBuilder
from rich.console import Console

from tally.errors import Unavailable
from tally.kit.clock import ManualClock
from tally.sim.athletes.athlete import VirtualAthlete
from tally.sim.athletes.collect_client import CollectClient
from tally.sim.athletes.display import athletes_line, render_athletes
from tally.sim.athletes.fleet import AcceleratedClock, AthleteFleet, random_goal
from tally.sim.athletes.strava_client import StravaControlClient
from tally.sim.athletes.training import (
    DISCIPLINES,
    WEEK_SECONDS,
    part_of_day,
    random_profile,
    random_rest_seconds,
    random_session,
    seconds_until_daylight,
)
from tally.sim.oidc.keys import SigningKeys
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.strava.simulator import StravaSimulator
from tests.sim.fake_collect import FakeCollect
from tests.sim.webhook_receiver import VERIFY_TOKEN

START = datetime(2026, 5, 4, 6, 0, tzinfo=UTC)
# Plausible speeds in metres per second.
SPEEDS = {"RIDE": (3, 13), "RUN": (1.5, 5.5), "SWIM": (0.4, 1.6), "WALK": (0.7, 2.4)}


@pytest.fixture
def clock() -> ManualClock:
    """The athletes' clock; Strava's clock stands still, so only athletes sleep on this one."""
    return ManualClock(START)


@pytest.fixture
async def http() -> AsyncIterator[Client]:
    async with ClientBuilder().follow_redirects(False).build() as client:
        yield client


@pytest.fixture
async def strava() -> AsyncIterator[StravaSimulator]:
    async with StravaSimulator(ManualClock(START), rng=random.Random(1)).serving() as strava:
        yield strava


@pytest.fixture(scope="module")
def keys() -> SigningKeys:
    return SigningKeys()


@pytest.fixture
async def issuer(keys: SigningKeys) -> AsyncIterator[OidcSimulator]:
    async with OidcSimulator(
        ManualClock(START), keys=keys, rng=random.Random(2)
    ).serving() as issuer:
        yield issuer


@pytest.fixture
async def collect(
    http: Client, issuer: OidcSimulator, strava: StravaSimulator
) -> AsyncIterator[FakeCollect]:
    async with FakeCollect(http, issuer, strava).serving() as fake:
        yield fake


def build_fleet(
    http: Client,
    strava: StravaSimulator,
    clock: ManualClock,
    seed: int = 7,
    collect: FakeCollect | None = None,
) -> AthleteFleet:
    client = None if collect is None else CollectClient(http, collect.url)
    return AthleteFleet(StravaControlClient(http, strava.url), clock, random.Random(seed), client)


async def run_until(fleet: AthleteFleet, clock: ManualClock, hours: int) -> None:
    """Advance the clock from one sleeper to the next while every athlete is idle."""
    end = clock.monotonic() + hours * 3600
    async with fleet.running():
        await clock.until_sleeping(len(fleet.athletes))
        while (due := clock.next_due()) is not None and due <= end:
            await clock.advance(due - clock.monotonic())
            await clock.until_sleeping(len(fleet.athletes))


@given(seed=st.integers(0, 2**32), hour=st.integers(0, 23))
def test_sessions_are_plausible(seed: int, hour: int) -> None:
    """Distance and speed are realistic; there is no climb indoors or in water."""
    rng = random.Random(seed)
    session = random_session(rng, random_profile(rng, seed % 1000), hour)
    (discipline,) = [
        discipline
        for discipline in DISCIPLINES
        if session.sport_type in (*discipline.sport_types, discipline.indoor)
    ]
    assert 0 < session.distance <= discipline.max_distance
    slowest, fastest = SPEEDS[discipline.family]
    assert slowest < session.distance / session.moving_time < fastest
    assert session.moving_time <= session.elapsed_time <= session.moving_time * 1.3
    assert session.total_elevation_gain >= 0
    if session.trainer or discipline.family == "SWIM":
        assert session.total_elevation_gain == 0
    assert session.name.startswith(part_of_day(hour))


@given(seed=st.integers(0, 2**32))
def test_seed_determines_profile_and_session(seed: int) -> None:
    first, second = random.Random(seed), random.Random(seed)
    person = random_profile(first, 5)
    assert person == random_profile(second, 5)
    assert random_goal(first, person) == random_goal(second, person)
    assert random_session(first, person, 8) == random_session(second, person, 8)


def test_large_fleet_has_every_sport_and_unique_names() -> None:
    rng = random.Random(1)
    people = [random_profile(rng, number) for number in range(2000)]
    assert len({person.name for person in people}) == 2000
    assert set(Counter(person.favourite.family for person in people)) == {
        "RIDE",
        "RUN",
        "SWIM",
        "WALK",
    }


def test_training_frequency_matches_the_profile() -> None:
    rng = random.Random(1)
    for number in range(20):
        person = random_profile(rng, number)
        pauses = [random_rest_seconds(rng, person) for _ in range(2000)]
        assert min(pauses) >= 4 * 3600
        times_a_week = WEEK_SECONDS * len(pauses) / sum(pauses)
        assert 0.6 < times_a_week / person.sessions_per_week < 1.6


def test_few_sessions_start_at_night() -> None:
    """At night most athletes wait for the morning; by day none waits."""
    rng = random.Random(1)
    assert {seconds_until_daylight(rng, hour) for hour in range(6, 21)} == {0.0}
    for hour in (21, 23, 0, 3, 5):
        starts = [(hour + seconds_until_daylight(rng, hour) / 3600) % 24 for _ in range(400)]
        assert sum(6 <= start <= 10 for start in starts) > 350


@pytest.mark.parametrize(
    ("hour", "name"),
    [
        (0, "Night"),
        (5, "Morning"),
        (12, "Lunch"),
        (17, "Afternoon"),
        (18, "Evening"),
        (23, "Evening"),
    ],
)
def test_hour_maps_to_part_of_day(hour: int, name: str) -> None:
    assert part_of_day(hour) == name


async def test_accelerated_clock_runs_faster(clock: ManualClock) -> None:
    fast = AcceleratedClock(clock, 3600)
    assert fast.now() == START
    await clock.advance(24)
    assert fast.now() == datetime(2026, 5, 5, 6, 0, tzinfo=UTC)
    assert fast.monotonic() == 24 * 3600


async def test_athletes_upload_activities_over_days(
    http: Client, strava: StravaSimulator, clock: ManualClock
) -> None:
    """An activity starts when its athlete starts training; the statistics count all of them."""
    fleet = build_fleet(http, strava, clock)
    await fleet.sign_up(5)
    await run_until(fleet, clock, 14 * 24)
    by_athlete = Counter(activity.athlete_id for activity in strava.activities.values())
    deleted = sum(athlete.stats.deletions for athlete in fleet.athletes)
    assert by_athlete.total() + deleted == sum(
        athlete.stats.activities for athlete in fleet.athletes
    )
    assert set(by_athlete) == set(strava.athletes)
    now, begin = clock.seconds(), round(START.timestamp())
    assert all(
        begin < activity.start < activity.start + activity.elapsed_time <= now
        for activity in strava.activities.values()
    )
    assert all(athlete.stats.failures == 0 for athlete in fleet.athletes)


async def test_seed_determines_two_weeks_of_activities(http: Client) -> None:
    """The order of uploads does not matter."""
    lives = []
    for _ in range(2):
        clock = ManualClock(START)
        async with StravaSimulator(ManualClock(START)).serving() as strava:
            fleet = build_fleet(http, strava, clock)
            await fleet.sign_up(3)
            await run_until(fleet, clock, 14 * 24)
            lives.append(
                [
                    (athlete.profile, athlete.stats.activities, athlete.stats.distance)
                    for athlete in fleet.athletes
                ]
            )
    assert lives[0] == lives[1]


async def test_athletes_edit_and_delete_activities(
    http: Client, strava: StravaSimulator, clock: ManualClock
) -> None:
    """Within three months, athletes rename, hide and delete activities."""
    fleet = build_fleet(http, strava, clock)
    await fleet.sign_up(8)
    async with fleet.running():
        for _ in range(13 * 7):
            await clock.until_sleeping(len(fleet.athletes))
            await clock.advance(86_400)
        await clock.until_sleeping(len(fleet.athletes))
    activities = strava.activities.values()
    assert any(activity.name.endswith("with friends") for activity in activities)
    assert any(activity.private for activity in activities)
    edits, deletions = (
        sum(getattr(athlete.stats, name) for athlete in fleet.athletes)
        for name in ("edits", "deletions")
    )
    assert edits > 10
    assert deletions > 0


async def test_athletes_join_the_collect_server(
    http: Client, strava: StravaSimulator, clock: ManualClock, collect: FakeCollect
) -> None:
    """Every athlete logs in, links their own account and sets a goal in their favourite sport."""
    fleet = build_fleet(http, strava, clock, collect=collect)
    await fleet.sign_up(10)
    assert [athlete.stats.last_event for athlete in fleet.athletes] == ["joined"] * 10
    assert collect.linked == {
        athlete.profile.name.replace(" ", "_"): athlete.athlete_id for athlete in fleet.athletes
    }
    goals = dict(collect.milestones)
    for athlete in fleet.athletes:
        goal = goals[athlete.profile.name.replace(" ", "_")]
        assert goal["sport"] == athlete.profile.favourite.family
        assert goal["metric"] in {"DISTANCE_METERS", "ELEVATION_METERS"}
        assert goal["totalTarget"] > 0


async def test_athletes_join_with_automatic_approval(
    http: Client,
    strava: StravaSimulator,
    issuer: OidcSimulator,
    clock: ManualClock,
    collect: FakeCollect,
) -> None:
    issuer.auto_approve = "Ana Silva"
    fleet = build_fleet(http, strava, clock, collect=collect)
    await fleet.sign_up(3)
    assert set(collect.linked) == {
        athlete.profile.name.replace(" ", "_") for athlete in fleet.athletes
    }


async def test_webhooks_report_the_activities_of_members(
    http: Client, strava: StravaSimulator, clock: ManualClock, collect: FakeCollect
) -> None:
    """One event per activity and no others."""
    await strava.webhooks.subscribe(f"{collect.url}/webhooks/strava", VERIFY_TOKEN)
    fleet = build_fleet(http, strava, clock, collect=collect)
    await fleet.sign_up(4)
    await run_until(fleet, clock, 7 * 24)
    await strava.webhooks.wait_idle()
    created = [event["object_id"] for event in collect.events if event["aspect_type"] == "create"]
    deleted = [event["object_id"] for event in collect.events if event["aspect_type"] == "delete"]
    assert len(created) > 4
    assert set(created) - set(deleted) == set(strava.activities)


async def test_athlete_who_cannot_join_still_trains(
    http: Client, strava: StravaSimulator, clock: ManualClock
) -> None:
    fleet = AthleteFleet(
        StravaControlClient(http, strava.url),
        clock,
        random.Random(7),
        CollectClient(http, f"{strava.url}/nothing"),
    )
    await fleet.sign_up(1)
    (athlete,) = fleet.athletes
    assert athlete.stats.last_event.startswith("could not join: Expected a redirect from")
    await run_until(fleet, clock, 14 * 24)
    assert athlete.stats.activities > 0


async def test_athlete_retries_after_a_failed_upload(
    http: Client, strava: StravaSimulator, clock: ManualClock
) -> None:
    """An unknown account is rejected every time, and the athlete keeps training."""
    person = random_profile(random.Random(1), 0)
    athlete = VirtualAthlete(
        person, 1, StravaControlClient(http, strava.url), clock, random.Random(1)
    )
    fleet = AthleteFleet(athlete.strava, clock, random.Random(1), athletes=[athlete])
    await run_until(fleet, clock, 14 * 24)
    assert athlete.stats.failures > 1
    assert (athlete.stats.activities, athlete.stats.last_event) == (
        0,
        "The Strava simulator returned 404 for POST activities",
    )


async def test_unreachable_simulator_is_named_in_the_error(
    http: Client, clock: ManualClock
) -> None:
    fleet = AthleteFleet(StravaControlClient(http, "http://127.0.0.1:9"), clock, random.Random(1))
    with pytest.raises(
        Unavailable, match=r"Cannot reach the Strava simulator at http://127\.0\.0\.1:9"
    ):
        await fleet.sign_up(1)


async def test_display_shows_the_most_active_athletes_and_totals(
    http: Client, strava: StravaSimulator, clock: ManualClock
) -> None:
    fleet = build_fleet(http, strava, clock)
    await fleet.sign_up(20)
    fleet.athletes[-1].stats.distance = 42_195.0
    fleet.athletes[-1].stats.last_event = "Morning Run, 42.2 km"
    console = Console(width=160, record=True)
    console.print(render_athletes(fleet, await fleet.strava.state()))
    shown = console.export_text()
    assert "20 athletes, simulated time 2026-05-04T06:00:00Z" in shown
    first_row = next(line for line in shown.splitlines() if " km " in line)
    assert fleet.athletes[-1].profile.name in first_row
    assert "42.2 km" in first_row
    assert "and 5 more" in shown
    assert "0 accepted in 0 attempts" in shown
    assert "does not respond" in athletes_line(fleet, None)
