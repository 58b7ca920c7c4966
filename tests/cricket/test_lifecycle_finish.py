"""The end of a match: all devices are notified and the temporary data is deleted."""

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import (
    STALE_MATCH_MS,
    ActiveMatch,
    ActivityStatus,
    EndReason,
    Fixture,
    PollerState,
    StateHash,
)
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.sim.apns.faults import PushFault
from tests.cricket import factories
from tests.cricket.activities_harness import ActivitiesHarness, Phone
from tests.cricket.activities_instance import Instance

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED


async def start_match(
    harness: ActivitiesHarness, instance: Instance
) -> tuple[Fixture, Phone, str, Phone]:
    """Return a live match, a phone that displays it with its token, and a phone without one."""
    fixture = await harness.match()
    _, [phone, silent] = await harness.follower(fixture, 2)
    await instance.orchestrator.run()
    token = await harness.register_activity(instance, fixture, phone)
    hashes = StateHashRepository(harness.store)
    for view in ("neutral", "1", "2"):
        await hashes.put(StateHash(match_id=fixture.match_id, team_id=view, hash="x", updated_at=0))
    return fixture, phone, token, silent


async def finish_match(
    harness: ActivitiesHarness, fixture: Fixture, status: MatchStatus = MatchStatus.FINISHED
) -> None:
    """Archive the match as if it left the feed."""
    harness.score(fixture, "Lions won by 7 runs")
    await harness.fixtures.update(fixture.match_id, status=status)
    await harness.fixtures.archive(fixture.match_id, harness.clock.milliseconds())


async def expect_cleaned_up(
    harness: ActivitiesHarness, fixture: Fixture, *, follows: int = 0
) -> None:
    now = harness.clock.seconds()
    assert (
        len([follow async for follow in harness.follows.list_by_match(fixture.match_id, now)])
        == follows
    )
    assert [item async for item in harness.subscriptions.list_by_match(fixture.match_id, now)] == []
    hashes = StateHashRepository(harness.store)
    assert [await hashes.get(fixture.match_id, view) for view in ("neutral", "1", "2")] == [
        None
    ] * 3
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.expires_at is not None) == (PollerState.ENDED, True)
    assert fixture.match_id not in {
        match.match_id for match in await harness.matches.list_unfinished()
    }


async def test_every_device_of_an_archived_match_gets_the_end_once(
    harness: ActivitiesHarness,
) -> None:
    """The final state stays on the screen for some minutes, and the temporary data is deleted."""
    instance = harness.instance()
    fixture, phone, token, silent = await start_match(harness, instance)
    subscribed = harness.update_token(phone)
    expires_at = harness.clock.seconds() + 10_000
    await harness.subscriptions.register(
        factories.subscription(fixture.match_id, push_token=subscribed, expires_at=expires_at)
    )
    await finish_match(harness, fixture)
    for _ in range(2):
        await instance.orchestrator.run()
        await harness.clock.advance(30)
    for target in (token, subscribed):
        [aps] = harness.pushed(target)
        assert (aps["event"], aps["content-state"]["lines"]["lockScreen"]) == (
            "end",
            "Lions won by 7 runs",
        )
        assert aps["dismissal-date"] - aps["timestamp"] == 900
    activities = [await harness.activity(fixture, device) for device in (phone, silent)]
    assert [
        activity and (activity.status, activity.end_reason, activity.update_token)
        for activity in activities
    ] == [(ENDED, EndReason.MATCH_END, None)] * 2
    await expect_cleaned_up(harness, fixture)


async def test_nothing_is_deleted_before_all_devices_have_the_end(
    harness: ActivitiesHarness,
) -> None:
    """An undelivered end is sent again later."""
    instance = harness.instance()
    fixture, phone, token, _ = await start_match(harness, instance)
    await finish_match(harness, fixture)
    harness.apns.simulator.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None)
    )
    # Without the lock, which would expire on this clock while the real socket responds.
    await harness.advance_until_done(instance.orchestrator.process(fixture.match_id))
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.end_reason, activity.update_token) == (
        ENDED,
        EndReason.MATCH_END,
        token,
    )
    assert fixture.match_id in {match.match_id for match in await harness.matches.list_unfinished()}
    harness.apns.simulator.faults.clear()
    await harness.clock.advance(30)
    await instance.orchestrator.run()
    assert set(harness.events(token)) == {"end"}
    await expect_cleaned_up(harness, fixture)


async def test_an_invalid_token_does_not_delay_the_end(harness: ActivitiesHarness) -> None:
    instance = harness.instance()
    fixture, _, token, _ = await start_match(harness, instance)
    harness.apns.simulator.devices.retire(token)
    await finish_match(harness, fixture)
    await instance.orchestrator.run()
    await harness.clock.advance(60)
    await instance.orchestrator.run()
    await expect_cleaned_up(harness, fixture)


@pytest.mark.parametrize("status", [MatchStatus.BREAK, MatchStatus.POSTPONED])
async def test_an_interrupted_match_keeps_its_followers(
    harness: ActivitiesHarness, status: MatchStatus
) -> None:
    """Its activities end for the night and start again, once, when it is live again."""
    instance = harness.instance()
    fixture, phone, _, _ = await start_match(harness, instance)
    await finish_match(harness, fixture, status)
    await instance.orchestrator.run()
    await harness.clock.advance(60)
    await instance.orchestrator.run()
    assert await harness.status(fixture, phone) is ENDED
    await expect_cleaned_up(harness, fixture, follows=1)
    await harness.clock.advance(12 * 3_600)
    now = harness.clock.milliseconds()
    await harness.fixtures.update(
        fixture.match_id, status=MatchStatus.IN_PLAY, live_updated_at=now, archived_at=None
    )
    successor = harness.instance("successor")
    for _ in range(2):
        await successor.orchestrator.run()
    assert harness.events(phone.start_token) == ["start", "start"]
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.owner, match.expires_at) == (
        PollerState.POLLING,
        "successor",
        None,
    )


async def test_a_deleted_replay_is_finished_like_any_match(harness: ActivitiesHarness) -> None:
    """Its display state does not exist any more."""
    instance = harness.instance()
    fixture = await harness.match(replay_of="1")
    _, [phone] = await harness.follower(fixture)
    await instance.orchestrator.run()
    token = await harness.register_activity(instance, fixture, phone)
    assert await harness.fixtures.delete_replay(fixture.match_id)
    del harness.contents[fixture.match_id]
    await instance.orchestrator.run()
    await harness.clock.advance(60)
    await instance.orchestrator.run()
    assert harness.events(token) == ["end"]
    await expect_cleaned_up(harness, fixture)


async def test_a_match_that_is_polled_before_its_first_sync_is_not_finished(
    harness: ActivitiesHarness,
) -> None:
    """At the first start, a poll may be faster than the sync of fixtures."""
    match_id, now = factories.number(), harness.clock.milliseconds()
    await harness.matches.create(ActiveMatch(match_id=match_id, last_updated_at=now, owner="one"))
    instance = harness.instance()
    await instance.orchestrator.process(match_id)
    record = await harness.matches.get(match_id)
    assert record is not None
    assert record.poller_state is PollerState.POLLING
    await harness.clock.advance(STALE_MATCH_MS / 1000)
    await instance.orchestrator.process(match_id)
    record = await harness.matches.get(match_id)
    assert record is not None
    assert record.poller_state is PollerState.ENDED


async def test_devices_with_ios_18_share_a_channel(harness: ActivitiesHarness) -> None:
    """Older devices and followers of a team keep a token.

    One request ends all subscribers of the channel.
    """
    instance = harness.instance(uses_channels=True)
    fixture = await harness.match()
    follow, [old] = await harness.follower(fixture)
    sided, _ = await harness.follower(fixture, 0, team_id="1")
    new = [await harness.phone(follow.user_id, os_version="18.1") for _ in range(3)]
    partisan = await harness.phone(sided.user_id, os_version="18.1")
    await instance.orchestrator.run()
    match = await harness.matches.get(fixture.match_id)
    assert match is not None
    assert match.channel_id is not None
    assert list(await harness.apns.gateway.list_channels()) == [match.channel_id]
    assert [
        harness.pushed(device.start_token)[0].get("input-push-channel")
        for device in (*new, old, partisan)
    ] == [
        match.channel_id,
        match.channel_id,
        match.channel_id,
        None,
        None,
    ]
    for device in new:
        await instance.activities.confirm(fixture, device.user_id, device.device_id)
    assert [await harness.status(fixture, device) for device in (*new, old)] == [
        ACTIVE,
        ACTIVE,
        ACTIVE,
        PENDING,
    ]
    await finish_match(harness, fixture)
    await instance.orchestrator.run()
    await harness.clock.advance(60)
    await instance.orchestrator.run()
    assert harness.events(match.channel_id) == ["end"]
    assert [await harness.status(fixture, device) for device in new] == [ENDED] * 3
    await expect_cleaned_up(harness, fixture)
    for _ in range(2):
        assert match.channel_id in await harness.apns.gateway.list_channels()
        await harness.clock.advance(3_600)
        await instance.orchestrator.run()
    assert list(await harness.apns.gateway.list_channels()) == []


async def test_without_channels_every_device_has_a_token(harness: ActivitiesHarness) -> None:
    """Channels may be disabled or unavailable."""
    fixture = await harness.match()
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    await harness.instance(uses_channels=False).orchestrator.run()
    assert harness.pushed(phone.start_token)[0]["input-push-token"] == 1
    other = await harness.match()
    follow, _ = await harness.follower(other, 0)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    harness.apns.simulator.faults.add(
        PushFault(path="/1/apps", status=503, reason="ServiceUnavailable", times=None)
    )
    await harness.advance_until_done(
        harness.instance(uses_channels=True).orchestrator.process(other.match_id)
    )
    assert harness.pushed(phone.start_token)[0]["input-push-token"] == 1
