"""Followers are notified of the start and the toss once per device, by any number of instances."""

import asyncio
import json
from dataclasses import replace

import pytest

from tally.cricket.model.feed import InningsFeed, MatchFeed, MatchStatus, Overs, Side, Toss
from tally.cricket.model.records import Fixture, format_start_time
from tally.cricket.repository.leagues import LeagueRepository
from tests.cricket import factories
from tests.cricket.activities_harness import ActivitiesHarness, Phone


async def upcoming_match(
    harness: ActivitiesHarness, minutes: int = 20, *, is_active: bool = True
) -> Fixture:
    """Return a match that starts in this number of minutes."""
    league = factories.league(active=is_active)
    await LeagueRepository(harness.store).put(league)
    return await harness.match(
        league_code=league.code,
        start_time=format_start_time(harness.clock.milliseconds() + minutes * 60_000),
        status=MatchStatus.NOT_STARTED,
        live_updated_at=None,
    )


def alerts_on(harness: ActivitiesHarness, phone: Phone) -> list[str]:
    """Return the texts of the notifications on a phone."""
    return [aps["alert"]["body"] for aps in harness.pushed(phone.device_token)]


def feed(fixture: Fixture, toss: Toss | None, overs: int | None = None) -> MatchFeed:
    innings = (
        ()
        if overs is None
        else (InningsFeed(1, "1", is_super_over=False, runs=8, wickets=0, overs=Overs(overs, 0)),)
    )
    return MatchFeed(
        match_id=fixture.match_id,
        league_id="5",
        season_id="9",
        match_type="T20",
        total_overs=20,
        teams=(Side("1", "Lions", "LIO"), Side("2", "Tigers", "TIG")),
        starts_at=fixture.start_time,
        status=MatchStatus.NOT_STARTED,
        status_text="NS",
        is_live=False,
        received_at=0,
        toss=toss,
        innings=innings,
    )


async def test_followers_are_notified_half_an_hour_before_the_start(
    harness: ActivitiesHarness,
) -> None:
    """Each device gets one notification that names the match.

    Later matches and inactive leagues are skipped.
    """
    soon, later, inactive = (
        await upcoming_match(harness),
        await upcoming_match(harness, 40),
        await upcoming_match(harness, is_active=False),
    )
    _, phones = await harness.follower(soon, 2)
    others = [(await harness.follower(fixture))[1][0] for fixture in (later, inactive)]
    instance = harness.instance()
    for _ in range(3):
        await instance.prematch.run()
        await harness.clock.advance(60)
    assert [alerts_on(harness, phone) for phone in phones] == [["Starts in 20 minutes"]] * 2
    assert [alerts_on(harness, phone) for phone in others] == [[], []]
    [entry] = harness.apns.simulator.log.for_target(phones[0].device_token)
    assert (entry.push_type, entry.collapse_id) == ("alert", f"prematch-{soon.match_id}")
    assert json.loads(entry.payload)["matchId"] == soon.match_id
    await harness.clock.advance(8 * 60)
    await instance.prematch.run()
    assert alerts_on(harness, others[0]) == ["Starts in 29 minutes"]


async def test_a_late_follower_is_notified(harness: ActivitiesHarness) -> None:
    """A follower without a device is notified after registering one."""
    fixture = await upcoming_match(harness)
    follow, _ = await harness.follower(fixture, 0)
    instance = harness.instance()
    await instance.prematch.run()
    await harness.clock.advance(60)
    phone = await harness.phone(follow.user_id)
    _, [late] = await harness.follower(fixture)
    await instance.prematch.run()
    assert [alerts_on(harness, device) for device in (phone, late)] == [
        ["Starts in 19 minutes"]
    ] * 2


async def test_three_instances_notify_each_follower_once(harness: ActivitiesHarness) -> None:
    """Concurrently, one after the other, and after a restart."""
    fixture = await upcoming_match(harness)
    phones = [(await harness.follower(fixture))[1][0] for _ in range(20)]
    instances = [harness.instance(f"instance-{number}") for number in range(3)]
    await asyncio.gather(*(instance.prematch.notify(fixture) for instance in instances))
    await asyncio.gather(*(instance.prematch.run() for instance in instances))
    await harness.instance("restarted").prematch.run()
    assert [alerts_on(harness, phone) for phone in phones] == [["Starts in 20 minutes"]] * 20


async def test_a_device_with_an_invalid_token_is_deleted(harness: ActivitiesHarness) -> None:
    """The other device of the user is notified."""
    fixture = await upcoming_match(harness)
    _, [gone, phone] = await harness.follower(fixture, 2)
    harness.apns.simulator.devices.retire(gone.device_token)
    await harness.instance().prematch.run()
    assert alerts_on(harness, phone) == ["Starts in 20 minutes"]
    remaining = await harness.devices.list_by_user(phone.user_id, harness.clock.seconds())
    assert [device.device_id for device in remaining] == [phone.device_id]


@pytest.mark.parametrize(
    ("toss", "text"),
    [
        (Toss("1", "batting"), "Lions won the toss and chose to bat"),
        (Toss("2", "bowling"), "Tigers won the toss and chose to bowl"),
        (Toss("2", ""), "Tigers won the toss"),
        (Toss("7", "batting"), "The toss was won by the side that chose to bat"),
    ],
)
async def test_followers_are_notified_of_the_toss_once(
    harness: ActivitiesHarness, toss: Toss, text: str
) -> None:
    """The first poll with the toss notifies them, however many polls and instances follow."""
    fixture = await upcoming_match(harness)
    phones = [(await harness.follower(fixture))[1][0] for _ in range(5)]
    instances = [harness.instance(f"instance-{number}") for number in range(3)]
    await instances[0].toss.check(feed(fixture, None))
    assert [alerts_on(harness, phone) for phone in phones] == [[]] * 5
    for _ in range(2):
        await asyncio.gather(*(instance.toss.check(feed(fixture, toss)) for instance in instances))
    assert [alerts_on(harness, phone) for phone in phones] == [[text]] * 5
    updated = await harness.fixtures.get(fixture.match_id)
    assert updated is not None
    assert updated.toss_notified_at == harness.clock.milliseconds()


async def test_an_old_toss_is_not_notified(harness: ActivitiesHarness) -> None:
    """After ten overs only the fixture is marked. An unknown match is ignored."""
    fixture = await upcoming_match(harness)
    _, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    toss = Toss("1", "batting")
    await instance.toss.check(feed(replace(fixture, match_id=factories.number()), toss))
    await instance.toss.check(feed(fixture, toss, overs=10))
    assert alerts_on(harness, phone) == []
    updated = await harness.fixtures.get(fixture.match_id)
    assert updated is not None
    assert updated.toss_notified_at is not None
    early = await upcoming_match(harness)
    _, [phone] = await harness.follower(early)
    await instance.toss.check(feed(early, toss, overs=2))
    assert alerts_on(harness, phone) == ["Lions won the toss and chose to bat"]


async def test_the_start_and_the_toss_are_separate_notifications(
    harness: ActivitiesHarness,
) -> None:
    fixture = await upcoming_match(harness)
    _, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.prematch.run()
    await instance.toss.check(feed(fixture, Toss("1", "batting")))
    assert alerts_on(harness, phone) == [
        "Starts in 20 minutes",
        "Lions won the toss and chose to bat",
    ]
