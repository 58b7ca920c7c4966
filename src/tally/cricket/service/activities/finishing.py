"""Ends all Live Activities of a match that is over and deletes its temporary data.

The live pipeline has delivered the result as an update. The match is finished ten minutes later,
when the result is final (see `model.results`). Nothing is deleted before every device has been
notified or cannot be reached any more. Every step is idempotent.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tally.cricket.model.lifecycle import is_end_undelivered
from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import (
    NEUTRAL,
    ActiveMatch,
    ActivityStatus,
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
)
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.endings import ActivityEnder
from tally.cricket.service.activities.match_payloads import (
    DISMISS_AFTER_SECONDS,
    END_PUSH_EXPIRATION_SECONDS,
    MatchPayloads,
)
from tally.cricket.service.ports import PushGateway, ReadDisplay
from tally.kit.clock import Clock

PAGE_SIZE: Final = 200
RECORD_TTL_SECONDS: Final = 2 * 86_400
# Clean up after this long, even if some devices could not be notified.
NOTIFY_TIMEOUT_MS: Final = 1_800_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchFinisher:
    """Finishes one match at a time."""

    repositories: Repositories
    ender: ActivityEnder
    apns: PushGateway
    read_display: ReadDisplay
    clock: Clock

    async def finish(self, match: ActiveMatch, fixture: Fixture | None, over_since: int) -> bool:
        """Finish a match; return False if devices remain to be notified by a later call."""
        payloads = MatchPayloads(match.match_id, self.read_display, self.clock)
        unsent = 0
        if match.channel_id is not None:
            unsent = await self._broadcast(match.channel_id, payloads)
        unsent += await self.ender.send(self._end_pushes(match.match_id, payloads))
        if unsent and over_since + NOTIFY_TIMEOUT_MS > self.clock.milliseconds():
            return False
        await self._clean_up(match.match_id, fixture)
        return True

    async def _broadcast(self, channel_id: str, payloads: MatchPayloads) -> int:
        result = await self.apns.broadcast(
            channel_id,
            await payloads.end(NEUTRAL, DISMISS_AFTER_SECONDS, to_channel=True),
            priority=10,
            expiration=self.clock.seconds() + END_PUSH_EXPIRATION_SECONDS,
        )
        return int(result.outcome is PushOutcome.RETRY)

    async def _end_pushes(
        self, match_id: str, payloads: MatchPayloads
    ) -> AsyncGenerator[Push, None]:
        now = self.clock.milliseconds()
        page: list[LiveActivity] = []
        async with aclosing(
            self.repositories.activities.list_by_match(match_id, now)
        ) as activities:
            async for activity in activities:
                page.append(activity)
                if len(page) == PAGE_SIZE:
                    for push in await self._end_page(page, payloads):
                        yield push
                    page = []
        for push in await self._end_page(page, payloads):
            yield push
        async with aclosing(
            self.repositories.subscriptions.list_by_match(match_id, now // 1000)
        ) as subscriptions:
            async for subscription in subscriptions:
                for push in await self.ender.pushes(
                    [subscription], payloads, DISMISS_AFTER_SECONDS
                ):
                    yield push

    async def _end_page(self, page: list[LiveActivity], payloads: MatchPayloads) -> list[Push]:
        """End activities; return pushes for the devices that have not been notified."""
        running = [activity for activity in page if activity.status is not ActivityStatus.ENDED]
        owed = await self.ender.pushes(
            [activity for activity in page if is_end_undelivered(activity)],
            payloads,
            DISMISS_AFTER_SECONDS,
        )
        ended = await self.ender.end(running, EndReason.MATCH_END, payloads, DISMISS_AFTER_SECONDS)
        return [*owed, *ended]

    async def _clean_up(self, match_id: str, fixture: Fixture | None) -> None:
        if fixture is not None:
            # Play may have resumed, or an operator may hold the match, since the first push.
            fixture = await self.repositories.fixtures.get(match_id)
        if fixture is not None and (fixture.is_live or fixture.is_held):
            return
        if fixture is None or fixture.status.is_over:
            await self._delete_follows(match_id)
        await self.repositories.subscriptions.remove_all(match_id)
        for view in (NEUTRAL, *(fixture.team_ids if fixture is not None else ())):
            await self.repositories.hashes.delete(match_id, view)
        now = self.clock.milliseconds()
        await self.repositories.matches.end(match_id, now, now // 1000 + RECORD_TTL_SECONDS)

    async def _delete_follows(self, match_id: str) -> None:
        """Delete the follows; an operator can restore them for a day."""
        now, page = self.clock.seconds(), list[Follow]()
        async with aclosing(self.repositories.follows.list_by_match(match_id, now)) as follows:
            async for follow in follows:
                page.append(follow)
                if len(page) == PAGE_SIZE:
                    await self.repositories.deleted_follows.keep(page, now)
                    page = []
        await self.repositories.deleted_follows.keep(page, now)
        await self.repositories.follows.remove_all(match_id)
