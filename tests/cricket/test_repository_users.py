"""The repositories of devices, follows, subscriptions and sent notifications."""

import asyncio
from dataclasses import replace

import pytest

from tally.cricket.model.records import NotificationKind
from tally.cricket.repository.devices import MAX_REGISTERED, UserDeviceRepository
from tally.cricket.repository.follows import CRICKET_MATCH_FOLLOWS, PAGE, FollowRepository
from tally.cricket.repository.notifications import NotificationRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.store.api import BatchWrite, Engine
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW


@pytest.fixture
def devices(store: Store) -> UserDeviceRepository:
    return UserDeviceRepository(store)


@pytest.fixture
def follows(store: Store) -> FollowRepository:
    return FollowRepository(store)


@pytest.fixture
def subscriptions(store: Store) -> ActivitySubscriptionRepository:
    return ActivitySubscriptionRepository(store)


@pytest.fixture
def notifications(store: Store) -> NotificationRepository:
    return NotificationRepository(store)


async def test_a_user_may_have_many_devices(devices: UserDeviceRepository) -> None:
    """All are found; a repeated registration keeps its creation time."""
    user = factories.name("user")
    phone, tablet = factories.device(user), factories.device(user, updated_at=MOMENT + 1)
    for record in (phone, tablet):
        assert await devices.register(record, is_only_one=False) == record
    assert await devices.list_by_user(user, NOW) == [tablet, phone]
    later = replace(phone, created_at=MOMENT + 9, updated_at=MOMENT + 9, os_version="18.0")
    assert await devices.register(later, is_only_one=False) == replace(later, created_at=MOMENT)
    assert await devices.get(user, NOW) in {tablet, replace(later, created_at=MOMENT)}
    assert await devices.list_by_user(factories.name("user"), NOW) == []
    assert await devices.get(factories.name("user"), NOW) is None


async def test_a_user_may_be_limited_to_one_device(devices: UserDeviceRepository) -> None:
    """Then the last registered device replaces the others."""
    user = factories.name("user")
    await devices.register(factories.device(user), is_only_one=False)
    await devices.register(factories.device(user), is_only_one=False)
    last = factories.device(user, updated_at=MOMENT + 5)
    await devices.register(last, is_only_one=True)
    assert await devices.list_by_user(user, NOW) == [last]


async def test_a_new_token_replaces_the_old_one(devices: UserDeviceRepository) -> None:
    """The device has one record and keeps its push-to-start token unless it sends another."""
    user = factories.name("user")
    first = factories.device(user, push_to_start_token="start-1")
    await devices.register(first, is_only_one=False)
    second = factories.device(user, device_id=first.device_id, updated_at=MOMENT + 1)
    registered = await devices.register(second, is_only_one=False)
    assert registered == replace(second, push_to_start_token="start-1")
    assert await devices.list_by_user(user, NOW) == [registered]
    third = factories.device(
        user, device_id=first.device_id, updated_at=MOMENT + 2, push_to_start_token="start-2"
    )
    assert await devices.register(third, is_only_one=False) == third
    assert await devices.list_by_user(user, NOW) == [third]


@pytest.mark.parametrize("is_only_one", [True, False])
async def test_concurrent_registrations_of_a_device_leave_one_record(
    devices: UserDeviceRepository, is_only_one: bool
) -> None:
    """Never two and never none."""
    user, device_id = factories.name("user"), factories.name("device")
    attempts = [
        factories.device(user, device_id=device_id, updated_at=MOMENT + number % 3)
        for number in range(8)
    ]
    await asyncio.gather(
        *(devices.register(attempt, is_only_one=is_only_one) for attempt in attempts)
    )
    [left] = await devices.list_by_user(user, NOW)
    assert left in attempts


async def test_the_number_of_devices_is_limited(devices: UserDeviceRepository) -> None:
    """Reinstalled apps leave records behind; the latest are retained."""
    user = factories.name("user")
    made = [
        factories.device(user, updated_at=MOMENT + number) for number in range(MAX_REGISTERED + 3)
    ]
    for record in made:
        await devices.register(record, is_only_one=False)
    assert await devices.list_by_user(user, NOW) == made[:2:-1]


async def test_an_expired_device_is_not_returned(devices: UserDeviceRepository) -> None:
    """It is not returned or changed, and is deleted when another device registers."""
    user = factories.name("user")
    old = factories.device(user, expires_at=NOW + 10)
    await devices.register(old, is_only_one=False)
    assert await devices.get(user, NOW + 9) == old
    assert await devices.get(user, NOW + 10) is None
    assert await devices.list_by_user(user, NOW + 10) == []
    assert await devices.update_push_to_start(old, "start", MOMENT + 10_000, NOW + DAY) is None
    new = factories.device(user, updated_at=MOMENT + 20_000)
    await devices.register(new, is_only_one=False)
    assert await devices.list_by_user(user, 0) == [new]


async def test_an_expired_device_does_not_hide_another(
    devices: UserDeviceRepository,
) -> None:
    """The first valid device is found at any position."""
    user = factories.name("user")
    for token in ("a", "b", "c"):
        expires_at = NOW + (100 if token == "c" else 10)
        await devices.register(
            factories.device(user, device_token=token, expires_at=expires_at), is_only_one=False
        )
    found = await devices.get(user, NOW + 50)
    assert found is not None
    assert found.device_token == "c"


async def test_a_push_to_start_token_is_stored_until_it_is_rejected(
    devices: UserDeviceRepository,
) -> None:
    """It creates no device, extends its expiry, and a newer token survives a rejection."""
    user = factories.name("user")
    phone = factories.device(user)
    assert await devices.update_push_to_start(phone, "start-1", MOMENT, NOW + DAY) is None
    await devices.register(phone, is_only_one=False)
    first = await devices.update_push_to_start(phone, "start-1", MOMENT + 7, NOW + 91 * DAY)
    assert first == replace(
        phone, push_to_start_token="start-1", updated_at=MOMENT + 7, expires_at=NOW + 91 * DAY
    )
    second = await devices.update_push_to_start(phone, "start-2", MOMENT + 8, NOW + 91 * DAY)
    assert second is not None
    assert not await devices.remove_push_to_start(first)
    assert await devices.list_by_user(user, NOW) == [second]
    assert await devices.remove_push_to_start(second)
    assert await devices.list_by_user(user, NOW) == [replace(second, push_to_start_token=None)]


async def test_a_deleted_device_is_returned_once(devices: UserDeviceRepository) -> None:
    """The delete returns the device unless it had expired."""
    user = factories.name("user")
    phone, old = factories.device(user), factories.device(user, expires_at=NOW - 1)
    await devices.register(phone, is_only_one=False)
    assert await devices.delete(user, phone.device_token, NOW) == phone
    assert await devices.delete(user, phone.device_token, NOW) is None
    await devices.register(replace(old, updated_at=MOMENT - 10_000), is_only_one=False)
    assert await devices.delete(user, old.device_token, NOW) is None


async def test_a_repeated_follow_keeps_its_creation_time(
    follows: FollowRepository,
) -> None:
    """The team changes; the creation time does not."""
    follow = factories.follow(factories.number())
    assert await follows.follow(follow) == follow
    again = replace(follow, team_id="2", created_at=MOMENT + 50, expires_at=follow.expires_at + 5)
    assert await follows.follow(again) == replace(again, created_at=MOMENT)
    assert await follows.get(follow.match_id, follow.user_id, NOW) == replace(
        again, created_at=MOMENT
    )
    assert await follows.unfollow(follow.match_id, follow.user_id, NOW) == replace(
        again, created_at=MOMENT
    )
    assert await follows.unfollow(follow.match_id, follow.user_id, NOW) is None
    assert await follows.get(follow.match_id, follow.user_id, NOW) is None


async def test_a_team_change_requires_a_follow(follows: FollowRepository) -> None:
    """Without a valid follow, nothing is created."""
    follow = factories.follow(factories.number())
    assert not await follows.change(follow.match_id, follow.user_id, NOW, team_id="1")
    assert await follows.get(follow.match_id, follow.user_id, NOW) is None
    await follows.follow(follow)
    assert await follows.change(follow.match_id, follow.user_id, NOW, team_id="1")
    assert await follows.get(follow.match_id, follow.user_id, NOW) == replace(follow, team_id="1")
    assert not await follows.change(follow.match_id, follow.user_id, follow.expires_at, team_id="2")


async def test_an_expired_follow_is_not_returned(follows: FollowRepository) -> None:
    """By get, by match, by user and by unfollow."""
    made = factories.follow(factories.number(), expires_at=NOW + 10)
    await follows.follow(made)
    assert [follow async for follow in follows.list_by_match(made.match_id, NOW + 9)] == [made]
    assert (await follows.list_by_user(made.user_id, NOW + 9, 10))[0] == [made]
    assert await follows.get(made.match_id, made.user_id, NOW + 10) is None
    assert [follow async for follow in follows.list_by_match(made.match_id, NOW + 10)] == []
    assert (await follows.list_by_user(made.user_id, NOW + 10, 10))[0] == []
    assert await follows.unfollow(made.match_id, made.user_id, NOW + 10) is None


async def test_the_follows_of_a_user_are_paginated(follows: FollowRepository) -> None:
    """Each match appears once; follows of others are excluded."""
    user = factories.name("user")
    made = sorted(
        (factories.follow(factories.number(), user_id=user) for _ in range(5)),
        key=lambda record: record.match_id,
    )
    for record in (*made, factories.follow(made[0].match_id)):
        await follows.follow(record)
    found, start = await follows.list_by_user(user, NOW, 2)
    while start is not None:
        page, start = await follows.list_by_user(user, NOW, 2, start)
        found += page
    assert found == made


async def test_followers_are_read_and_deleted_page_by_page(
    follows: FollowRepository, engine: Engine
) -> None:
    """With more than one page; other matches are not affected."""
    other = await follows.follow(factories.follow(factories.number()))
    match_id = factories.number()
    made = [factories.follow(match_id, user_id=f"user-{number:04}") for number in range(PAGE + 10)]
    items = [
        {
            "matchId": match_id,
            "userId": record.user_id,
            "teamId": record.team_id,
            "createdAt": MOMENT,
            "expiresAt": record.expires_at,
        }
        for record in made
    ]
    for start in range(0, len(items), 25):
        await engine.batch_write(
            BatchWrite(CRICKET_MATCH_FOLLOWS, tuple(items[start : start + 25]))
        )
    assert [follow async for follow in follows.list_by_match(match_id, NOW)] == made
    assert await follows.remove_all(match_id) == PAGE + 10
    assert [follow async for follow in follows.list_by_match(match_id, NOW)] == []
    assert await follows.remove_all(match_id) == 0
    assert await follows.get(other.match_id, other.user_id, NOW) == other


async def test_a_user_has_one_subscription_per_token(
    subscriptions: ActivitySubscriptionRepository,
) -> None:
    """It can be updated, is deleted by its owner only, and expires."""
    match_id, user = factories.number(), factories.name("user")
    phone, tablet = (
        factories.subscription(match_id, user_id=user, push_token=token) for token in ("a", "b")
    )
    other = factories.subscription(match_id, push_token="c", expires_at=NOW + 10)
    for record in (phone, tablet, other):
        assert await subscriptions.register(record) == record
    assert await subscriptions.register(
        replace(phone, team_id="1", created_at=MOMENT + 9)
    ) == replace(phone, team_id="1")
    assert [subscription async for subscription in subscriptions.list_by_match(match_id, NOW)] == [
        replace(phone, team_id="1"),
        tablet,
        other,
    ]
    assert [
        subscription async for subscription in subscriptions.list_by_match(match_id, NOW + 10)
    ] == [
        replace(phone, team_id="1"),
        tablet,
    ]
    assert not await subscriptions.remove(match_id, "a", factories.name("user"))
    assert await subscriptions.remove(match_id, "a", user)
    assert not await subscriptions.remove(match_id, "a", user)
    assert [
        subscription.push_token async for subscription in subscriptions.list_by_match(match_id, NOW)
    ] == [
        "b",
        "c",
    ]


async def test_an_unfollow_deletes_the_subscriptions_of_one_user(
    subscriptions: ActivitySubscriptionRepository,
) -> None:
    """Other users and matches are not affected; the end of a match deletes all."""
    match_id, user = factories.number(), factories.name("user")
    mine = [
        factories.subscription(match_id, user_id=user, push_token=f"mine-{number}")
        for number in range(3)
    ]
    others = [
        factories.subscription(match_id, push_token=f"other-{number}") for number in range(30)
    ]
    elsewhere = factories.subscription(factories.number(), user_id=user)
    await asyncio.gather(
        *(subscriptions.register(record) for record in (*mine, *others, elsewhere))
    )
    assert await subscriptions.remove_by_user(match_id, user) == mine
    assert await subscriptions.remove_by_user(match_id, user) == []
    assert (
        len([subscription async for subscription in subscriptions.list_by_match(match_id, NOW)])
        == 30
    )
    assert await subscriptions.remove_all(match_id) == 30
    assert [subscription async for subscription in subscriptions.list_by_match(match_id, NOW)] == []
    assert [
        subscription async for subscription in subscriptions.list_by_match(elsewhere.match_id, NOW)
    ] == [elsewhere]


async def test_one_of_many_concurrent_senders_may_notify_a_user(
    notifications: NotificationRepository,
) -> None:
    """The mark expires after two days; start and toss are separate notifications."""
    notice = factories.notice(factories.number(), expires_at=NOW + 2 * DAY)
    assert not await notifications.was_sent(notice.match_id, notice.user_id, notice.kind, NOW)
    assert sum(await asyncio.gather(*(notifications.mark_sent(notice) for _ in range(10)))) == 1
    assert await notifications.was_sent(notice.match_id, notice.user_id, notice.kind, NOW)
    assert not await notifications.was_sent(
        notice.match_id, notice.user_id, NotificationKind.TOSS, NOW
    )
    assert await notifications.mark_sent(replace(notice, kind=NotificationKind.TOSS))
    assert not await notifications.was_sent(
        notice.match_id, notice.user_id, notice.kind, NOW + 2 * DAY
    )
    assert await notifications.mark_sent(
        replace(notice, sent_at=MOMENT + 2 * DAY * 1000, expires_at=NOW + 4 * DAY)
    )
