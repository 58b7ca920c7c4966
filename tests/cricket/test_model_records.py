"""Keys, expiry, the start of Live Activities, and the mapping of records to items."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.lifecycle import (
    ANY_REASON,
    MAX_ACTIVE_MS,
    REJECTED_BACKOFF_MS,
    RESTART_AFTER_MS,
    RESTART_WINDOW_MS,
    RESTARTABLE_REASONS,
    is_end_undelivered,
    is_restart,
    is_start_due,
    next_restarts,
)
from tally.cricket.model.records import (
    ActivityStatus,
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
    NotificationKind,
    activity_key,
    device_expiry,
    display_key,
    epoch_ms,
    follow_expiry,
    format_start_time,
    has_expired,
    match_lock_key,
    notification_key,
    view_key,
)
from tally.cricket.repository.items import ItemMapper, camel_case, to_store_value
from tally.cricket.service.activities.sweeps import UserActivities, merge_by_user
from tests.cricket import factories
from tests.cricket.factories import DAY, MOMENT, NOW, START

T = TypeVar("T")


def test_keys_join_their_parts() -> None:
    """A key consists of the parts that identify an item."""
    assert view_key("7", "neutral") == "7#neutral"
    assert display_key("7", "1") == "DISPLAY#7#1"
    assert activity_key("ann", "phone") == "ann#phone"
    assert match_lock_key("7") == "match:7"
    assert (
        notification_key("ann", NotificationKind.PREMATCH),
        notification_key("ann", NotificationKind.TOSS),
    ) == (
        "ann",
        "ann#toss",
    )


@pytest.mark.parametrize(
    ("match_type", "days"), [("T20", 2), ("ODI", 2), ("", 2), ("4day", 5), ("Test", 6)]
)
def test_a_follow_expires_two_days_after_the_last_day_starts(match_type: str, days: int) -> None:
    """A match of several days is followed until it ends."""
    assert follow_expiry(START, match_type) == NOW + days * DAY


def test_ttls_are_in_seconds() -> None:
    """A device expires after 90 days; an item that expires now has expired."""
    assert device_expiry(NOW) == NOW + 90 * DAY
    assert [has_expired(NOW + later, NOW) for later in (-1, 0, 1)] == [True, True, False]


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_start_times_sort_by_time(seconds: int) -> None:
    """Text and epoch time are equivalent, and a later time is greater."""
    text = format_start_time(seconds * 1000)
    assert epoch_ms(text) == seconds * 1000
    assert text < format_start_time(seconds * 1000 + 1000)


@pytest.mark.parametrize(
    ("platform", "os_version", "can"),
    [
        ("ios", "18.0", True),
        ("iOS", "26.1.2", True),
        ("ipados", "18", True),
        ("ios", "17.6", False),
        ("android", "18", False),
        ("ios", "", False),
        ("ios", "eighteen", False),
    ],
)
def test_channels_require_ios_18(platform: str, os_version: str, can: bool) -> None:
    assert factories.device("ann", platform=platform, os_version=os_version).can_broadcast is can


def test_items_have_the_attribute_names_of_the_seeds() -> None:
    """Enums are stored as values, empty fields are omitted, missing ones get defaults."""
    shape = ItemMapper(Fixture)
    fixture = factories.fixture(status=MatchStatus.IN_PLAY, league_code="", note="")
    item = shape.to_item(fixture)
    assert (item["status"], item["homeTeamId"]) == ("in_play", "1")
    assert {"leagueCode", "note", "venueId"}.isdisjoint(item)
    assert shape.to_record(item | {"unheardOf": 1}) == fixture
    assert camel_case("push_to_start_token") == "pushToStartToken"
    assert to_store_value({"a": (MatchStatus.BREAK, {"b": [1]})}) == {"a": ["break", {"b": [1]}]}


def activity_with(
    status: ActivityStatus,
    reason: EndReason | None = None,
    *,
    starts: int = 0,
    ago: int | None = None,
) -> LiveActivity:
    started_at = None if ago is None else MOMENT - ago
    return factories.activity(
        "7", status=status, end_reason=reason, starts=starts, started_at=started_at
    )


def test_a_missing_activity_is_started_and_a_running_one_is_not() -> None:
    """This does not depend on other fields."""
    assert is_start_due(None, MOMENT, ())
    assert not is_start_due(activity_with(ActivityStatus.ACTIVE), MOMENT, ANY_REASON)
    assert is_start_due(activity_with(ActivityStatus.PENDING), MOMENT, ())


@pytest.mark.parametrize("reason", list(EndReason))
def test_an_ended_activity_is_restarted_for_some_reasons_only(reason: EndReason) -> None:
    """Automatically after an invalid token or the end of a match; always on a new follow."""
    ended = activity_with(ActivityStatus.ENDED, reason)
    assert is_start_due(ended, MOMENT, RESTARTABLE_REASONS) is (
        reason in {EndReason.TOKEN_INVALID, EndReason.MATCH_END}
    )
    assert is_start_due(ended, MOMENT, ANY_REASON)
    assert not is_start_due(ended, MOMENT, ())


@pytest.mark.parametrize(
    ("status", "reason", "wait"),
    [
        (ActivityStatus.PENDING, None, RESTART_AFTER_MS),
        (ActivityStatus.ENDED, EndReason.TOKEN_INVALID, REJECTED_BACKOFF_MS),
    ],
)
def test_a_start_is_repeated_after_a_wait(
    status: ActivityStatus, reason: EndReason | None, wait: int
) -> None:
    """Five minutes if it is unconfirmed, 20 seconds if the token is invalid."""
    for ago, is_due in ((wait - 1, False), (wait, True)):
        activity = activity_with(status, reason, starts=1, ago=ago)
        assert is_start_due(activity, MOMENT, RESTARTABLE_REASONS) is is_due
        assert is_restart(activity)
    assert not is_restart(activity_with(ActivityStatus.PENDING))
    assert not is_restart(activity_with(ActivityStatus.ENDED, EndReason.MATCH_END, ago=wait))


def test_an_activity_on_a_channel_is_started_again_after_eight_hours() -> None:
    """The phone has ended it, and no token tells that."""
    for ago, is_due in ((MAX_ACTIVE_MS - 1, False), (MAX_ACTIVE_MS, True)):
        active = activity_with(ActivityStatus.ACTIVE, starts=1, ago=ago)
        assert not is_start_due(active, MOMENT, ())
        assert is_start_due(replace(active, channel_id="channel"), MOMENT, ()) is is_due


def test_a_device_gets_three_restarts_in_an_hour() -> None:
    """The window slides."""
    restarts: tuple[int, ...] = ()
    for minute in (0, 5, 10):
        added = next_restarts(restarts, MOMENT + minute * 60_000)
        assert added is not None
        restarts = added
    assert next_restarts(restarts, MOMENT + RESTART_WINDOW_MS - 1) is None
    assert next_restarts(restarts, MOMENT + RESTART_WINDOW_MS) == (
        *restarts[1:],
        MOMENT + RESTART_WINDOW_MS,
    )


def test_an_ended_activity_with_a_token_needs_an_end_push() -> None:
    """A running activity does not, nor one whose end was delivered."""
    ended = activity_with(ActivityStatus.ENDED, EndReason.MATCH_END)
    assert not is_end_undelivered(ended)
    assert is_end_undelivered(replace(ended, update_token="token"))
    assert not is_end_undelivered(
        replace(ended, status=ActivityStatus.ACTIVE, update_token="token")
    )


async def stream(things: Sequence[T]) -> AsyncIterator[T]:
    for thing in things:
        yield thing


USERS = st.sets(st.text(alphabet="abc", min_size=1, max_size=3))
ACTIVITIES = st.sets(
    st.tuples(st.text(alphabet="abc", min_size=1, max_size=3), st.sampled_from(["phone", "tablet"]))
)


@given(users=USERS, pairs=ACTIVITIES)
def test_follows_and_activities_are_merged_as_streams(
    users: set[str], pairs: set[tuple[str, str]]
) -> None:
    """Each user appears once, by id, with all activities, following or not."""
    follows = [factories.follow("7", user_id=user) for user in sorted(users)]
    ordered = sorted(pairs, key=lambda pair: activity_key(*pair))
    activities = [
        factories.activity("7", user_id=user, device_id=device) for user, device in ordered
    ]

    async def collect() -> list[UserActivities]:
        return [person async for person in merge_by_user(stream(follows), stream(activities))]

    by_user: dict[str, Follow] = {follow.user_id: follow for follow in follows}
    expected = [
        UserActivities(
            user,
            by_user.get(user),
            [activity for activity in activities if activity.user_id == user],
        )
        for user in sorted(users | {user for user, _ in pairs})
    ]
    assert asyncio.run(collect()) == expected
