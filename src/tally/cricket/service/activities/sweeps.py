"""Reconciles the followers of a live match with their Live Activities.

A sweep starts what is missing and ends what should not run. It reads followers and activities side
by side in user id order, page by page, and never loads all of them. If ids contain characters that
sort before `#`, the two orders differ slightly and a follower may seem to lack an activity. That is
harmless: a condition guards every start, and every end is checked against the follow.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

from tally.cricket.model.lifecycle import RESTARTABLE_REASONS, is_end_undelivered, is_start_due
from tally.cricket.model.push import Push
from tally.cricket.model.records import ActivityStatus, EndReason, Fixture, Follow, LiveActivity
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.service.activities.activity_counts import ActivityCounts
from tally.cricket.service.activities.endings import ActivityEnder
from tally.cricket.service.activities.match_payloads import MatchPayloads
from tally.cricket.service.activities.starts import (
    ActivityStarter,
    Follower,
    GetChannel,
    needs_token,
)
from tally.cricket.service.ports import ReadDisplay
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

# Users are processed in pages of this size, so that their writes share a commit.
PAGE_SIZE: Final = 200
# A user with an active device is checked again after this long. A new device does not have to wait:
# it announces itself (`ActivityService.on_device_ready`).
CHECKED_CACHE_SECONDS: Final = 300.0
MAX_CHECKED_CACHED: Final = 200_000
# An end that was sent within this time may still be in flight.
RESEND_END_AFTER_MS: Final = 30_000


class UserActivities(NamedTuple):
    """A user's follow of a match, if there is one, and the user's Live Activities for it."""

    user_id: str
    follow: Follow | None
    activities: list[LiveActivity]


class UserPushes(NamedTuple):
    """The start and end pushes to one user."""

    starts: list[Push]
    ends: list[Push]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Sweeps the followers of one match at a time.

    `checked` caches which users were checked, and whether another check may start something.
    """

    follows: FollowRepository
    activities: LiveActivityRepository
    starter: ActivityStarter
    ender: ActivityEnder
    read_display: ReadDisplay
    clock: Clock
    checked: TTLCache[tuple[str, str], bool]
    counts: ActivityCounts

    async def sweep(self, fixture: Fixture, get_channel: GetChannel) -> int:
        """Start missing activities and end surplus ones; return how many starts APNs accepted."""
        ends: list[Push] = []
        started = await self.starter.send(self._starts(fixture, _CallOnce(get_channel), ends))
        if ends:
            await self.ender.send_few(ends)
        return started

    async def _starts(
        self, fixture: Fixture, get_channel: GetChannel, ends: list[Push]
    ) -> AsyncGenerator[Push, None]:
        now = self.clock.milliseconds()
        follows = self.follows.list_by_match(fixture.match_id, now // 1000)
        activities = self.activities.list_by_match(fixture.match_id, now)
        async with (
            aclosing(follows),
            aclosing(activities),
            aclosing(self.counts.counted(fixture.match_id, activities)) as counted,
            aclosing(merge_by_user(follows, counted)) as users,
        ):
            async for page in _pages(user async for user in users if self._needs_check(user, now)):
                payloads = MatchPayloads(fixture.match_id, self.read_display, self.clock)
                for pushes in await asyncio.gather(
                    *(self._check(user, fixture, payloads, get_channel) for user in page)
                ):
                    ends += pushes.ends
                    for push in pushes.starts:
                        yield push

    def _needs_check(self, user: UserActivities, now: int) -> bool:
        """Return whether a user may need a start or an end."""
        if user.follow is None:
            return any(
                activity.status is not ActivityStatus.ENDED or _is_end_overdue(activity, now)
                for activity in user.activities
            )
        if any(_is_end_overdue(activity, now) for activity in user.activities):
            return True
        if not user.activities or any(
            needs_token(activity, user.follow) for activity in user.activities
        ):
            return True
        is_helpful = self.checked.get((user.follow.match_id, user.user_id))
        return is_helpful is None or (is_helpful and _is_any_due(user, now))

    async def _check(
        self,
        user: UserActivities,
        fixture: Fixture,
        payloads: MatchPayloads,
        get_channel: GetChannel,
    ) -> UserPushes:
        now = self.clock.milliseconds()
        overdue = await self.ender.pushes(
            [activity for activity in user.activities if _is_end_overdue(activity, now)], payloads
        )
        if user.follow is None:
            follow = await self.follows.get(fixture.match_id, user.user_id, now // 1000)
            surplus = user.activities if follow is None else []
            ends = await self.ender.end(surplus, EndReason.USER_UNFOLLOW, payloads)
            return UserPushes([], [*overdue, *ends])
        by_device = {activity.device_id: activity for activity in user.activities}
        starts = await self.starter.claim(
            Follower(fixture, user.follow, by_device), payloads, RESTARTABLE_REASONS, get_channel
        )
        # A device that has used up its restarts, or has no token, is not read in every sweep.
        is_helpful = bool(starts) or not _is_any_due(user, now)
        self.checked.put((fixture.match_id, user.user_id), is_helpful)
        return UserPushes(starts, overdue)


class _CallOnce:
    """Calls `get_channel` once and shares the result among concurrent callers."""

    def __init__(self, get_channel: GetChannel) -> None:
        self._get_channel = get_channel
        self._future: asyncio.Future[str | None] | None = None

    async def __call__(self) -> str | None:
        if self._future is None:
            self._future = asyncio.ensure_future(self._get_channel())
        return await self._future


def _is_any_due(user: UserActivities, now: int) -> bool:
    return any(is_start_due(activity, now, RESTARTABLE_REASONS) for activity in user.activities)


def _is_end_overdue(activity: LiveActivity, now: int) -> bool:
    return is_end_undelivered(activity) and activity.updated_at + RESEND_END_AFTER_MS <= now


async def merge_by_user(
    follows: AsyncIterator[Follow], activities: AsyncIterator[LiveActivity]
) -> AsyncGenerator[UserActivities, None]:
    """Merge two streams that are ordered by user id into one entry per user."""
    follow, activity = await anext(follows, None), await anext(activities, None)
    while follow is not None or activity is not None:
        user_id = min(item.user_id for item in (follow, activity) if item is not None)
        list_by_user: list[LiveActivity] = []
        while activity is not None and activity.user_id == user_id:
            list_by_user.append(activity)
            activity = await anext(activities, None)
        if follow is not None and follow.user_id == user_id:
            yield UserActivities(user_id, follow, list_by_user)
            follow = await anext(follows, None)
        else:
            yield UserActivities(user_id, None, list_by_user)


async def _pages(users: AsyncIterator[UserActivities]) -> AsyncIterator[list[UserActivities]]:
    page: list[UserActivities] = []
    async for user in users:
        page.append(user)
        if len(page) == PAGE_SIZE:
            yield page
            page = []
    if page:
        yield page
