"""The end of a match, and the channels of matches: every device knows, what was kept for it goes, and nothing is left behind."""

from dataclasses import replace

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import ActivityStatus, EndReason, Fixture, PollerState, StateHash
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.sim.apns.faults import PushFault
from tests.cricket import made_up
from tests.cricket.activities_harness import Phone, Stadium
from tests.cricket.activities_instance import Instance

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED


async def running(stadium: Stadium, instance: Instance) -> tuple[Fixture, Phone, str, Phone]:
    """A live match with a phone that shows it, by which token, and a phone that has not answered its start."""
    fixture = await stadium.match()
    _, [phone, silent] = await stadium.follower(fixture, 2)
    await instance.orchestrator.run()
    token = await stadium.runs(instance, fixture, phone)
    hashes = StateHashRepository(stadium.store)
    for view in ("neutral", "1", "2"):
        await hashes.put(StateHash(match_id=fixture.match_id, team_id=view, hash="x", updated_at=0))
    return fixture, phone, token, silent


async def over(
    stadium: Stadium, fixture: Fixture, status: MatchStatus = MatchStatus.FINISHED
) -> None:
    """The match leaves the feed."""
    stadium.score(fixture, "Lions won by 7 runs")
    await stadium.fixtures.update(fixture.match_id, status=status)
    await stadium.fixtures.archive(fixture.match_id, stadium.clock.milliseconds())


async def expect_cleaned_up(stadium: Stadium, fixture: Fixture, *, follows: int = 0) -> None:
    now = stadium.clock.seconds()
    assert len([each async for each in stadium.follows.of_match(fixture.match_id, now)]) == follows
    assert [each async for each in stadium.subscriptions.of_match(fixture.match_id, now)] == []
    hashes = StateHashRepository(stadium.store)
    assert [await hashes.get(fixture.match_id, view) for view in ("neutral", "1", "2")] == [
        None
    ] * 3
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.expires_at is not None) == (PollerState.ENDED, True)
    assert fixture.match_id not in {each.match_id for each in await stadium.matches.all_on()}


async def test_when_the_pipeline_has_told_everybody_what_is_left_is_noted(stadium: Stadium) -> None:
    """No second end for anybody; activities have ended with the match, and what was kept for it is gone."""
    instance = stadium.instance()
    fixture, phone, token, silent = await running(stadium, instance)
    await over(stadium, fixture)
    await instance.orchestrator.run()
    assert await stadium.status(fixture, phone) is ACTIVE
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert await stadium.matches.save(replace(match, poller_state=PollerState.ENDED)) is not None
    await instance.orchestrator.run()
    assert stadium.events(token) == []
    shown = [await stadium.shown(fixture, each) for each in (phone, silent)]
    assert [each and (each.status, each.end_reason, each.update_token) for each in shown] == [
        (ENDED, EndReason.MATCH_END, None)
    ] * 2
    await expect_cleaned_up(stadium, fixture)


async def test_when_the_pipeline_is_gone_the_devices_are_told_from_here(stadium: Stadium) -> None:
    """After a while that is the pipeline's: the final state stays on the screen for some minutes."""
    instance = stadium.instance()
    fixture, phone, token, _ = await running(stadium, instance)
    subscribed = stadium.update_token(phone)
    expires_at = stadium.clock.seconds() + 10_000
    await stadium.subscriptions.register(
        made_up.subscription(fixture.match_id, push_token=subscribed, expires_at=expires_at)
    )
    await over(stadium, fixture)
    await instance.orchestrator.run()
    await stadium.clock.advance(30)
    await instance.orchestrator.run()
    assert stadium.events(token) == []
    await stadium.clock.advance(30)
    for _ in range(2):
        await instance.orchestrator.run()
    for each in (token, subscribed):
        [aps] = stadium.pushed(each)
        assert (aps["event"], aps["content-state"]["lines"]["lockScreen"]) == (
            "end",
            "Lions won by 7 runs",
        )
        assert aps["dismissal-date"] - aps["timestamp"] == 900
    await expect_cleaned_up(stadium, fixture)


async def test_nothing_is_cleaned_up_before_everybody_knows(stadium: Stadium) -> None:
    """Who could not be told is told later; who can never be told is given up in the end."""
    instance = stadium.instance()
    fixture, phone, token, _ = await running(stadium, instance)
    await over(stadium, fixture)
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    stadium.apple.sim.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None)
    )
    # Not under its lock, which this clock would let expire while a real socket answers.
    await stadium.while_time_passes(instance.orchestrator.process(fixture.match_id))
    activity = await stadium.shown(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.end_reason, activity.update_token) == (
        ENDED,
        EndReason.MATCH_END,
        token,
    )
    assert fixture.match_id in {each.match_id for each in await stadium.matches.all_on()}
    stadium.apple.sim.faults.clear()
    await stadium.clock.advance(30)
    await instance.orchestrator.run()
    assert set(stadium.events(token)) == {"end"}
    await expect_cleaned_up(stadium, fixture)


async def test_a_dead_token_does_not_hold_up_the_end(stadium: Stadium) -> None:
    """There is nobody left to be told."""
    instance = stadium.instance()
    fixture, _, token, _ = await running(stadium, instance)
    stadium.apple.sim.devices.retire(token)
    await over(stadium, fixture)
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    await expect_cleaned_up(stadium, fixture)


@pytest.mark.parametrize("status", [MatchStatus.BREAK, MatchStatus.POSTPONED])
async def test_a_match_that_will_go_on_keeps_its_followers(
    stadium: Stadium, status: MatchStatus
) -> None:
    """For the night it is off the screen; when it is live again, it is started again, once."""
    instance = stadium.instance()
    fixture, phone, _, _ = await running(stadium, instance)
    await over(stadium, fixture, status)
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    assert await stadium.status(fixture, phone) is ENDED
    await expect_cleaned_up(stadium, fixture, follows=1)
    await stadium.clock.advance(12 * 3_600)
    now = stadium.clock.milliseconds()
    await stadium.fixtures.update(
        fixture.match_id, status=MatchStatus.IN_PLAY, live_updated_at=now, archived_at=None
    )
    heir = stadium.instance("heir")
    for _ in range(2):
        await heir.orchestrator.run()
    assert stadium.events(phone.start_token) == ["start", "start"]
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert (match.poller_state, match.owner, match.expires_at) == (
        PollerState.POLLING,
        "heir",
        None,
    )


async def test_a_replay_that_was_deleted_is_wound_up_like_any_match(stadium: Stadium) -> None:
    """Though nothing can be said of it any more."""
    instance = stadium.instance()
    fixture = await stadium.match(replay_of="1")
    _, [phone] = await stadium.follower(fixture)
    await instance.orchestrator.run()
    token = await stadium.runs(instance, fixture, phone)
    assert await stadium.fixtures.delete_replay(fixture.match_id)
    del stadium.contents[fixture.match_id]
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    assert stadium.events(token) == ["end"]
    await expect_cleaned_up(stadium, fixture)


async def test_a_match_that_is_over_for_the_pipeline_is_started_for_nobody(
    stadium: Stadium,
) -> None:
    """Even while its fixture still says that it is live."""
    instance = stadium.instance()
    fixture = await stadium.match()
    await instance.orchestrator.run()
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    await stadium.matches.save(replace(match, poller_state=PollerState.ENDED))
    _, [phone] = await stadium.follower(fixture)
    await stadium.clock.advance(300)
    await instance.orchestrator.run()
    assert stadium.events(phone.start_token) == []


async def test_devices_that_can_listen_to_a_channel_share_one(stadium: Stadium) -> None:
    """One channel for the match; who cannot, or is on a side, keeps a token.

    At the end, one request tells all listeners.
    """
    instance = stadium.instance(uses_channels=True)
    fixture = await stadium.match()
    follow, [old] = await stadium.follower(fixture)
    sided, _ = await stadium.follower(fixture, 0, team_id="1")
    new = [await stadium.phone(follow.user_id, os_version="18.1") for _ in range(3)]
    partisan = await stadium.phone(sided.user_id, os_version="18.1")
    await instance.orchestrator.run()
    match = await stadium.matches.get(fixture.match_id)
    assert match is not None
    assert match.channel_id is not None
    assert list(await stadium.apple.gateway.list_channels()) == [match.channel_id]
    assert [
        stadium.pushed(each.start_token)[0].get("input-push-channel")
        for each in (*new, old, partisan)
    ] == [
        match.channel_id,
        match.channel_id,
        match.channel_id,
        None,
        None,
    ]
    assert [await stadium.status(fixture, each) for each in (*new, old)] == [
        ACTIVE,
        ACTIVE,
        ACTIVE,
        PENDING,
    ]
    await over(stadium, fixture)
    await instance.orchestrator.run()
    await stadium.clock.advance(60)
    await instance.orchestrator.run()
    assert stadium.events(match.channel_id) == ["end"]
    assert [await stadium.status(fixture, each) for each in new] == [ENDED] * 3
    await expect_cleaned_up(stadium, fixture)
    for _ in range(2):
        assert match.channel_id in await stadium.apple.gateway.list_channels()
        await stadium.clock.advance(3_600)
        await instance.orchestrator.run()
    assert list(await stadium.apple.gateway.list_channels()) == []


async def test_without_channels_every_device_keeps_its_token(stadium: Stadium) -> None:
    """Where they are switched off, or cannot be had, devices of iOS 18 are started like the others."""
    fixture = await stadium.match()
    follow, _ = await stadium.follower(fixture, 0)
    phone = await stadium.phone(follow.user_id, os_version="18.1")
    await stadium.instance(uses_channels=False).orchestrator.run()
    assert stadium.pushed(phone.start_token)[0]["input-push-token"] == 1
    other = await stadium.match()
    follow, _ = await stadium.follower(other, 0)
    phone = await stadium.phone(follow.user_id, os_version="18.1")
    stadium.apple.sim.faults.add(
        PushFault(path="/1/apps", status=503, reason="ServiceUnavailable", times=None)
    )
    await stadium.while_time_passes(
        stadium.instance(uses_channels=True).orchestrator.process(other.match_id)
    )
    assert stadium.pushed(phone.start_token)[0]["input-push-token"] == 1
