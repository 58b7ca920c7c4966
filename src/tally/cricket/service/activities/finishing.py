"""The end of a match: every Live Activity ends, and what was kept only for the match goes.

The live pipeline hands the final state to all devices as the end of their activities and then says
so in the match's record (`PollerState.ENDED`); what is left here is to note it. If the pipeline
never came to that, the devices are told from here. Nothing is cleaned up before all of them know,
or can no longer be reached, and all of it may be done twice.
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
from tally.cricket.repository.active_matches import ActiveMatchRepository
from tally.cricket.repository.follows import FollowRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.state_hashes import StateHashRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.endings import KEPT_SECONDS, Ender
from tally.cricket.service.activities.match_payloads import Sheet
from tally.cricket.service.ports import PushGateway, Show
from tally.kit.clock import Clock

# The final score stays on the Lock Screen for this long.
SHOWN_SECONDS: Final = 900
PAGE: Final = 200
RECORD_SECONDS: Final = 2 * 86_400
# Who could not be told for this long will not be told any more.
PATIENCE_MS: Final = 1_800_000
# The match will not go on, so nobody needs to follow it.
FINAL: Final = frozenset({MatchStatus.FINISHED, MatchStatus.ABANDONED, MatchStatus.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finisher:
    """Winds up one match at a time."""

    activities: LiveActivityRepository
    matches: ActiveMatchRepository
    follows: FollowRepository
    subscriptions: ActivitySubscriptionRepository
    hashes: StateHashRepository
    ender: Ender
    apns: PushGateway
    show: Show
    clock: Clock

    async def finish(self, match: ActiveMatch, fixture: Fixture | None, over_since: int) -> bool:
        """Whether all is done; if not, somebody could not be told yet, and it should be tried again."""
        sheet = Sheet(match.match_id, self.show, self.clock)
        is_told = match.poller_state is PollerState.ENDED
        left = (
            0
            if is_told or match.channel_id is None
            else await self._broadcast(match.channel_id, sheet)
        )
        left += await self.ender.send(self._ends(match.match_id, sheet, is_told=is_told))
        if left and over_since + PATIENCE_MS > self.clock.milliseconds():
            return False
        await self._clean_up(match.match_id, fixture)
        return True

    async def _broadcast(self, channel_id: str, sheet: Sheet) -> int:
        payload = await sheet.end(NEUTRAL, SHOWN_SECONDS, to_channel=True)
        verdict = await self.apns.broadcast(
            channel_id, payload, priority=10, expiration=self.clock.seconds() + KEPT_SECONDS
        )
        return int(verdict.outcome is PushOutcome.RETRY)

    async def _ends(
        self, match_id: str, sheet: Sheet, *, is_told: bool
    ) -> AsyncGenerator[Push, None]:
        now = self.clock.milliseconds()
        page: list[LiveActivity] = []
        async with aclosing(self.activities.of_match(match_id, now)) as activities:
            async for activity in activities:
                page.append(activity)
                if len(page) == PAGE:
                    for push in await self._end(page, sheet, is_told=is_told):
                        yield push
                    page = []
        for push in await self._end(page, sheet, is_told=is_told):
            yield push
        if is_told:
            return
        async with aclosing(self.subscriptions.of_match(match_id, now // 1000)) as subscriptions:
            async for subscription in subscriptions:
                for push in await self.ender.pushes([subscription], sheet, SHOWN_SECONDS):
                    yield push

    async def _end(self, page: list[LiveActivity], sheet: Sheet, *, is_told: bool) -> list[Push]:
        """The pushes for those who do not know yet; where all have been told, that is noted."""
        on = [each for each in page if each.status is not ActivityStatus.ENDED]
        owed = await self.ender.pushes(
            [each for each in page if is_end_undelivered(each)], sheet, SHOWN_SECONDS
        )
        ended = await self.ender.end(on, EndReason.MATCH_END, sheet, SHOWN_SECONDS)
        if not is_told:
            return [*owed, *ended]
        await self.ender.settle(ended)
        return owed

    async def _clean_up(self, match_id: str, fixture: Fixture | None) -> None:
        if fixture is None or fixture.status in FINAL:
            await self.follows.remove_all(match_id)
        await self.subscriptions.remove_all(match_id)
        for view in (NEUTRAL, *(fixture.team_ids if fixture is not None else ())):
            await self.hashes.delete(match_id, view)
        now = self.clock.milliseconds()
        await self.matches.end(match_id, now, now // 1000 + RECORD_SECONDS)
