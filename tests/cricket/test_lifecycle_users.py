"""Devices that change hands, users who sign out or delete their data, and limits per user.

All tests run on every engine.
"""

from dataclasses import replace
from operator import attrgetter
from typing import cast

import pytest

from tally.cricket.model.errors import MAX_ACTIVITIES_PER_USER
from tally.cricket.model.records import NEUTRAL, ActivityStatus, Fixture
from tally.cricket.repository import subscriptions
from tally.cricket.repository.deleted_follows import DeletedFollowRepository
from tally.cricket.service.activities import follows
from tally.cricket.service.activities.devices import AppInstallation, DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.errors import Conflict, NotFound
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.activities_harness import ActivitiesHarness, Phone
from tests.cricket.activities_instance import Instance
from tests.cricket.faulty_engines import InterleavingEngine

PENDING, ACTIVE, ENDED = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.ENDED


@pytest.fixture
def harness(harness_per_engine: ActivitiesHarness) -> ActivitiesHarness:
    return harness_per_engine


def device_service(harness: ActivitiesHarness, instance: Instance) -> DeviceService:
    return DeviceService(harness.devices, harness.clock, False, instance.activities)


def follow_service(harness: ActivitiesHarness, instance: Instance) -> FollowService:
    return FollowService(
        harness.follows,
        harness.fixtures,
        harness.subscriptions,
        harness.clock,
        instance.activities,
    )


def installation(phone: Phone, **changes: str) -> AppInstallation:
    values = {
        "device_token": phone.device_token,
        "device_id": phone.device_id,
        "platform": "ios",
    } | changes
    return AppInstallation(**values)


async def running_phone(
    harness: ActivitiesHarness, fixture: Fixture, instance: Instance
) -> tuple[Phone, str]:
    """Create a follower whose phone displays the match; return the phone and its update token."""
    _, [phone] = await harness.follower(fixture)
    await instance.orchestrator.process(fixture.match_id)
    return phone, await harness.register_activity(instance, fixture, phone)


@pytest.mark.parametrize("shared", ["device_token", "device_id"])
async def test_a_device_belongs_to_the_last_user_who_registered_it(
    harness: ActivitiesHarness, shared: str
) -> None:
    """The first user's activity ends on it, and no start or notification of theirs goes there."""
    fixture = await harness.match()
    instance = harness.instance()
    phone, token = await running_phone(harness, fixture, instance)
    _, [elsewhere] = await harness.follower(fixture, user_id=phone.user_id)
    await harness.clock.advance(1)
    changes = {
        "device_token": {"device_id": factories.name("phone")},
        "device_id": {"device_token": factories.name("token")},
    }
    second = factories.name("user")
    devices = device_service(harness, instance)
    await devices.register(second, installation(phone, **changes[shared]))
    assert harness.events(token) == ["end"]
    assert await harness.status(fixture, phone) is ENDED
    now = harness.clock.seconds()
    [left] = await harness.devices.list_by_user(phone.user_id, now)
    assert left.device_id == elsewhere.device_id
    assert len(await harness.devices.list_by_user(second, now)) == 1
    await harness.clock.advance(301)
    await instance.orchestrator.process(fixture.match_id)
    assert harness.events(phone.start_token) == ["start"]
    # The first user signs in again.
    await devices.register(phone.user_id, installation(phone))
    await devices.update_push_to_start(
        phone.user_id, phone.start_token, device_token=None, device_id=phone.device_id
    )
    assert harness.events(phone.start_token) == ["start", "start"]
    assert await harness.devices.list_by_user(second, now) == []


async def test_a_push_to_start_token_belongs_to_the_last_user_who_set_it(
    harness: ActivitiesHarness,
) -> None:
    fixture = await harness.match()
    instance = harness.instance()
    phone, token = await running_phone(harness, fixture, instance)
    await harness.clock.advance(1)
    second, devices = factories.name("user"), device_service(harness, instance)
    other = installation(
        phone, device_id=factories.name("phone"), device_token=factories.name("token")
    )
    await devices.register(second, other)
    assert harness.events(token) == []
    await devices.update_push_to_start(
        second, phone.start_token, device_token=None, device_id=other.device_id
    )
    assert harness.events(token) == ["end"]
    assert await harness.devices.list_by_user(phone.user_id, harness.clock.seconds()) == []


async def test_an_older_registration_does_not_take_a_device_back(
    harness: ActivitiesHarness,
) -> None:
    """Of two users who register a device at about the same time, the later one keeps it."""
    _, [phone] = await harness.follower(await harness.match())
    assert (
        await harness.devices.hand_over(
            (phone.user_id, phone.device_token), harness.clock.milliseconds() - 1
        )
        is None
    )
    assert await harness.devices.list_by_user(phone.user_id, harness.clock.seconds())


async def test_signing_out_ends_the_activities_on_that_device_only(
    harness: ActivitiesHarness,
) -> None:
    """The follow and the other device are not affected, and nothing is started again."""
    fixture = await harness.match()
    instance = harness.instance()
    _, [phone, tablet] = await harness.follower(fixture, 2)
    await instance.orchestrator.process(fixture.match_id)
    tokens = [
        await harness.register_activity(instance, fixture, device) for device in (phone, tablet)
    ]
    await device_service(harness, instance).delete(
        phone.user_id, device_token=None, device_id=phone.device_id
    )
    await harness.clock.advance(301)
    await instance.orchestrator.process(fixture.match_id)
    assert [harness.events(token) for token in tokens] == [["end"], []]
    assert [await harness.status(fixture, device) for device in (phone, tablet)] == [ENDED, ACTIVE]
    assert harness.events(phone.start_token) == ["start"]


async def test_activity_tokens_per_user_are_limited(harness: ActivitiesHarness) -> None:
    """Beyond the limit: 409. Registered ones still rotate; unfollowing and dismissing work."""
    fixture = await harness.match()
    instance = harness.instance()
    follow, _ = await harness.follower(fixture, 0)
    for number in range(MAX_ACTIVITIES_PER_USER):
        await instance.activities.register(
            fixture, follow.user_id, f"device-{number}", f"{number:064x}", NEUTRAL
        )
    for number in range(MAX_ACTIVITIES_PER_USER, MAX_ACTIVITIES_PER_USER + 3):
        with pytest.raises(Conflict, match="most"):
            await instance.activities.register(
                fixture, follow.user_id, f"device-{number}", f"{number:064x}", NEUTRAL
            )
    await instance.activities.register(fixture, follow.user_id, "device-0", "ab" * 32, NEUTRAL)
    await instance.activities.on_followed(fixture, follow)
    await instance.activities.dismiss(fixture.match_id, follow.user_id, "device-1")
    now = harness.clock.milliseconds()
    found = await harness.activities.list_by_user(fixture.match_id, follow.user_id, now)
    assert {activity.status for activity in found} == {ENDED}


async def test_subscriptions_per_user_are_limited(harness: ActivitiesHarness) -> None:
    fixture = await harness.match()
    instance = harness.instance()
    user_id = factories.name("user")
    service = follow_service(harness, instance)
    for number in range(MAX_ACTIVITIES_PER_USER):
        await service.subscribe(fixture.match_id, user_id, f"{number:064x}", None)
    with pytest.raises(Conflict, match="most"):
        await service.subscribe(fixture.match_id, user_id, "ff" * 32, None)
    await service.subscribe(fixture.match_id, user_id, f"{0:064x}", None)


async def test_subscriptions_for_other_matches_do_not_hide_the_limit(
    harness: ActivitiesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with more subscriptions than one query reads still has a limit for each match."""
    monkeypatch.setattr(subscriptions, "MAX_PER_USER", 6)
    monkeypatch.setattr(follows, "MAX_ACTIVITIES_PER_USER", 3)
    matches = sorted([await harness.match() for _ in range(3)], key=attrgetter("match_id"))
    user_id, service = factories.name("user"), follow_service(harness, harness.instance())
    for fixture in matches:
        for number in range(3):
            await service.subscribe(fixture.match_id, user_id, f"{number:064x}", None)
        with pytest.raises(Conflict, match="most"):
            await service.subscribe(fixture.match_id, user_id, "ff" * 32, None)


async def test_a_match_that_ends_while_its_follower_is_deleted_keeps_no_follow(
    harness: ActivitiesHarness,
) -> None:
    follow, _ = await harness.follower(await harness.match())
    deleted = DeletedFollowRepository(harness.store)

    async def end_match() -> None:
        if await harness.follows.unfollow(follow.match_id, follow.user_id, 0) is not None:
            await deleted.keep([follow], harness.clock.seconds())

    engine = cast("Engine", InterleavingEngine(harness.engine, "delete", end_match))
    await replace(harness, engine=engine).instance().activities.delete_user(follow.user_id)
    assert await deleted.match_ids(follow.user_id) == []


async def test_deleting_a_user_removes_everything_and_ends_activities(
    harness: ActivitiesHarness,
) -> None:
    """Also subscriptions without a follow; other users are not affected. It can be repeated."""
    fixture, coming = await harness.match(), await harness.match(live_updated_at=None)
    instance = harness.instance(uses_channels=True)
    phone, token = await running_phone(harness, fixture, instance)
    user_id = phone.user_id
    await harness.follower(coming, 0, user_id=user_id)
    on_channel = await harness.phone(user_id, os_version="18.1")
    other, other_token = await running_phone(harness, fixture, instance)
    own_token = harness.update_token(phone)
    await harness.subscriptions.register(
        factories.subscription(
            coming.match_id,
            user_id=user_id,
            push_token=own_token,
            expires_at=harness.clock.seconds() + 3_600,
        )
    )
    for _ in range(2):
        await instance.activities.delete_user(user_id)
    assert [harness.events(sent) for sent in (token, own_token, other_token)] == [
        ["end"],
        ["end"],
        [],
    ]
    now = harness.clock.seconds()
    assert await harness.devices.list_by_user(user_id, now) == []
    assert await harness.follows.list_by_user(user_id, now, 10) == ([], None)
    assert await harness.activities.list_by_owner(user_id) == []
    assert await harness.subscriptions.list_by_owner(user_id) == []
    assert await harness.status(fixture, on_channel) is None
    assert await harness.status(fixture, other) is ACTIVE


async def test_an_operator_sends_a_start_again(harness: ActivitiesHarness) -> None:
    """In any state, at once, beyond the limit of restarts; not without a follow or a device."""
    fixture = await harness.match()
    instance = harness.instance(uses_channels=True)
    _, [phone] = await harness.follower(fixture)
    await instance.orchestrator.process(fixture.match_id)
    for _ in range(4):
        activity = await instance.activities.resend_start(fixture, phone.user_id, phone.device_id)
        assert activity.status is PENDING
    await harness.register_activity(instance, fixture, phone)
    await instance.activities.resend_start(fixture, phone.user_id, phone.device_id)
    assert harness.events(phone.start_token) == ["start"] * 6
    assert await harness.status(fixture, phone) is PENDING
    with pytest.raises(NotFound, match="has no push-to-start token"):
        await instance.activities.resend_start(fixture, phone.user_id, "another")
    with pytest.raises(NotFound, match="The user does not follow"):
        await instance.activities.resend_start(fixture, "nobody", phone.device_id)
    coming = await harness.match(live_updated_at=None)
    with pytest.raises(Conflict, match="not live"):
        await instance.activities.resend_start(coming, phone.user_id, phone.device_id)
