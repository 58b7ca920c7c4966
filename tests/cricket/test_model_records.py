"""Ids, lifetimes and key texts; when a Live Activity may be started; and how records stand in their tables."""

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
    MAX_BACKOFF_MS,
    PENDING_BACKOFF_MS,
    REJECTED_BACKOFF_MS,
    RESTARTABLE_REASONS,
    consecutive_starts,
    is_end_undelivered,
    is_start_due,
    start_backoff_ms,
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


def test_keys_are_as_the_tables_want_them() -> None:
    """Each joins what identifies a thing."""
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
def test_a_follow_outlives_its_match_by_two_days(match_type: str, days: int) -> None:
    """A match of several days is followed to its end."""
    assert follow_expiry(START, match_type) == NOW + days * DAY


def test_lifetimes_are_counted_in_seconds() -> None:
    """A device lives for ninety days; what ends now has ended."""
    assert device_expiry(NOW) == NOW + 90 * DAY
    assert [has_expired(NOW + later, NOW) for later in (-1, 0, 1)] == [True, True, False]


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_start_times_order_as_they_pass(seconds: int) -> None:
    """Text and moment are the same thing, and later is greater."""
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
def test_channels_are_for_ios_18_and_later(platform: str, os_version: str, can: bool) -> None:
    assert factories.device("ann", platform=platform, os_version=os_version).can_broadcast is can


def test_records_stand_in_tables_under_the_names_of_the_seeds() -> None:
    """Enums as their values, and nothing for what is empty; an item of another version still makes a record."""
    shape = ItemMapper(Fixture)
    fixture = factories.fixture(status=MatchStatus.IN_PLAY, league_code="", note="")
    item = shape.to_item(fixture)
    assert (item["status"], item["homeTeamId"]) == ("in_play", "1")
    assert {"leagueCode", "note", "venueId"}.isdisjoint(item)
    assert shape.to_record(item | {"unheardOf": 1}) == fixture
    assert camel_case("push_to_start_token") == "pushToStartToken"
    assert to_store_value({"a": (MatchStatus.BREAK, {"b": [1]})}) == {"a": ["break", {"b": [1]}]}


def shown(
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


def test_what_is_not_there_is_started_and_what_runs_is_not() -> None:
    """Whatever else is known."""
    assert is_start_due(None, MOMENT, ())
    assert not is_start_due(shown(ActivityStatus.ACTIVE), MOMENT, ANY_REASON)
    assert is_start_due(shown(ActivityStatus.PENDING), MOMENT, ())


@pytest.mark.parametrize("reason", list(EndReason))
def test_what_has_ended_is_begun_anew_only_for_a_reason(reason: EndReason) -> None:
    """By itself after a refused token and a pause of the match; by a person's wish always."""
    ended = shown(ActivityStatus.ENDED, reason)
    assert is_start_due(ended, MOMENT, RESTARTABLE_REASONS) is (
        reason in {EndReason.TOKEN_INVALID, EndReason.MATCH_END}
    )
    assert is_start_due(ended, MOMENT, ANY_REASON)
    assert not is_start_due(ended, MOMENT, ())


def test_waits_grow_and_are_forgotten() -> None:
    """Twice as long each time, up to half an hour; after that it is as if nothing had been."""
    assert [start_backoff_ms(starts) // 1000 for starts in (0, 1, 2, 3, 5, 6, 99)] == [
        60,
        60,
        120,
        240,
        960,
        1_800,
        1_800,
    ]
    assert [start_backoff_ms(starts, is_rejected=True) // 1000 for starts in (1, 2)] == [20, 40]
    for ago, is_due in ((PENDING_BACKOFF_MS - 1, False), (PENDING_BACKOFF_MS, True)):
        assert is_start_due(shown(ActivityStatus.PENDING, starts=1, ago=ago), MOMENT, ()) is is_due
    for ago, is_due in ((REJECTED_BACKOFF_MS - 1, False), (REJECTED_BACKOFF_MS, True)):
        refused = shown(ActivityStatus.ENDED, EndReason.TOKEN_INVALID, starts=1, ago=ago)
        assert is_start_due(refused, MOMENT, RESTARTABLE_REASONS) is is_due
    assert (
        consecutive_starts(shown(ActivityStatus.PENDING, starts=9, ago=MAX_BACKOFF_MS), MOMENT) == 9
    )
    assert (
        consecutive_starts(shown(ActivityStatus.PENDING, starts=9, ago=MAX_BACKOFF_MS + 1), MOMENT)
        == 0
    )


def test_what_has_ended_and_has_a_token_owes_a_word() -> None:
    """What runs does not, nor what was told."""
    ended = shown(ActivityStatus.ENDED, EndReason.MATCH_END)
    assert not is_end_undelivered(ended)
    assert is_end_undelivered(replace(ended, update_token="token"))
    assert not is_end_undelivered(
        replace(ended, status=ActivityStatus.ACTIVE, update_token="token")
    )


async def streamed(things: Sequence[T]) -> AsyncIterator[T]:
    for thing in things:
        yield thing


USERS = st.sets(st.text(alphabet="abc", min_size=1, max_size=3))
SHOWN = st.sets(
    st.tuples(st.text(alphabet="abc", min_size=1, max_size=3), st.sampled_from(["phone", "tablet"]))
)


@given(users=USERS, pairs=SHOWN)
def test_followers_and_their_activities_are_joined_as_they_stream_by(
    users: set[str], pairs: set[tuple[str, str]]
) -> None:
    """Everybody once, by id, with all of their activities, whether or not they follow."""
    follows = [factories.follow("7", user_id=user) for user in sorted(users)]
    ordered = sorted(pairs, key=lambda pair: activity_key(*pair))
    activities = [
        factories.activity("7", user_id=user, device_id=device) for user, device in ordered
    ]

    async def collected() -> list[UserActivities]:
        return [person async for person in merge_by_user(streamed(follows), streamed(activities))]

    by_user: dict[str, Follow] = {follow.user_id: follow for follow in follows}
    expected = [
        UserActivities(
            user, by_user.get(user), [each for each in activities if each.user_id == user]
        )
        for user in sorted(users | {user for user, _ in pairs})
    ]
    assert asyncio.run(collected()) == expected
