"""Live Activities from the follow to the end, as users and their apps drive them."""

from dataclasses import replace

import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import NEUTRAL, ActivityStatus, EndReason, PushTarget
from tally.errors import Conflict
from tally.sim.apns.faults import PushFault
from tests.cricket import factories
from tests.cricket.activities_harness import ActivitiesHarness

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED


async def test_following_a_live_match_starts_it_on_each_device(harness: ActivitiesHarness) -> None:
    """Each start is sent immediately and once.

    A device without a push-to-start token is skipped.
    """
    fixture = await harness.match()
    follow, phones = await harness.follower(fixture, 2)
    now = harness.clock.milliseconds()
    await harness.devices.register(
        factories.device(follow.user_id, updated_at=now), is_only_one=False
    )
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    await instance.activities.on_followed(fixture, follow)
    await instance.orchestrator.run()
    assert [harness.events(phone.start_token) for phone in phones] == [["start"], ["start"]]
    assert [await harness.status(fixture, phone) for phone in phones] == [PENDING, PENDING]
    assert harness.apns.simulator.log.accepted == 2


async def test_a_new_device_starts_the_matches_its_owner_follows(
    harness: ActivitiesHarness,
) -> None:
    """Matches that are not live or not followed are not started."""
    fixture, coming, strange = (
        await harness.match(),
        await harness.match(live_updated_at=None),
        await harness.match(),
    )
    follow, [phone] = await harness.follower(fixture)
    await harness.follower(coming, 0, user_id=follow.user_id)
    instance = harness.instance()
    await instance.activities.on_device_ready(follow.user_id)
    await harness.register_activity(instance, fixture, phone)
    tablet = await harness.phone(follow.user_id)
    for _ in range(2):
        await instance.activities.on_device_ready(follow.user_id)
    assert [harness.events(device.start_token) for device in (phone, tablet)] == [
        ["start"],
        ["start"],
    ]
    statuses = [await harness.status(match, tablet) for match in (fixture, coming, strange)]
    assert statuses == [PENDING, None, None]


async def test_each_device_has_its_own_activity_and_token(harness: ActivitiesHarness) -> None:
    """Ending the activity on one device does not affect the other."""
    fixture = await harness.match()
    follow, [phone, tablet] = await harness.follower(fixture, 2)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    first, second = (
        await harness.register_activity(instance, fixture, phone),
        await harness.register_activity(instance, fixture, tablet),
    )
    now = harness.clock.milliseconds()
    pages = harness.activities.targets(fixture.match_id, now)
    targets = {target.device_id: target.update_token async for page in pages for target in page}
    assert targets == {phone.device_id: first, tablet.device_id: second}
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    await harness.activities.end(activity, EndReason.TOKEN_INVALID, now, only_token=first)
    assert [await harness.status(fixture, device) for device in (phone, tablet)] == [ENDED, ACTIVE]


async def test_registering_a_token_sends_what_changed_since_the_start(
    harness: ActivitiesHarness,
) -> None:
    """Nothing is sent if nothing changed, because the start displayed it."""
    fixture = await harness.match()
    follow, [prompt, slow] = await harness.follower(fixture, 2)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    early = await harness.register_activity(instance, fixture, prompt)
    harness.score(fixture, "LIO 4/0")
    late = await harness.register_activity(instance, fixture, slow)
    assert harness.events(early) == []
    [aps] = harness.pushed(late)
    assert (aps["event"], aps["content-state"]["lines"]["lockScreen"]) == ("update", "LIO 4/0")


async def test_a_state_too_large_for_a_start_is_completed_by_an_update(
    harness: ActivitiesHarness,
) -> None:
    """An update has more space than a start, so that the registration of the token completes it."""
    fixture = await harness.match()
    harness.contents[fixture.match_id] |= {"need": "n" * 1_500, "result": "r" * 1_500}
    follow, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await harness.register_activity(instance, fixture, phone)
    [started], [updated] = harness.pushed(phone.start_token), harness.pushed(token)
    assert {"need", "result"} & started["content-state"].keys() == {"result"}
    assert {"need", "result"} <= updated["content-state"].keys()
    assert max(len(seen.payload) for seen in harness.apns.simulator.log.entries) <= 4096


async def test_an_activity_started_by_the_app_is_registered(
    harness: ActivitiesHarness,
) -> None:
    """No start was sent, so the current state is sent on registration."""
    fixture = await harness.match()
    _, [phone] = await harness.follower(fixture, team_id="1")
    token = await harness.register_activity(harness.instance(), fixture, phone)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.update_token, activity.team_id) == (ACTIVE, token, "1")
    assert [aps["content-state"]["view"] for aps in harness.pushed(token)] == ["1"]


async def test_a_rotated_token_replaces_the_old_one_in_place(harness: ActivitiesHarness) -> None:
    """The record keeps its identity and nothing is pushed.

    A late error for the old token is ignored.
    """
    fixture = await harness.match()
    follow, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    old = await harness.register_activity(instance, fixture, phone)
    before = await harness.activity(fixture, phone)
    await harness.clock.advance(5)
    new = await harness.register_activity(instance, fixture, phone)
    after = await harness.activity(fixture, phone)
    assert before is not None
    assert after == replace(before, update_token=new, updated_at=harness.clock.milliseconds())
    target = PushTarget(
        match_id=fixture.match_id,
        user_id=phone.user_id,
        device_id=phone.device_id,
        team_id=NEUTRAL,
        update_token=old,
    )
    assert not await harness.end_with_invalid_token(target)
    assert await harness.status(fixture, phone) is ACTIVE
    assert harness.events(new) == []


async def test_dismissing_an_activity_ends_it_and_unfollows(harness: ActivitiesHarness) -> None:
    """The other device gets an end push, this one does not. A repetition is not an error."""
    fixture = await harness.match()
    follow, [phone, tablet] = await harness.follower(fixture, 2)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    dismissed, other = (
        await harness.register_activity(instance, fixture, phone),
        await harness.register_activity(instance, fixture, tablet),
    )
    for _ in range(2):
        await instance.activities.dismiss(fixture.match_id, phone.user_id, phone.device_id)
    activities = [await harness.activity(fixture, device) for device in (phone, tablet)]
    assert [activity and activity.end_reason for activity in activities] == [
        EndReason.USER_DISMISSED,
        EndReason.USER_UNFOLLOW,
    ]
    assert (harness.events(dismissed), harness.events(other)) == ([], ["end"])
    assert (
        await harness.follows.get(fixture.match_id, phone.user_id, harness.clock.seconds()) is None
    )
    await harness.clock.advance(600)
    await instance.orchestrator.run()
    assert harness.events(phone.start_token) == ["start"]


async def test_unfollowing_ends_the_activities_on_all_devices(harness: ActivitiesHarness) -> None:
    """It ends the subscriptions of the user too, and does not affect other users."""
    fixture = await harness.match()
    follow, [phone, tablet] = await harness.follower(fixture, 2)
    stranger, [other] = await harness.follower(fixture)
    instance = harness.instance()
    for follower in (follow, stranger):
        await instance.activities.on_followed(fixture, follower)
    tokens = [
        await harness.register_activity(instance, fixture, device) for device in (phone, other)
    ]
    subscribed = harness.update_token(tablet)
    now = harness.clock.milliseconds()
    await harness.subscriptions.register(
        factories.subscription(
            fixture.match_id,
            user_id=follow.user_id,
            push_token=subscribed,
            expires_at=now // 1000 + 1000,
        )
    )
    await harness.follows.unfollow(fixture.match_id, follow.user_id, now // 1000)
    for _ in range(2):
        await instance.activities.on_unfollowed(
            fixture.match_id, follow.user_id, EndReason.USER_UNFOLLOW
        )
    assert [harness.events(token) for token in (*tokens, subscribed)] == [["end"], [], ["end"]]
    [aps] = harness.pushed(tokens[0])
    assert aps["dismissal-date"] < aps["timestamp"]
    activities = [await harness.activity(fixture, device) for device in (phone, tablet)]
    assert [
        activity and (activity.status, activity.end_reason, activity.update_token)
        for activity in activities
    ] == [(ENDED, EndReason.USER_UNFOLLOW, None)] * 2
    assert [
        subscription
        async for subscription in harness.subscriptions.list_by_match(fixture.match_id, now // 1000)
    ] == []


async def test_following_again_starts_again(harness: ActivitiesHarness) -> None:
    """The reason of the previous end does not matter."""
    fixture = await harness.match()
    follow, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    await harness.register_activity(instance, fixture, phone)
    await instance.activities.dismiss(fixture.match_id, phone.user_id, phone.device_id)
    await harness.follows.follow(follow)
    await instance.activities.on_followed(fixture, follow)
    assert harness.events(phone.start_token) == ["start", "start"]
    assert await harness.status(fixture, phone) is PENDING


@pytest.mark.parametrize("why", ["unfollowed", "over", "ended"])
async def test_registering_a_token_after_the_end_is_rejected(
    harness: ActivitiesHarness, why: str
) -> None:
    """The start was in flight when the activity ended: the device gets an end push."""
    fixture = await harness.match()
    follow, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    if why == "unfollowed":
        await harness.follows.unfollow(fixture.match_id, follow.user_id, harness.clock.seconds())
    elif why == "over":
        fixture = replace(fixture, status=MatchStatus.FINISHED)
    else:
        activity = await harness.activity(fixture, phone)
        assert activity is not None
        await harness.activities.end(activity, EndReason.MATCH_END, harness.clock.milliseconds())
    token = harness.update_token(phone)
    with pytest.raises(Conflict, match="has ended") as rejected:
        await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
    assert rejected.value.code == "activity_ended"
    assert harness.events(token) == ["end"]
    assert await harness.status(fixture, phone) is not ACTIVE


async def test_changing_the_team_updates_the_activity(harness: ActivitiesHarness) -> None:
    """The new view is sent immediately, without a new start, and used for all later pushes."""
    fixture = await harness.match()
    follow, [phone, waiting] = await harness.follower(fixture, 2)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await harness.register_activity(instance, fixture, phone)
    await instance.activities.on_followed(fixture, replace(follow, team_id="2"))
    assert [(aps["event"], aps["content-state"]["view"]) for aps in harness.pushed(token)] == [
        ("update", "2")
    ]
    activities = [await harness.activity(fixture, device) for device in (phone, waiting)]
    assert [activity and (activity.status, activity.team_id) for activity in activities] == [
        (ACTIVE, "2"),
        (PENDING, "2"),
    ]
    assert harness.events(waiting.start_token) == ["start"]


async def test_an_update_to_an_invalid_token_ends_the_activity(harness: ActivitiesHarness) -> None:
    """The token was invalid on registration: the next cycle starts the activity again."""
    fixture = await harness.match()
    _, [phone] = await harness.follower(fixture)
    token = harness.update_token(phone)
    harness.apns.simulator.devices.retire(token)
    instance = harness.instance()
    await instance.activities.register(fixture, phone.user_id, phone.device_id, token, NEUTRAL)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.end_reason) == (ENDED, EndReason.TOKEN_INVALID)
    await harness.clock.advance(30)
    await instance.orchestrator.run()
    assert harness.events(phone.start_token) == ["start"]


async def test_a_silent_push_service_does_not_block_requests(harness: ActivitiesHarness) -> None:
    """The unfollow completes; the orchestrator sends the end later."""
    fixture = await harness.match()
    follow, [phone] = await harness.follower(fixture)
    instance = harness.instance()
    await instance.activities.on_followed(fixture, follow)
    token = await harness.register_activity(instance, fixture, phone)
    harness.apns.simulator.faults.add(
        PushFault(token=token, status=503, reason="ServiceUnavailable", times=None)
    )
    await harness.follows.unfollow(fixture.match_id, follow.user_id, harness.clock.seconds())
    unfollowing = instance.activities.on_unfollowed(
        fixture.match_id, follow.user_id, EndReason.USER_UNFOLLOW
    )
    await harness.advance_until_done(unfollowing)
    activity = await harness.activity(fixture, phone)
    assert activity is not None
    assert (activity.status, activity.update_token) == (ENDED, token)
    harness.apns.simulator.faults.clear()
    await harness.clock.advance(60)
    await instance.orchestrator.run()
    # Twice if the push that timed out was in flight.
    assert set(harness.events(token)) == {"end"}
