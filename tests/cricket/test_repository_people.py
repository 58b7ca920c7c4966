"""Devices, follows, subscriptions and notices: whom to tell of a match, where, and whether they have been told."""

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


async def test_a_person_may_have_many_devices(devices: UserDeviceRepository) -> None:
    """Each is found; what is registered again stands as it was made, with what is new."""
    user = factories.name("user")
    phone, tablet = factories.device(user), factories.device(user, updated_at=MOMENT + 1)
    for each in (phone, tablet):
        assert await devices.register(each, is_only_one=False) == each
    assert await devices.of_user(user, NOW) == [tablet, phone]
    later = replace(phone, created_at=MOMENT + 9, updated_at=MOMENT + 9, os_version="18.0")
    assert await devices.register(later, is_only_one=False) == replace(later, created_at=MOMENT)
    assert await devices.get(user, NOW) in {tablet, replace(later, created_at=MOMENT)}
    assert await devices.of_user(factories.name("user"), NOW) == []
    assert await devices.get(factories.name("user"), NOW) is None


async def test_a_person_may_have_one_device_alone(devices: UserDeviceRepository) -> None:
    """Where that is the rule, the one that registers last is the one."""
    user = factories.name("user")
    await devices.register(factories.device(user), is_only_one=False)
    await devices.register(factories.device(user), is_only_one=False)
    last = factories.device(user, updated_at=MOMENT + 5)
    await devices.register(last, is_only_one=True)
    assert await devices.of_user(user, NOW) == [last]


async def test_a_new_token_of_a_device_replaces_the_old_one(devices: UserDeviceRepository) -> None:
    """Its records never pile up, and the token for starts goes with the device, unless it brings another one."""
    user = factories.name("user")
    first = factories.device(user, push_to_start_token="start-1")
    await devices.register(first, is_only_one=False)
    second = factories.device(user, device_id=first.device_id, updated_at=MOMENT + 1)
    registered = await devices.register(second, is_only_one=False)
    assert registered == replace(second, push_to_start_token="start-1")
    assert await devices.of_user(user, NOW) == [registered]
    third = factories.device(
        user, device_id=first.device_id, updated_at=MOMENT + 2, push_to_start_token="start-2"
    )
    assert await devices.register(third, is_only_one=False) == third
    assert await devices.of_user(user, NOW) == [third]


@pytest.mark.parametrize("is_only_one", [True, False])
async def test_a_device_that_registers_many_times_at_once_has_one_record(
    devices: UserDeviceRepository, is_only_one: bool
) -> None:
    """Never two, and never none."""
    user, device_id = factories.name("user"), factories.name("device")
    attempts = [
        factories.device(user, device_id=device_id, updated_at=MOMENT + number % 3)
        for number in range(8)
    ]
    await asyncio.gather(*(devices.register(each, is_only_one=is_only_one) for each in attempts))
    [left] = await devices.of_user(user, NOW)
    assert left in attempts


async def test_a_person_never_has_more_than_some_devices(devices: UserDeviceRepository) -> None:
    """Apps that were installed again and again leave no end of records: the latest stay."""
    user = factories.name("user")
    made = [
        factories.device(user, updated_at=MOMENT + number) for number in range(MAX_REGISTERED + 3)
    ]
    for each in made:
        await devices.register(each, is_only_one=False)
    assert await devices.of_user(user, NOW) == made[:2:-1]


async def test_an_expired_device_is_not_there(devices: UserDeviceRepository) -> None:
    """It is not returned, not changed, and goes when another one registers."""
    user = factories.name("user")
    old = factories.device(user, expires_at=NOW + 10)
    await devices.register(old, is_only_one=False)
    assert await devices.get(user, NOW + 9) == old
    assert await devices.get(user, NOW + 10) is None
    assert await devices.of_user(user, NOW + 10) == []
    assert await devices.update_push_to_start(old, "start", MOMENT + 10_000, NOW + DAY) is None
    new = factories.device(user, updated_at=MOMENT + 20_000)
    await devices.register(new, is_only_one=False)
    assert await devices.of_user(user, 0) == [new]


async def test_of_several_devices_an_expired_one_hides_no_other(
    devices: UserDeviceRepository,
) -> None:
    """The first that is alive is found, wherever it stands."""
    user = factories.name("user")
    for token in ("a", "b", "c"):
        expires_at = NOW + (100 if token == "c" else 10)
        await devices.register(
            factories.device(user, device_token=token, expires_at=expires_at), is_only_one=False
        )
    found = await devices.get(user, NOW + 50)
    assert found is not None
    assert found.device_token == "c"


async def test_the_token_for_starts_is_kept_until_it_is_refused(
    devices: UserDeviceRepository,
) -> None:
    """It makes no device, lengthens the life of one, and a newer token survives the refusal of an older one."""
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
    assert await devices.of_user(user, NOW) == [second]
    assert await devices.remove_push_to_start(second)
    assert await devices.of_user(user, NOW) == [replace(second, push_to_start_token=None)]


async def test_a_deleted_device_is_handed_back_once(devices: UserDeviceRepository) -> None:
    """Whoever deletes learns what there was, unless that had expired."""
    user = factories.name("user")
    phone, old = factories.device(user), factories.device(user, expires_at=NOW - 1)
    await devices.register(phone, is_only_one=False)
    assert await devices.delete(user, phone.device_token, NOW) == phone
    assert await devices.delete(user, phone.device_token, NOW) is None
    await devices.register(replace(old, updated_at=MOMENT - 10_000), is_only_one=False)
    assert await devices.delete(user, old.device_token, NOW) is None


async def test_who_follows_twice_has_followed_since_the_first_time(
    follows: FollowRepository,
) -> None:
    """The side changes, the moment does not."""
    made = factories.follow(factories.number())
    assert await follows.follow(made) == made
    again = replace(made, team_id="2", created_at=MOMENT + 50, expires_at=made.expires_at + 5)
    assert await follows.follow(again) == replace(again, created_at=MOMENT)
    assert await follows.get(made.match_id, made.user_id, NOW) == replace(again, created_at=MOMENT)
    assert await follows.unfollow(made.match_id, made.user_id, NOW) == replace(
        again, created_at=MOMENT
    )
    assert await follows.unfollow(made.match_id, made.user_id, NOW) is None
    assert await follows.get(made.match_id, made.user_id, NOW) is None


async def test_changing_sides_needs_a_follow(follows: FollowRepository) -> None:
    """Where there is none, or one that has expired, nothing is made."""
    made = factories.follow(factories.number())
    assert not await follows.change_team(made.match_id, made.user_id, "1", NOW)
    assert await follows.get(made.match_id, made.user_id, NOW) is None
    await follows.follow(made)
    assert await follows.change_team(made.match_id, made.user_id, "1", NOW)
    assert await follows.get(made.match_id, made.user_id, NOW) == replace(made, team_id="1")
    assert not await follows.change_team(made.match_id, made.user_id, "2", made.expires_at)


async def test_an_expired_follow_is_not_there(follows: FollowRepository) -> None:
    """Not for its owner, not among the followers, not in what they follow, and not when it is taken back."""
    made = factories.follow(factories.number(), expires_at=NOW + 10)
    await follows.follow(made)
    assert [each async for each in follows.of_match(made.match_id, NOW + 9)] == [made]
    assert (await follows.of_user(made.user_id, NOW + 9, 10))[0] == [made]
    assert await follows.get(made.match_id, made.user_id, NOW + 10) is None
    assert [each async for each in follows.of_match(made.match_id, NOW + 10)] == []
    assert (await follows.of_user(made.user_id, NOW + 10, 10))[0] == []
    assert await follows.unfollow(made.match_id, made.user_id, NOW + 10) is None


async def test_what_somebody_follows_is_paged(follows: FollowRepository) -> None:
    """Every match once, and nobody else's."""
    user = factories.name("user")
    made = sorted(
        (factories.follow(factories.number(), user_id=user) for _ in range(5)),
        key=lambda each: each.match_id,
    )
    for each in (*made, factories.follow(made[0].match_id)):
        await follows.follow(each)
    found, start = await follows.of_user(user, NOW, 2)
    while start is not None:
        page, start = await follows.of_user(user, NOW, 2, start)
        found += page
    assert found == made


async def test_followers_are_streamed_and_removed_page_by_page(
    follows: FollowRepository, engine: Engine
) -> None:
    """More than one page holds; another match keeps its own."""
    other = await follows.follow(factories.follow(factories.number()))
    match_id = factories.number()
    made = [factories.follow(match_id, user_id=f"user-{number:04}") for number in range(PAGE + 10)]
    items = [
        {
            "matchId": match_id,
            "userId": each.user_id,
            "teamId": each.team_id,
            "createdAt": MOMENT,
            "expiresAt": each.expires_at,
        }
        for each in made
    ]
    for start in range(0, len(items), 25):
        await engine.batch_write(
            BatchWrite(CRICKET_MATCH_FOLLOWS, tuple(items[start : start + 25]))
        )
    assert [each async for each in follows.of_match(match_id, NOW)] == made
    assert await follows.remove_all(match_id) == PAGE + 10
    assert [each async for each in follows.of_match(match_id, NOW)] == []
    assert await follows.remove_all(match_id) == 0
    assert await follows.get(other.match_id, other.user_id, NOW) == other


async def test_a_person_has_a_subscription_for_each_token(
    subscriptions: ActivitySubscriptionRepository,
) -> None:
    """Registered again it changes; it is removed by its owner alone; and it expires."""
    match_id, user = factories.number(), factories.name("user")
    phone, tablet = (
        factories.subscription(match_id, user_id=user, push_token=token) for token in ("a", "b")
    )
    other = factories.subscription(match_id, push_token="c", expires_at=NOW + 10)
    for each in (phone, tablet, other):
        assert await subscriptions.register(each) == each
    assert await subscriptions.register(
        replace(phone, team_id="1", created_at=MOMENT + 9)
    ) == replace(phone, team_id="1")
    assert [each async for each in subscriptions.of_match(match_id, NOW)] == [
        replace(phone, team_id="1"),
        tablet,
        other,
    ]
    assert [each async for each in subscriptions.of_match(match_id, NOW + 10)] == [
        replace(phone, team_id="1"),
        tablet,
    ]
    assert not await subscriptions.remove(match_id, "a", factories.name("user"))
    assert await subscriptions.remove(match_id, "a", user)
    assert not await subscriptions.remove(match_id, "a", user)
    assert [each.push_token async for each in subscriptions.of_match(match_id, NOW)] == ["b", "c"]


async def test_an_unfollow_takes_the_subscriptions_of_one_person(
    subscriptions: ActivitySubscriptionRepository,
) -> None:
    """Those of others, and of other matches, stay; the end of a match takes all."""
    match_id, user = factories.number(), factories.name("user")
    mine = [
        factories.subscription(match_id, user_id=user, push_token=f"mine-{number}")
        for number in range(3)
    ]
    others = [
        factories.subscription(match_id, push_token=f"other-{number}") for number in range(30)
    ]
    elsewhere = factories.subscription(factories.number(), user_id=user)
    await asyncio.gather(*(subscriptions.register(each) for each in (*mine, *others, elsewhere)))
    assert await subscriptions.remove_of_user(match_id, user) == mine
    assert await subscriptions.remove_of_user(match_id, user) == []
    assert len([each async for each in subscriptions.of_match(match_id, NOW)]) == 30
    assert await subscriptions.remove_all(match_id) == 30
    assert [each async for each in subscriptions.of_match(match_id, NOW)] == []
    assert [each async for each in subscriptions.of_match(elsewhere.match_id, NOW)] == [elsewhere]


async def test_of_many_who_would_tell_a_person_one_may(
    notifications: NotificationRepository,
) -> None:
    """The mark is there for two days; the start and the toss are two things to tell."""
    made = factories.notice(factories.number(), expires_at=NOW + 2 * DAY)
    assert not await notifications.was_sent(made.match_id, made.user_id, made.kind, NOW)
    assert sum(await asyncio.gather(*(notifications.mark_sent(made) for _ in range(10)))) == 1
    assert await notifications.was_sent(made.match_id, made.user_id, made.kind, NOW)
    assert not await notifications.was_sent(made.match_id, made.user_id, NotificationKind.TOSS, NOW)
    assert await notifications.mark_sent(replace(made, kind=NotificationKind.TOSS))
    assert not await notifications.was_sent(made.match_id, made.user_id, made.kind, NOW + 2 * DAY)
    assert await notifications.mark_sent(
        replace(made, sent_at=MOMENT + 2 * DAY * 1000, expires_at=NOW + 4 * DAY)
    )
