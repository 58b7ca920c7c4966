"""Ends all Live Activities of a finished match and deletes its temporary data.

The live pipeline normally delivers the final state as the end of each activity and then sets
`PollerState.ENDED` in the match record; then only the records are updated here. If the pipeline did
not get that far, the devices are notified from here. Nothing is deleted before every device has
been notified or cannot be reached any more. Every step is idempotent.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.lifecycle import is_end_undelivered
from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import (
    NEUTRAL,
    ActiveMatch,
    ActivityStatus,
    EndReason,
    Fixture,
    LiveActivity,
    PollerState,
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
# Statuses after which a match does not resume, so that its follows are deleted.
FINAL_STATUSES: Final = frozenset(
    {MatchStatus.FINISHED, MatchStatus.ABANDONED, MatchStatus.CANCELLED}
)


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
        is_notified = match.poller_state is PollerState.ENDED
        unsent = (
            0
            if is_notified or match.channel_id is None
            else await self._broadcast(match.channel_id, payloads)
        )
        unsent += await self.ender.send(
            self._end_pushes(match.match_id, payloads, is_notified=is_notified)
        )
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
        self, match_id: str, payloads: MatchPayloads, *, is_notified: bool
    ) -> AsyncGenerator[Push, None]:
        now = self.clock.milliseconds()
        page: list[LiveActivity] = []
        async with aclosing(
            self.repositories.activities.list_by_match(match_id, now)
        ) as activities:
            async for activity in activities:
                page.append(activity)
                if len(page) == PAGE_SIZE:
                    for push in await self._end_page(page, payloads, is_notified=is_notified):
                        yield push
                    page = []
        for push in await self._end_page(page, payloads, is_notified=is_notified):
            yield push
        if is_notified:
            return
        async with aclosing(
            self.repositories.subscriptions.list_by_match(match_id, now // 1000)
        ) as subscriptions:
            async for subscription in subscriptions:
                for push in await self.ender.pushes(
                    [subscription], payloads, DISMISS_AFTER_SECONDS
                ):
                    yield push

    async def _end_page(
        self, page: list[LiveActivity], payloads: MatchPayloads, *, is_notified: bool
    ) -> list[Push]:
        """End activities; return pushes for the devices that have not been notified."""
        running = [activity for activity in page if activity.status is not ActivityStatus.ENDED]
        owed = await self.ender.pushes(
            [activity for activity in page if is_end_undelivered(activity)],
            payloads,
            DISMISS_AFTER_SECONDS,
        )
        ended = await self.ender.end(running, EndReason.MATCH_END, payloads, DISMISS_AFTER_SECONDS)
        if not is_notified:
            return [*owed, *ended]
        await self.ender.mark_notified(ended)
        return owed

    async def _clean_up(self, match_id: str, fixture: Fixture | None) -> None:
        if fixture is None or fixture.status in FINAL_STATUSES:
            await self.repositories.follows.remove_all(match_id)
        await self.repositories.subscriptions.remove_all(match_id)
        for view in (NEUTRAL, *(fixture.team_ids if fixture is not None else ())):
            await self.repositories.hashes.delete(match_id, view)
        now = self.clock.milliseconds()
        await self.repositories.matches.end(match_id, now, now // 1000 + RECORD_TTL_SECONDS)
