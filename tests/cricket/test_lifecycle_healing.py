"""A start that its device does not confirm is repeated: not too early, not too often, never twice.

All tests run on every engine.
"""

import asyncio

import pytest

from tally.cricket.model.records import NEUTRAL, ActivityStatus, EndReason, Fixture
from tally.errors import Conflict
from tally.sim.apns.faults import PushFault
from tests.cricket.activities_harness import ActivitiesHarness, Phone
from tests.cricket.activities_instance import Instance

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED
CYCLE = 30


@pytest.fixture
def harness(harness_per_engine: ActivitiesHarness) -> ActivitiesHarness:
    return harness_per_engine


async def channel_follower(
    harness: ActivitiesHarness, fixture: Fixture, instance: Instance
) -> Phone:
    """Create a follower with iOS 18, whose phone has got a start on the match's channel."""
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    await instance.orchestrator.process(fixture.match_id)
    [aps] = harness.pushed(phone.start_token)
    assert "input-push-channel" in aps
    return phone


async def starts_at(
    harness: ActivitiesHarness,
    fixture: Fixture,
    phone: Phone,
    cycles: int,
    *instances: Instance,
    step: int = CYCLE,
) -> list[int]:
    """Run cycles on these instances; return the seconds at which starts were sent."""
    at: list[int] = []
    for cycle in range(cycles):
        before = len(harness.pushed(phone.start_token))
        await asyncio.gather(
            *(instance.orchestrator.process(fixture.match_id) for instance in instances)
        )
        at += [cycle * step] * (len(harness.pushed(phone.start_token)) - before)
        await harness.clock.advance(step)
    return at


async def test_unconfirmed_starts_are_repeated_three_times_an_hour(
    harness: ActivitiesHarness,
) -> None:
    """With two concurrent instances: five minutes apart, then when the hour has passed."""
    fixture = await harness.match()
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    instances = [harness.instance(name, uses_channels=True) for name in ("one", "two")]
    at = await starts_at(harness, fixture, phone, 41, *instances, step=100)
    assert at == [0, 300, 600, 900, 3_900]
    assert await harness.status(fixture, phone) is PENDING


async def test_an_accepted_start_is_active_only_when_the_device_confirms_it(
    harness: ActivitiesHarness,
) -> None:
    """Then it is not repeated; a second confirmation changes nothing."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    assert await harness.status(fixture, phone) is PENDING
    for _ in range(2):
        await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    assert await harness.status(fixture, phone) is ACTIVE
    assert await starts_at(harness, fixture, phone, 8, instance, step=100) == []


async def test_a_late_confirmation_stops_the_restarts(harness: ActivitiesHarness) -> None:
    """The first start arrived although it was not confirmed in time."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    await harness.clock.advance(300)
    await instance.orchestrator.process(fixture.match_id)
    await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    assert await starts_at(harness, fixture, phone, 8, instance, step=100) == []
    assert harness.events(phone.start_token) == ["start", "start"]


async def test_the_limit_is_per_device_not_per_match(harness: ActivitiesHarness) -> None:
    """Each match is started; then three starts are repeated, whichever match they are for."""
    instance = harness.instance(uses_channels=True)
    fixtures = [await harness.match() for _ in range(3)]
    follow, _ = await harness.follower(fixtures[0], 0)
    for fixture in fixtures[1:]:
        await harness.follower(fixture, 0, user_id=follow.user_id)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    for _ in range(10):
        await asyncio.gather(
            *(instance.orchestrator.process(fixture.match_id) for fixture in fixtures)
        )
        await harness.clock.advance(100)
    assert len(harness.pushed(phone.start_token)) == 3 + 3


async def test_a_start_without_a_response_is_not_sent_again_at_once(
    harness: ActivitiesHarness,
) -> None:
    """APNs may have accepted it: here it has. The next one follows after five minutes."""
    fixture = await harness.match()
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id)
    harness.apns.simulator.faults.add(PushFault(token=phone.start_token, cut="after"))
    instance = harness.instance()
    await harness.advance_until_done(instance.orchestrator.process(fixture.match_id))
    assert harness.events(phone.start_token) == ["start"]
    [again] = await starts_at(harness, fixture, phone, 11, instance)
    assert 300 - 2 * CYCLE <= again <= 300


async def test_a_start_that_apns_refuses_is_repeated_in_the_next_cycle(
    harness: ActivitiesHarness,
) -> None:
    """It certainly did not arrive, so it does not count as a start."""
    fixture = await harness.match()
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id)
    harness.apns.simulator.faults.add(
        PushFault(token=phone.start_token, status=503, reason="ServiceUnavailable", times=None)
    )
    instance = harness.instance()
    for _ in range(3):
        await harness.advance_until_done(instance.orchestrator.process(fixture.match_id))
        await harness.clock.advance(CYCLE)
    harness.apns.simulator.faults.clear()
    at = await starts_at(harness, fixture, phone, 19, instance, step=100)
    assert at == [0, 300, 600, 900]


async def test_a_start_to_a_phone_that_was_offline_expires_before_the_next(
    harness: ActivitiesHarness,
) -> None:
    """A phone that comes back gets one start, not all that it missed."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    devices = harness.apns.simulator.devices
    follow, _ = await harness.follower(fixture, 0)
    phone = await harness.phone(follow.user_id, os_version="18.1")
    devices.set_online(phone.device_id, is_online=False)
    mailbox = devices.mailbox("activities")
    while not mailbox.is_empty:
        await mailbox.take()
    assert await starts_at(harness, fixture, phone, 14, instance) == [0, 300]
    devices.set_online(phone.device_id, is_online=True)
    delivered = [push for push in await mailbox.take() if push.device == phone.device_id]
    assert len(delivered) == 1
    await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    assert await harness.status(fixture, phone) is ACTIVE


async def test_an_activity_that_ios_ended_is_started_again(harness: ActivitiesHarness) -> None:
    """On a channel the app reports it; a repeated report changes nothing."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    await harness.clock.advance(3_000)
    for _ in range(2):
        await instance.activities.report_ended(fixture.match_id, phone.user_id, phone.device_id)
    assert await starts_at(harness, fixture, phone, 5, instance) == [0]


async def test_eight_hours_after_the_start_an_activity_on_a_channel_is_started_again(
    harness: ActivitiesHarness,
) -> None:
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    await harness.clock.advance(8 * 3_600 - CYCLE)
    assert await starts_at(harness, fixture, phone, 3, instance) == [CYCLE]


async def test_a_team_chosen_during_the_match_replaces_the_activity_on_the_channel(
    harness: ActivitiesHarness,
) -> None:
    """The new one has a token and displays the team's view; it is started once."""
    fixture = await harness.match()
    instances = [harness.instance(name, uses_channels=True) for name in ("one", "two")]
    phone = await channel_follower(harness, fixture, instances[0])
    await instances[0].activities.confirm(fixture, phone.user_id, phone.device_id)
    now = harness.clock.seconds()
    follow = await harness.follows.change(fixture.match_id, phone.user_id, now, team_id="2")
    assert follow is not None
    await asyncio.gather(
        *(instance.activities.on_followed(fixture, follow) for instance in instances),
        *(instance.orchestrator.process(fixture.match_id) for instance in instances),
    )
    first, second = harness.pushed(phone.start_token)
    assert "input-push-channel" in first
    assert (second["input-push-token"], second["attributes"]["teamId"]) == (1, "2")
    token = await harness.register_activity(instances[1], fixture, phone)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.team_id, activity.update_token, activity.channel_id) == (
        ACTIVE,
        "2",
        token,
        None,
    )


async def test_a_crash_after_the_choice_of_a_team_is_repaired(harness: ActivitiesHarness) -> None:
    """The follow has the team, and no start was sent: the next sweep replaces the activity."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    now = harness.clock.seconds()
    assert await harness.follows.change(fixture.match_id, phone.user_id, now, team_id="1")
    assert await starts_at(harness, fixture, phone, 5, instance) == [0]
    assert harness.pushed(phone.start_token)[-1]["attributes"]["teamId"] == "1"


async def test_a_confirmation_without_a_running_activity_is_rejected(
    harness: ActivitiesHarness,
) -> None:
    """Unknown, unfollowed, ended and foreign ones; one with its own token stays pending."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    for user_id, device_id in (
        ("stranger", phone.device_id),
        (phone.user_id, "another-device"),
    ):
        with pytest.raises(Conflict, match="ended"):
            await instance.activities.confirm(fixture, user_id, device_id)
    await instance.activities.dismiss(fixture.match_id, phone.user_id, phone.device_id)
    with pytest.raises(Conflict, match="ended"):
        await instance.activities.confirm(fixture, phone.user_id, phone.device_id)
    _, [old] = await harness.follower(fixture)
    await instance.orchestrator.process(fixture.match_id)
    activity = await instance.activities.confirm(fixture, old.user_id, old.device_id)
    assert (activity.status, activity.team_id) == (PENDING, NEUTRAL)


async def test_an_ended_activity_is_not_revived_by_a_report(harness: ActivitiesHarness) -> None:
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    phone = await channel_follower(harness, fixture, instance)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    await harness.activities.end(activity, EndReason.USER_UNFOLLOW, harness.clock.milliseconds())
    await instance.activities.report_ended(fixture.match_id, phone.user_id, phone.device_id)
    assert await harness.status(fixture, phone) is ENDED
