"""One look at everybody who follows a live match: who should have a Live Activity and has none, and who has one and should not.

Followers and activities are both read in the order of user ids, side by side, page by page, and
never held all at once. Where ids have characters before `#` the two orders differ a little, and a
person may seem to lack what they have: nothing comes of it, since every start is claimed by a
condition, and every end is checked against the follow.
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
from tally.cricket.service.activities.endings import Ender
from tally.cricket.service.activities.match_payloads import Sheet
from tally.cricket.service.activities.starts import ChannelOf, Follower, Starter
from tally.cricket.service.ports import Show
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache

# So many people are seen to at once: their writes share a commit.
PAGE: Final = 200
# Who sees the match on one device need not have the others looked at again for this long: a device
# that can be started on from now on says so by itself (`ActivityService.device_ready`).
LOOKED_AT_SECONDS: Final = 300.0
MAX_LOOKED_AT: Final = 200_000
# An end that was just sent may still be on its way.
TOLD_AGAIN_MS: Final = 30_000


class Person(NamedTuple):
    """What is known of one person and a match: that they follow it, and what their devices show."""

    user_id: str
    follow: Follow | None
    activities: list[LiveActivity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeper:
    """Sees to the followers of one match at a time."""

    follows: FollowRepository
    activities: LiveActivityRepository
    starter: Starter
    ender: Ender
    show: Show
    clock: Clock
    looked_at: TTLCache[tuple[str, str], bool]

    async def sweep(self, fixture: Fixture, channel_of: ChannelOf) -> int:
        """Start what is missing and end what should not be; how many starts Apple has taken."""
        ends: list[Push] = []
        taken = await self.starter.send(self._starts(fixture, Once(channel_of), ends))
        if ends:
            await self.ender.send_few(ends)
        return taken

    async def _starts(
        self, fixture: Fixture, channel_of: ChannelOf, ends: list[Push]
    ) -> AsyncGenerator[Push, None]:
        now = self.clock.milliseconds()
        follows = self.follows.of_match(fixture.match_id, now // 1000)
        activities = self.activities.of_match(fixture.match_id, now)
        async with (
            aclosing(follows),
            aclosing(activities),
            aclosing(joined(follows, activities)) as people,
        ):
            async for page in _pages(person async for person in people if self._needs(person, now)):
                sheet = Sheet(fixture.match_id, self.show, self.clock)
                for pushes in await asyncio.gather(
                    *(self._see_to(person, fixture, sheet, channel_of) for person in page)
                ):
                    ends += pushes.ends
                    for push in pushes.starts:
                        yield push

    def _needs(self, person: Person, now: int) -> bool:
        """Whether there may be something to do about them."""
        if person.follow is None:
            return any(
                each.status is not ActivityStatus.ENDED or _is_overdue(each, now)
                for each in person.activities
            )
        if any(_is_overdue(each, now) for each in person.activities):
            return True
        waiting = [each for each in person.activities if each.status is not ActivityStatus.ACTIVE]
        if not person.activities or any(
            is_start_due(each, now, RESTARTABLE_REASONS) for each in waiting
        ):
            return True
        return self.looked_at.get((person.follow.match_id, person.user_id)) is None

    async def _see_to(
        self, person: Person, fixture: Fixture, sheet: Sheet, channel_of: ChannelOf
    ) -> "Pushes":
        now = self.clock.milliseconds()
        again = await self.ender.pushes(
            [each for each in person.activities if _is_overdue(each, now)], sheet
        )
        if person.follow is None:
            follow = await self.follows.get(fixture.match_id, person.user_id, now // 1000)
            left = person.activities if follow is None else []
            return Pushes([], [*again, *await self.ender.end(left, EndReason.USER_UNFOLLOW, sheet)])
        self.looked_at.put((fixture.match_id, person.user_id), True)
        known = {each.device_id: each for each in person.activities}
        starts = await self.starter.claim(
            Follower(fixture, person.follow, known), sheet, RESTARTABLE_REASONS, channel_of
        )
        return Pushes(starts, again)


class Once:
    """Asks for the channel of a match once, however many want to know."""

    def __init__(self, channel_of: ChannelOf) -> None:
        self._channel_of = channel_of
        self._asking: asyncio.Future[str | None] | None = None

    async def __call__(self) -> str | None:
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._channel_of())
        return await self._asking


class Pushes(NamedTuple):
    """What is to be sent to one person."""

    starts: list[Push]
    ends: list[Push]


def _is_overdue(activity: LiveActivity, now: int) -> bool:
    return is_end_undelivered(activity) and activity.updated_at + TOLD_AGAIN_MS <= now


async def joined(
    follows: AsyncIterator[Follow], activities: AsyncIterator[LiveActivity]
) -> AsyncGenerator[Person, None]:
    """People by id, each with what is known from both sides."""
    follow, activity = await anext(follows, None), await anext(activities, None)
    while follow is not None or activity is not None:
        user_id = min(each.user_id for each in (follow, activity) if each is not None)
        theirs: list[LiveActivity] = []
        while activity is not None and activity.user_id == user_id:
            theirs.append(activity)
            activity = await anext(activities, None)
        if follow is not None and follow.user_id == user_id:
            yield Person(user_id, follow, theirs)
            follow = await anext(follows, None)
        else:
            yield Person(user_id, None, theirs)


async def _pages(people: AsyncIterator[Person]) -> AsyncIterator[list[Person]]:
    page: list[Person] = []
    async for person in people:
        page.append(person)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
