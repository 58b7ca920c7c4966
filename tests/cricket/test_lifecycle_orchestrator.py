"""The orchestrator starts each live match once per device, repairs it and takes it over."""

import asyncio
from dataclasses import replace

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, EndReason, PollerState, PushTarget
from tally.cricket.service.activities.sweeps import PAGE_SIZE
from tally.sim.apns.devices import TokenKind
from tests.cricket.activities_harness import ActivitiesHarness
from tests.cricket.conftest import LogText

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED
CYCLE = 30


async def test_a_match_that_goes_live_starts_on_every_device_of_every_follower(
    harness: ActivitiesHarness,
) -> None:
    """Each start is sent once and complete, and the match record is created."""
    fixture = await harness.match(live_updated_at=None)
    followers = [await harness.follower(fixture, phones) for phones in (1, 2, 0)]
    instance = harness.instance()
    await instance.orchestrator.run()
    assert harness.apns.simulator.log.total == 0
    await harness.fixtures.update(fixture.match_id, live_updated_at=harness.clock.milliseconds())
    for _ in range(2):
        await instance.orchestrator.run()
    phones = [phone for _, owned in followers for phone in owned]
    for phone in phones:
        [aps] = harness.pushed(phone.start_token)
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
        assert await harness.status(fixture, phone) is PENDING
    assert harness.apns.simulator.log.accepted == len(phones) == 3
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.owner) == (PollerState.POLLING, "instance-1")


async def test_the_start_displays_the_view_of_the_followers_team(
    harness: ActivitiesHarness,
) -> None:
    fixture = await harness.match()
    _, [phone] = await harness.follower(fixture, team_id="2")
    await harness.instance().orchestrator.run()
    [aps] = harness.pushed(phone.start_token)
    assert (aps["attributes"]["teamId"], aps["content-state"]["view"]) == ("2", "2")


async def test_a_team_that_no_longer_plays_falls_back_to_the_neutral_view(
    harness: ActivitiesHarness,
) -> None:
    """The fixture changed after the follow; other followers are not affected."""
    fixture = await harness.match()
    _, [outsider] = await harness.follower(fixture, team_id="99")
    _, [other] = await harness.follower(fixture, team_id="1")
    await harness.instance().orchestrator.run()
    views = [
        harness.pushed(phone.start_token)[0]["content-state"]["view"] for phone in (outsider, other)
    ]
    assert views == ["neutral", "1"]


async def test_after_a_restart_only_missing_activities_are_started(
    harness: ActivitiesHarness,
) -> None:
    """The match was live all the time: one follower was started before, the other one is new."""
    fixture = await harness.match()
    _, [before] = await harness.follower(fixture)
    await harness.instance("before").orchestrator.run()
    await harness.register_activity(harness.instance(), fixture, before)
    _, [after] = await harness.follower(fixture)
    await harness.clock.advance(CYCLE)
    await harness.instance("after").orchestrator.run()
    assert [harness.events(phone.start_token) for phone in (before, after)] == [
        ["start"],
        ["start"],
    ]
    assert await harness.status(fixture, before) is ACTIVE
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert match.owner == "before"


async def test_three_concurrent_instances_start_each_device_once(
    harness: ActivitiesHarness,
) -> None:
    """With and without the lock of the match."""
    fixture = await harness.match()
    phones = [(await harness.follower(fixture))[1][0] for _ in range(20)]
    instances = [harness.instance(f"instance-{number}") for number in range(3)]
    await asyncio.gather(*(instance.orchestrator.run() for instance in instances))
    assert [harness.events(phone.start_token) for phone in phones] == [["start"]] * 20
    other = await harness.match()
    phones = [(await harness.follower(other))[1][0] for _ in range(20)]
    # Without the lock, as after a long pause of an instance.
    await asyncio.gather(*(instance.orchestrator.process(other.match_id) for instance in instances))
    assert [harness.events(phone.start_token) for phone in phones] == [["start"]] * 20


async def test_many_followers_are_processed_page_by_page(harness: ActivitiesHarness) -> None:
    """Each is notified, started and ended once, however many pages they fill."""
    fixture = await harness.match()
    await harness.crowd(fixture, PAGE_SIZE + 1)
    instance, log = harness.instance(), harness.apns.simulator.log
    await instance.prematch.notify(fixture)
    assert len({entry.target for entry in log.entries}) == log.accepted == PAGE_SIZE + 1
    log.clear()
    for _ in range(2):
        await instance.orchestrator.run()
    assert len({entry.target for entry in log.entries}) == log.accepted == PAGE_SIZE + 1
    now = harness.clock.milliseconds()
    pending = [
        activity async for activity in harness.activities.list_by_match(fixture.match_id, now)
    ]
    tokens = [
        replace(activity, update_token=f"{number:0158x}ff")
        for number, activity in enumerate(pending)
    ]
    await asyncio.gather(*(harness.activities.activate(activity) for activity in tokens))
    log.clear()
    await harness.fixtures.update(fixture.match_id, status=MatchStatus.FINISHED)
    await harness.fixtures.archive(fixture.match_id, harness.clock.milliseconds())
    await instance.orchestrator.run()
    assert len({entry.target for entry in log.entries}) == log.accepted == PAGE_SIZE + 1
    left = [
        activity.update_token
        async for activity in harness.activities.list_by_match(fixture.match_id, now)
    ]
    assert left == [None] * (PAGE_SIZE + 1)


async def test_another_instance_continues_the_match_of_a_killed_one(
    harness: ActivitiesHarness,
) -> None:
    """Started devices are not started again, and none is missing."""
    fixture = await harness.match()
    phones = [(await harness.follower(fixture))[1][0] for _ in range(30)]
    log = harness.apns.simulator.log
    killed = asyncio.create_task(harness.instance("killed").orchestrator.process(fixture.match_id))
    await log.wait_until(lambda log: log.accepted >= 5)
    killed.cancel()
    await asyncio.wait([killed])
    successor = harness.instance("successor")
    # A start that was claimed but not sent is due again after five minutes.
    for _ in range(11):
        await harness.clock.advance(CYCLE)
        await successor.orchestrator.run()
    starts = [harness.events(phone.start_token) for phone in phones]
    assert all(starts)
    for phone in phones:
        await harness.register_activity(successor, fixture, phone)
    await harness.clock.advance(600)
    before = log.accepted
    await successor.orchestrator.run()
    assert log.accepted == before


async def test_an_invalid_token_is_repaired_within_one_cycle(harness: ActivitiesHarness) -> None:
    """Only while its owner follows the match. The new activity is registered like the first."""
    fixture = await harness.match()
    instance = harness.instance()
    _, [phone] = await harness.follower(fixture)
    _, [gone] = await harness.follower(fixture)
    await instance.orchestrator.run()
    tokens = [
        await harness.register_activity(instance, fixture, device) for device in (phone, gone)
    ]
    for device, token in zip((phone, gone), tokens, strict=True):
        target = PushTarget(
            match_id=fixture.match_id,
            user_id=device.user_id,
            device_id=device.device_id,
            team_id="neutral",
            update_token=token,
        )
        assert await harness.end_with_invalid_token(target)
        assert not await harness.end_with_invalid_token(target)
    await harness.follows.unfollow(fixture.match_id, gone.user_id, harness.clock.seconds())
    ended = await harness.activity(fixture, phone)
    assert ended is not None
    assert (ended.status, ended.end_reason) == (ENDED, EndReason.TOKEN_INVALID)
    await harness.clock.advance(CYCLE)
    await instance.orchestrator.run()
    assert [harness.events(device.start_token) for device in (phone, gone)] == [
        ["start", "start"],
        ["start"],
    ]
    await harness.register_activity(instance, fixture, phone)
    assert [await harness.status(fixture, device) for device in (phone, gone)] == [ACTIVE, ENDED]


async def test_repeatedly_invalid_tokens_restart_three_times_an_hour(
    harness: ActivitiesHarness,
) -> None:
    fixture = await harness.match()
    _, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    for _ in range(40):
        await instance.orchestrator.run()
        activity = await harness.activity(fixture, phone)
        assert activity is not None
        if activity.status is PENDING:
            await harness.register_activity(instance, fixture, phone)
            activity = await harness.activity(fixture, phone)
            assert activity is not None
            await harness.activities.end(
                activity, EndReason.TOKEN_INVALID, harness.clock.milliseconds()
            )
        await harness.clock.advance(CYCLE)
    assert len(harness.pushed(phone.start_token)) == 4


async def test_an_invalid_push_to_start_token_is_deleted(harness: ActivitiesHarness) -> None:
    """No start is sent until the app registers a new token."""
    fixture = await harness.match()
    _, [phone] = await harness.follower(fixture)
    harness.apns.simulator.devices.retire(phone.start_token)
    instance = harness.instance()
    await instance.orchestrator.run()
    [device] = await harness.devices.list_by_user(phone.user_id, harness.clock.seconds())
    assert device.push_to_start_token is None
    token = harness.apns.simulator.devices.issue(phone.device_id, TokenKind.START)
    now = harness.clock.milliseconds()
    await harness.devices.update_push_to_start(device, token, now, now // 1000 + 1000)
    await harness.clock.advance(600)
    await instance.orchestrator.run()
    assert harness.events(token) == ["start"]


async def test_an_activity_without_a_follow_is_ended(harness: ActivitiesHarness) -> None:
    """A crash during an unfollow leaves nothing on the screen."""
    fixture = await harness.match()
    instance = harness.instance()
    _, [phone] = await harness.follower(fixture)
    await instance.orchestrator.run()
    token = await harness.register_activity(instance, fixture, phone)
    await harness.follows.unfollow(fixture.match_id, phone.user_id, harness.clock.seconds())
    await harness.clock.advance(CYCLE)
    await instance.orchestrator.run()
    assert harness.events(token) == ["end"]
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.end_reason, activity.update_token) == (EndReason.USER_UNFOLLOW, None)


async def test_an_undelivered_end_is_sent_again(harness: ActivitiesHarness) -> None:
    """The record keeps the token until the end is delivered."""
    fixture = await harness.match()
    instance = harness.instance()
    _, [phone] = await harness.follower(fixture)
    await instance.orchestrator.run()
    token = await harness.register_activity(instance, fixture, phone)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    await harness.follows.unfollow(fixture.match_id, phone.user_id, harness.clock.seconds())
    # The activity is marked as ended, and then the process crashes.
    await harness.activities.end(activity, EndReason.USER_UNFOLLOW, harness.clock.milliseconds())
    await instance.orchestrator.run()
    assert harness.events(token) == []
    for _ in range(3):
        await harness.clock.advance(CYCLE)
        await instance.orchestrator.run()
    assert harness.events(token) == ["end"]


async def test_a_match_record_that_is_not_refreshed_is_taken_over(
    harness: ActivitiesHarness,
) -> None:
    """A record that is refreshed keeps its owner."""
    fixture = await harness.match()
    first, second = harness.instance("first"), harness.instance("second")
    await first.orchestrator.run()
    await harness.clock.advance(CYCLE)
    assert await harness.matches.renew(fixture.match_id, "first", harness.clock.milliseconds())
    await second.orchestrator.run()
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert match.owner == "first"
    await harness.clock.advance(CYCLE + 1)
    await second.orchestrator.run()
    taken = await harness.matches.get(fixture.match_id)
    assert taken == replace(
        match,
        owner="second",
        version=match.version + 1,
        last_updated_at=harness.clock.milliseconds(),
    )


async def test_a_failing_match_does_not_affect_the_others(
    harness: ActivitiesHarness, log_text: LogText
) -> None:
    """The display state of one match is broken; the failure is logged."""
    broken, other = await harness.match(), await harness.match()
    harness.contents[broken.match_id] = {"teams": 7}
    _, [failing_phone] = await harness.follower(broken)
    _, [other_phone] = await harness.follower(other)
    await harness.instance().orchestrator.run()
    assert [harness.events(phone.start_token) for phone in (failing_phone, other_phone)] == [
        [],
        ["start"],
    ]
    assert "Match processing failed" in log_text()
