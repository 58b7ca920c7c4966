"""Live Activities and active matches: every transition is one conditional write."""

import asyncio
from dataclasses import replace

import pytest

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    LiveActivity,
    PollerState,
    PushTarget,
)
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW

ACTIVE, PENDING, ENDED = ActivityStatus.ACTIVE, ActivityStatus.PENDING, ActivityStatus.ENDED


@pytest.fixture
def activities(store: Store) -> LiveActivityRepository:
    return LiveActivityRepository(store)


@pytest.fixture
def matches(store: Store) -> ActiveMatchRepository:
    return ActiveMatchRepository(store)


async def found(activities: LiveActivityRepository, made: LiveActivity) -> LiveActivity | None:
    return await activities.get(made.match_id, made.user_id, made.device_id, MOMENT)


async def test_one_of_many_concurrent_creates_succeeds(activities: LiveActivityRepository) -> None:
    """There is one record per match, user and device."""
    activity = factories.activity(factories.number())
    assert await found(activities, activity) is None
    assert sum(await asyncio.gather(*(activities.create(activity) for _ in range(10)))) == 1
    assert await found(activities, activity) == activity
    assert await activities.create(replace(activity, device_id=factories.name("device")))


async def test_one_of_many_concurrent_claims_succeeds(
    activities: LiveActivityRepository,
) -> None:
    """A claim is conditional on the number of starts and on the status."""
    activity = factories.activity(factories.number())
    once = replace(
        activity,
        starts=1,
        started_at=MOMENT + 1,
        updated_at=MOMENT + 1,
        channel_id="channel",
        shown="hash",
    )
    assert not await activities.claim_start(activity, once)
    await activities.create(activity)
    claims = await asyncio.gather(*(activities.claim_start(activity, once) for _ in range(10)))
    assert sum(claims) == 1
    assert await found(activities, activity) == once
    twice = replace(once, starts=2, channel_id=None, started_at=MOMENT + 2)
    assert await activities.claim_start(once, twice)
    assert not await activities.release_start(once, None)
    assert await activities.release_start(twice, None)
    assert await found(activities, activity) == replace(twice, started_at=None)
    assert await activities.activate(replace(activity, update_token="token"))
    assert not await activities.claim_start(twice, replace(twice, starts=3))
    assert not await activities.release_start(twice, None)


async def test_a_confirmation_activates_an_activity_on_a_channel(
    activities: LiveActivityRepository,
) -> None:
    """Not one with a token of its own, an ended or an expired one; a report makes it pending."""
    activity = factories.activity(factories.number(), channel_id="channel", starts=1)
    names = (activity.match_id, activity.user_id, activity.device_id)
    assert await activities.confirm(*names, MOMENT) is None
    await activities.create(activity)
    confirmed = replace(activity, status=ACTIVE, updated_at=MOMENT + 5)
    for _ in range(2):
        assert await activities.confirm(*names, MOMENT + 5) == confirmed
    assert await activities.confirm(*names, activity.expires_at * 1000) is None
    assert await activities.mark_missing(*names, MOMENT + 6)
    assert not await activities.mark_missing(*names, MOMENT + 6)
    assert await found(activities, activity) == replace(activity, updated_at=MOMENT + 6)
    await activities.end(activity, EndReason.MATCH_END, MOMENT + 7)
    assert await activities.confirm(*names, MOMENT + 8) is None
    other = factories.activity(factories.number())
    await activities.create(other)
    assert await activities.confirm(other.match_id, other.user_id, other.device_id, MOMENT) is None


async def test_a_token_activates_an_activity_and_can_be_rotated(
    activities: LiveActivityRepository,
) -> None:
    """Also if the app started it; the creation time is preserved."""
    made = factories.activity(factories.number(), status=ACTIVE, update_token="token-1")
    first = await activities.activate(made)
    assert first == made
    rotated = await activities.activate(
        replace(made, update_token="token-2", created_at=MOMENT + 9, updated_at=MOMENT + 9)
    )
    assert rotated == replace(made, update_token="token-2", updated_at=MOMENT + 9)
    assert [activity async for activity in activities.list_by_match(made.match_id, MOMENT)] == [
        rotated
    ]


@pytest.mark.parametrize("reason", list(EndReason))
async def test_one_of_many_concurrent_ends_sets_the_reason(
    activities: LiveActivityRepository, reason: EndReason
) -> None:
    """The token is preserved until the end is delivered; a late token does not reactivate it."""
    activity = factories.activity(factories.number(), status=ACTIVE, update_token="token")
    assert await activities.end(activity, reason, MOMENT) is None
    await activities.activate(activity)
    ends = await asyncio.gather(*(activities.end(activity, reason, MOMENT + 1) for _ in range(10)))
    assert [end for end in ends if end is not None] == [activity]
    owes = reason in {EndReason.MATCH_END, EndReason.USER_UNFOLLOW}
    over = replace(
        activity,
        status=ENDED,
        end_reason=reason,
        updated_at=MOMENT + 1,
        update_token="token" if owes else None,
    )
    assert await found(activities, activity) == over
    assert [await activities.mark_end_delivered(activity) for _ in range(2)] == [owes, False]
    assert await found(activities, activity) == replace(over, update_token=None)
    woken = await activities.activate(replace(activity, update_token="late", updated_at=MOMENT + 2))
    assert (woken is not None) == (reason is EndReason.TOKEN_INVALID)


async def test_a_rejected_token_does_not_end_an_activity_with_a_newer_one(
    activities: LiveActivityRepository,
) -> None:
    """The token was rotated before the rejection arrived."""
    activity = factories.activity(factories.number(), status=ACTIVE, update_token="old")
    await activities.activate(activity)
    await activities.activate(replace(activity, update_token="new"))
    assert await activities.end(activity, EndReason.TOKEN_INVALID, MOMENT, only_token="old") is None
    assert await found(activities, activity) == replace(activity, update_token="new")
    assert (
        await activities.end(activity, EndReason.TOKEN_INVALID, MOMENT, only_token="new")
        is not None
    )


async def test_an_activity_is_restarted_only_after_given_reasons(
    activities: LiveActivityRepository,
) -> None:
    """An expired one is always restarted."""
    activity = factories.activity(factories.number())
    await activities.create(activity)
    await activities.end(activity, EndReason.USER_UNFOLLOW, MOMENT)
    replacement = replace(activity, created_at=MOMENT + 5, updated_at=MOMENT + 5)
    assert not await activities.create(replacement)
    assert not await activities.create(replacement, (EndReason.TOKEN_INVALID,))
    assert await activities.create(replacement, (EndReason.TOKEN_INVALID, EndReason.USER_UNFOLLOW))
    assert await found(activities, activity) == replacement
    expired = activity.expires_at * 1000
    assert (
        await activities.get(activity.match_id, activity.user_id, activity.device_id, expired)
        is None
    )
    assert await activities.create(
        replace(activity, updated_at=expired, expires_at=activity.expires_at + DAY)
    )


async def test_targets_are_active_activities_with_few_fields(
    activities: LiveActivityRepository,
) -> None:
    """Pending, ended and expired activities are excluded."""
    match_id = factories.number()
    on, channelled, pending, over, expired = (
        factories.activity(match_id, user_id=f"user-{number}") for number in range(5)
    )
    on, channelled = (
        replace(on, update_token="token", team_id="1"),
        replace(channelled, channel_id="channel"),
    )
    for record in (on, over, replace(expired, expires_at=NOW)):
        await activities.activate(replace(record, status=ACTIVE, update_token="token"))
    for record in (pending, replace(channelled, status=ACTIVE)):
        await activities.create(record)
    await activities.end(over, EndReason.USER_DISMISSED, MOMENT)
    assert [record async for page in activities.targets(match_id, MOMENT) for record in page] == [
        PushTarget(
            match_id=match_id,
            user_id=on.user_id,
            device_id=on.device_id,
            team_id="1",
            update_token="token",
        ),
        PushTarget(
            match_id=match_id,
            user_id=channelled.user_id,
            device_id=channelled.device_id,
            team_id="neutral",
            channel_id="channel",
        ),
    ]
    everyone = [activity.user_id async for activity in activities.list_by_match(match_id, MOMENT)]
    assert everyone == [on.user_id, channelled.user_id, pending.user_id, over.user_id]


async def test_activities_of_a_user_exclude_those_of_others(
    activities: LiveActivityRepository,
) -> None:
    """Even with a common prefix of ids; a team change creates nothing."""
    match_id, user = factories.number(), factories.name("user")
    phone, tablet = (
        factories.activity(match_id, user_id=user, device_id=device)
        for device in ("phone", "tablet")
    )
    stranger = factories.activity(match_id, user_id=f"{user}#phone", device_id="phone")
    for activity in (phone, tablet, stranger):
        await activities.create(activity)
    assert await activities.list_by_user(match_id, user, MOMENT) == [phone, tablet]
    assert await activities.change_follow(phone, "2", AlertChoice.RESULT)
    assert await activities.list_by_user(match_id, user, MOMENT) == [
        replace(phone, team_id="2", alerts=AlertChoice.RESULT),
        tablet,
    ]
    missing = factories.activity(match_id)
    assert not await activities.change_follow(missing, "2", AlertChoice.RESULT)
    assert await found(activities, missing) is None


async def test_an_active_match_is_saved_only_in_the_version_read(
    matches: ActiveMatchRepository,
) -> None:
    """One of many concurrent saves succeeds; the others write nothing."""
    active_match = factories.active_match(
        previous_scores={"1": {"runs": 3, "wickets": 0}},
        cooldowns={"four:7": MOMENT},
        last_balls=({"id": 1, "runs": 4}, {"id": 2, "runs": 0}),
        extra={"seen": [1, 2]},
    )
    assert await matches.save(active_match) is None
    assert sum(await asyncio.gather(*(matches.create(active_match) for _ in range(5)))) == 1
    assert await matches.get(active_match.match_id) == active_match
    saves = await asyncio.gather(
        *(matches.save(replace(active_match, extra={"by": number})) for number in range(6))
    )
    [saved] = [save for save in saves if save is not None]
    assert saved.version == 1
    assert await matches.get(active_match.match_id) == saved
    assert await matches.save(active_match) is None


async def test_an_abandoned_match_is_taken_over(matches: ActiveMatchRepository) -> None:
    """One instance gets the whole state; the former owner can neither renew nor save."""
    active_match = factories.active_match(extra={"seen": [1]})
    await matches.create(active_match)
    assert await matches.renew(active_match.match_id, "instance-1", MOMENT + 1000)
    assert (
        await matches.take_over(active_match.match_id, "instance-2", MOMENT + 2000, MOMENT) is None
    )
    attempts = [
        matches.take_over(
            active_match.match_id, f"instance-{number}", MOMENT + 40_000, MOMENT + 10_000
        )
        for number in range(2, 8)
    ]
    [taken] = [activity for activity in await asyncio.gather(*attempts) if activity is not None]
    assert taken == replace(
        active_match, owner=taken.owner, last_updated_at=MOMENT + 40_000, version=1
    )
    assert not await matches.renew(active_match.match_id, "instance-1", MOMENT + 41_000)
    assert await matches.save(replace(active_match, extra={})) is None
    assert await matches.take_over(factories.number(), "instance-2", MOMENT, MOMENT) is None


async def test_a_match_has_one_channel_until_it_is_over(matches: ActiveMatchRepository) -> None:
    """Setting the channel increments the version."""
    active_match = factories.active_match()
    assert await matches.set_channel(active_match.match_id, "channel") is None
    await matches.create(active_match)
    channels = await asyncio.gather(
        *(matches.set_channel(active_match.match_id, f"channel-{number}") for number in range(5))
    )
    [with_channel] = [channel for channel in channels if channel is not None]
    assert await matches.get(active_match.match_id) == with_channel
    assert await matches.save(active_match) is None
    over = await matches.end(active_match.match_id, MOMENT + 9, NOW + DAY)
    assert over is not None
    assert (over.poller_state, over.channel_id, over.expires_at) == (
        PollerState.ENDED,
        None,
        NOW + DAY,
    )
    assert await matches.end(factories.number(), MOMENT, NOW) is None


async def test_a_match_that_continues_is_taken_over_again(matches: ActiveMatchRepository) -> None:
    """Ended matches are excluded; the next day of a long match is included."""
    made, other = factories.active_match(), factories.active_match()
    for activity in (made, other):
        await matches.create(activity)
    await matches.end(made.match_id, MOMENT + 9, NOW + DAY)
    ids = [match.match_id for match in await matches.list_unfinished()]
    assert other.match_id in ids
    assert made.match_id not in ids
    again = await matches.take_over(made.match_id, "instance-2", MOMENT + 10, MOMENT)
    assert again is not None
    assert (again.poller_state, again.expires_at) == (PollerState.POLLING, None)
    assert made.match_id in [match.match_id for match in await matches.list_unfinished()]
