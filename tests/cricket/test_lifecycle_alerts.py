"""Before the match and at the toss: everybody who follows is told once, on each device, however many instances there are."""

import asyncio
import json
from dataclasses import replace

import pytest

from tally.cricket.model.feed import InningsFeed, MatchFeed, MatchStatus, Overs, Side, Toss
from tally.cricket.model.records import Fixture, format_start_time
from tally.cricket.repository.leagues import LeagueRepository
from tests.cricket import made_up
from tests.cricket.activities_harness import Phone, Stadium


async def coming(stadium: Stadium, minutes: int = 20, *, is_active: bool = True) -> Fixture:
    """A match that starts so many minutes from now."""
    league = made_up.league(active=is_active)
    await LeagueRepository(stadium.store).put(league)
    return await stadium.match(
        league_code=league.code,
        start_time=format_start_time(stadium.clock.milliseconds() + minutes * 60_000),
        status=MatchStatus.NOT_STARTED,
        live_updated_at=None,
    )


def told(stadium: Stadium, phone: Phone) -> list[str]:
    """What the phone was told, in words."""
    return [aps["alert"]["body"] for aps in stadium.pushed(phone.device_token)]


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


async def test_followers_are_told_half_an_hour_before_the_start(stadium: Stadium) -> None:
    """Once, on each device, as a notification that says which match; not those of a match that is further away."""
    soon, later, inactive = (
        await coming(stadium),
        await coming(stadium, 40),
        await coming(stadium, is_active=False),
    )
    _, phones = await stadium.follower(soon, 2)
    others = [(await stadium.follower(fixture))[1][0] for fixture in (later, inactive)]
    instance = stadium.instance()
    for _ in range(3):
        await instance.prematch.run()
        await stadium.clock.advance(60)
    assert [told(stadium, phone) for phone in phones] == [["Starts in 20 minutes"]] * 2
    assert [told(stadium, phone) for phone in others] == [[], []]
    [seen] = stadium.apple.sim.log.for_target(phones[0].device_token)
    assert (seen.push_type, seen.collapse_id) == ("alert", f"prematch-{soon.match_id}")
    assert json.loads(seen.payload)["matchId"] == soon.match_id
    await stadium.clock.advance(8 * 60)
    await instance.prematch.run()
    assert told(stadium, others[0]) == ["Starts in 29 minutes"]


async def test_who_follows_late_is_told_all_the_same(stadium: Stadium) -> None:
    """And who has no device yet is told when they have one."""
    fixture = await coming(stadium)
    follow, _ = await stadium.follower(fixture, 0)
    instance = stadium.instance()
    await instance.prematch.run()
    await stadium.clock.advance(60)
    phone = await stadium.phone(follow.user_id)
    _, [late] = await stadium.follower(fixture)
    await instance.prematch.run()
    assert [told(stadium, each) for each in (phone, late)] == [["Starts in 19 minutes"]] * 2


async def test_three_instances_tell_everybody_once(stadium: Stadium) -> None:
    """At the same time, one after the other, and after a restart."""
    fixture = await coming(stadium)
    phones = [(await stadium.follower(fixture))[1][0] for _ in range(20)]
    instances = [stadium.instance(f"instance-{number}") for number in range(3)]
    await asyncio.gather(*(instance.prematch.notify(fixture) for instance in instances))
    await asyncio.gather(*(instance.prematch.run() for instance in instances))
    await stadium.instance("restarted").prematch.run()
    assert [told(stadium, phone) for phone in phones] == [["Starts in 20 minutes"]] * 20


async def test_a_device_that_is_gone_is_forgotten(stadium: Stadium) -> None:
    """APNs does not know its token: it is not tried again, and the other device was told."""
    fixture = await coming(stadium)
    _, [gone, phone] = await stadium.follower(fixture, 2)
    stadium.apple.sim.devices.retire(gone.device_token)
    await stadium.instance().prematch.run()
    assert told(stadium, phone) == ["Starts in 20 minutes"]
    left = await stadium.devices.of_user(phone.user_id, stadium.clock.seconds())
    assert [device.device_id for device in left] == [phone.device_id]


@pytest.mark.parametrize(
    ("toss", "words"),
    [
        (Toss("1", "batting"), "Lions won the toss and chose to bat"),
        (Toss("2", "bowling"), "Tigers won the toss and chose to bowl"),
        (Toss("2", ""), "Tigers won the toss"),
        (Toss("7", "batting"), "The toss was won by the side that chose to bat"),
    ],
)
async def test_the_toss_is_told_once(stadium: Stadium, toss: Toss, words: str) -> None:
    """By the first poll that has it, however many polls and instances follow."""
    fixture = await coming(stadium)
    phones = [(await stadium.follower(fixture))[1][0] for _ in range(5)]
    instances = [stadium.instance(f"instance-{number}") for number in range(3)]
    await instances[0].toss.check(feed(fixture, None))
    assert [told(stadium, phone) for phone in phones] == [[]] * 5
    for _ in range(2):
        await asyncio.gather(*(instance.toss.check(feed(fixture, toss)) for instance in instances))
    assert [told(stadium, phone) for phone in phones] == [[words]] * 5
    noted = await stadium.fixtures.get(fixture.match_id)
    assert noted is not None
    assert noted.toss_notified_at == stadium.clock.milliseconds()


async def test_a_toss_that_is_long_ago_is_no_news(stadium: Stadium) -> None:
    """With ten overs gone nobody is told; that it was thought of is noted.

    An unknown match is passed over.
    """
    fixture = await coming(stadium)
    _, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    toss = Toss("1", "batting")
    await instance.toss.check(feed(replace(fixture, match_id=made_up.number()), toss))
    await instance.toss.check(feed(fixture, toss, overs=10))
    assert told(stadium, phone) == []
    noted = await stadium.fixtures.get(fixture.match_id)
    assert noted is not None
    assert noted.toss_notified_at is not None
    early = await coming(stadium)
    _, [phone] = await stadium.follower(early)
    await instance.toss.check(feed(early, toss, overs=2))
    assert told(stadium, phone) == ["Lions won the toss and chose to bat"]


async def test_the_start_and_the_toss_are_two_things(stadium: Stadium) -> None:
    """To be told of the one says nothing of the other."""
    fixture = await coming(stadium)
    _, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    await instance.prematch.run()
    await instance.toss.check(feed(fixture, Toss("1", "batting")))
    assert told(stadium, phone) == ["Starts in 20 minutes", "Lions won the toss and chose to bat"]
