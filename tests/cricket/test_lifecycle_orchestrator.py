"""The orchestrator: matches that go live are started on every follower's device once, healed, and handed on."""

import asyncio
from dataclasses import replace

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, EndReason, PollerState, PushTarget
from tally.cricket.service.activities.sweeps import PAGE_SIZE
from tally.sim.apns.devices import TokenKind
from tests.cricket.activities_harness import Stadium
from tests.cricket.conftest import LogText

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED
CYCLE = 30


async def test_a_match_that_goes_live_is_started_on_every_device_of_every_follower(
    stadium: Stadium,
) -> None:
    """Once, with all that the app needs; and the record of the match is made."""
    fixture = await stadium.match(live_updated_at=None)
    followers = [await stadium.follower(fixture, phones) for phones in (1, 2, 0)]
    instance = stadium.instance()
    await instance.orchestrator.run()
    assert stadium.apple.sim.log.total == 0
    await stadium.fixtures.update(fixture.match_id, live_updated_at=stadium.clock.milliseconds())
    for _ in range(2):
        await instance.orchestrator.run()
    phones = [phone for _, theirs in followers for phone in theirs]
    for phone in phones:
        [aps] = stadium.pushed(phone.start_token)
        assert (aps["event"], aps["attributes-type"], aps["input-push-token"]) == (
            "start",
            "CricketMatchAttributes",
            1,
        )
        assert aps["attributes"] == {
            "matchId": fixture.match_id,
            "teamId": "neutral",
            "title": "Lions v Tigers",
        }
        assert aps["alert"]["title"] == "Lions v Tigers"
        assert await stadium.status(fixture, phone) is PENDING
    assert stadium.apple.sim.log.accepted == len(phones) == 3
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.owner) == (PollerState.POLLING, "instance-1")


async def test_followers_see_the_match_from_their_side(stadium: Stadium) -> None:
    """The start shows what the side sees."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture, team_id="2")
    await stadium.instance().orchestrator.run()
    [aps] = stadium.pushed(phone.start_token)
    assert (aps["attributes"]["teamId"], aps["content-state"]["view"]) == ("2", "2")


async def test_who_is_on_a_side_that_no_longer_plays_sees_the_match_from_no_side(
    stadium: Stadium,
) -> None:
    """The fixture was changed after they followed; the others are not held up."""
    fixture = await stadium.match()
    _, [odd] = await stadium.follower(fixture, team_id="99")
    _, [other] = await stadium.follower(fixture, team_id="1")
    await stadium.instance().orchestrator.run()
    views = [
        stadium.pushed(phone.start_token)[0]["content-state"]["view"] for phone in (odd, other)
    ]
    assert views == ["neutral", "1"]


async def test_after_a_restart_what_is_missing_is_made_up_for_and_nothing_comes_twice(
    stadium: Stadium,
) -> None:
    """The match was live all the time; one follower was started before, the other one is found now."""
    fixture = await stadium.match()
    _, [before] = await stadium.follower(fixture)
    await stadium.instance("before").orchestrator.run()
    await stadium.runs(stadium.instance(), fixture, before)
    _, [after] = await stadium.follower(fixture)
    await stadium.clock.advance(CYCLE)
    await stadium.instance("after").orchestrator.run()
    assert [stadium.events(phone.start_token) for phone in (before, after)] == [
        ["start"],
        ["start"],
    ]
    assert await stadium.status(fixture, before) is ACTIVE
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert match.owner == "before"


async def test_three_instances_at_once_start_each_device_once(stadium: Stadium) -> None:
    """Whether they meet at the lock of the match or not."""
    fixture = await stadium.match()
    phones = [(await stadium.follower(fixture))[1][0] for _ in range(20)]
    instances = [stadium.instance(f"instance-{number}") for number in range(3)]
    await asyncio.gather(*(instance.orchestrator.run() for instance in instances))
    assert [stadium.events(phone.start_token) for phone in phones] == [["start"]] * 20
    other = await stadium.match()
    phones = [(await stadium.follower(other))[1][0] for _ in range(20)]
    # As if each had the lock, which is what a long pause of an instance amounts to.
    await asyncio.gather(*(instance.orchestrator.process(other.match_id) for instance in instances))
    assert [stadium.events(phone.start_token) for phone in phones] == [["start"]] * 20


async def test_a_crowd_is_seen_to_page_by_page(stadium: Stadium) -> None:
    """Everybody is told of the start, started, and ended once, however many pages they fill."""
    fixture = await stadium.match()
    await stadium.crowd(fixture, PAGE_SIZE + 1)
    instance, record = stadium.instance(), stadium.apple.sim.log
    await instance.prematch.notify(fixture)
    assert len({seen.target for seen in record.entries}) == record.accepted == PAGE_SIZE + 1
    record.clear()
    for _ in range(2):
        await instance.orchestrator.run()
    assert len({seen.target for seen in record.entries}) == record.accepted == PAGE_SIZE + 1
    now = stadium.clock.milliseconds()
    pending = [each async for each in stadium.activities.of_match(fixture.match_id, now)]
    tokens = [
        replace(each, update_token=f"{number:0158x}ff") for number, each in enumerate(pending)
    ]
    await asyncio.gather(*(stadium.activities.activate(each) for each in tokens))
    record.clear()
    await stadium.fixtures.update(fixture.match_id, status=MatchStatus.FINISHED)
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    assert len({seen.target for seen in record.entries}) == record.accepted == PAGE_SIZE + 1
    left = [each.update_token async for each in stadium.activities.of_match(fixture.match_id, now)]
    assert left == [None] * (PAGE_SIZE + 1)


async def test_a_killed_instance_leaves_its_match_to_another(stadium: Stadium) -> None:
    """Within the time of its lock; whoever was started is not started again, and nobody is left out."""
    fixture = await stadium.match()
    phones = [(await stadium.follower(fixture))[1][0] for _ in range(30)]
    record = stadium.apple.sim.log
    dying = asyncio.create_task(stadium.instance("dying").orchestrator.process(fixture.match_id))
    await record.wait_until(lambda seen: seen.accepted >= 5)
    dying.cancel()
    await asyncio.wait([dying])
    heir = stadium.instance("heir")
    # What was claimed and not sent is due again after a minute.
    for _ in range(3):
        await stadium.clock.advance(CYCLE)
        await heir.orchestrator.run()
    starts = [stadium.events(phone.start_token) for phone in phones]
    assert all(each for each in starts)
    for phone in phones:
        await stadium.runs(heir, fixture, phone)
    await stadium.clock.advance(600)
    before = record.accepted
    await heir.orchestrator.run()
    assert record.accepted == before


async def test_a_refused_token_is_healed_within_one_cycle(stadium: Stadium) -> None:
    """While its owner still follows; and the new activity is registered like the first."""
    fixture = await stadium.match()
    instance = stadium.instance()
    _, [phone] = await stadium.follower(fixture)
    _, [gone] = await stadium.follower(fixture)
    await instance.orchestrator.run()
    tokens = [await stadium.runs(instance, fixture, each) for each in (phone, gone)]
    for each, token in zip((phone, gone), tokens, strict=True):
        target = PushTarget(
            match_id=fixture.match_id,
            user_id=each.user_id,
            device_id=each.device_id,
            team_id="neutral",
            update_token=token,
        )
        assert await instance.activities.on_token_invalid(target)
        assert not await instance.activities.on_token_invalid(target)
    await stadium.follows.unfollow(fixture.match_id, gone.user_id, stadium.clock.seconds())
    ended = await stadium.shown(fixture, phone)
    assert ended is not None
    assert (ended.status, ended.end_reason) == (ENDED, EndReason.TOKEN_INVALID)
    await stadium.clock.advance(CYCLE)
    await instance.orchestrator.run()
    assert [stadium.events(each.start_token) for each in (phone, gone)] == [
        ["start", "start"],
        ["start"],
    ]
    await stadium.runs(instance, fixture, phone)
    assert [await stadium.status(fixture, each) for each in (phone, gone)] == [ACTIVE, ENDED]


async def test_a_device_that_never_answers_is_not_flooded(stadium: Stadium) -> None:
    """Starts become rare: each wait is twice as long as the one before."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    at: list[int] = []
    for cycle in range(66):
        before = len(stadium.pushed(phone.start_token))
        await instance.orchestrator.run()
        at += [cycle * CYCLE] * (len(stadium.pushed(phone.start_token)) - before)
        await stadium.clock.advance(CYCLE)
    assert at == [0, 60, 180, 420, 900, 1_860]


async def test_a_token_that_dies_again_and_again_is_started_less_and_less(stadium: Stadium) -> None:
    """Healing at once is for what happens once."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture)
    instance = stadium.instance()
    for _ in range(40):
        await instance.orchestrator.run()
        activity = await stadium.shown(fixture, phone)
        assert activity is not None
        if activity.status is PENDING:
            await stadium.runs(instance, fixture, phone)
            activity = await stadium.shown(fixture, phone)
            assert activity is not None
            await stadium.activities.end(
                activity, EndReason.TOKEN_INVALID, stadium.clock.milliseconds()
            )
        await stadium.clock.advance(CYCLE)
    assert len(stadium.pushed(phone.start_token)) == 6


async def test_a_start_token_that_apple_does_not_know_is_forgotten(stadium: Stadium) -> None:
    """No more starts for it; the next token that the app hands in is used."""
    fixture = await stadium.match()
    _, [phone] = await stadium.follower(fixture)
    stadium.apple.sim.devices.retire(phone.start_token)
    instance = stadium.instance()
    await instance.orchestrator.run()
    [device] = await stadium.devices.of_user(phone.user_id, stadium.clock.seconds())
    assert device.push_to_start_token is None
    token = stadium.apple.sim.devices.issue(phone.device_id, TokenKind.START)
    now = stadium.clock.milliseconds()
    await stadium.devices.update_push_to_start(device, token, now, now // 1000 + 1000)
    await stadium.clock.advance(600)
    await instance.orchestrator.run()
    assert stadium.events(token) == ["start"]


async def test_an_activity_that_nobody_follows_any_more_is_ended(stadium: Stadium) -> None:
    """A crash in the middle of an unfollow leaves nothing on the screen."""
    fixture = await stadium.match()
    instance = stadium.instance()
    _, [phone] = await stadium.follower(fixture)
    await instance.orchestrator.run()
    token = await stadium.runs(instance, fixture, phone)
    await stadium.follows.unfollow(fixture.match_id, phone.user_id, stadium.clock.seconds())
    await stadium.clock.advance(CYCLE)
    await instance.orchestrator.run()
    assert stadium.events(token) == ["end"]
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    assert (activity.end_reason, activity.update_token) == (EndReason.USER_UNFOLLOW, None)


async def test_an_end_that_did_not_arrive_is_said_again(stadium: Stadium) -> None:
    """The record says that the device does not know; after that it does."""
    fixture = await stadium.match()
    instance = stadium.instance()
    _, [phone] = await stadium.follower(fixture)
    await instance.orchestrator.run()
    token = await stadium.runs(instance, fixture, phone)
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    await stadium.follows.unfollow(fixture.match_id, phone.user_id, stadium.clock.seconds())
    # Marked, and then the program died.
    await stadium.activities.end(activity, EndReason.USER_UNFOLLOW, stadium.clock.milliseconds())
    await instance.orchestrator.run()
    assert stadium.events(token) == []
    for _ in range(3):
        await stadium.clock.advance(CYCLE)
        await instance.orchestrator.run()
    assert stadium.events(token) == ["end"]


async def test_a_match_that_nobody_renews_is_taken_over(stadium: Stadium) -> None:
    """By one instance; as long as it is renewed it stays where it is."""
    fixture = await stadium.match()
    first, second = stadium.instance("first"), stadium.instance("second")
    await first.orchestrator.run()
    await stadium.clock.advance(CYCLE)
    assert await stadium.matches.renew(fixture.match_id, "first", stadium.clock.milliseconds())
    await second.orchestrator.run()
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert match.owner == "first"
    await stadium.clock.advance(CYCLE + 1)
    await second.orchestrator.run()
    taken = await stadium.matches.get(fixture.match_id)
    assert taken == replace(
        match,
        owner="second",
        version=match.version + 1,
        last_updated_at=stadium.clock.milliseconds(),
    )


async def test_trouble_with_one_match_does_not_touch_the_others(
    stadium: Stadium, log_text: LogText
) -> None:
    """The display state of one cannot be had; the followers of the other see theirs, and the log tells."""
    broken, fine = await stadium.match(), await stadium.match()
    stadium.contents[broken.match_id] = {"teams": 7}
    _, [unlucky] = await stadium.follower(broken)
    _, [lucky] = await stadium.follower(fine)
    await stadium.instance().orchestrator.run()
    assert [stadium.events(phone.start_token) for phone in (unlucky, lucky)] == [[], ["start"]]
    assert "Match processing failed" in log_text()
