"""Telling devices that a Live Activity has ended: at least once.

An activity is marked as ended before its device is told, so that of several instances one tells it;
the record keeps the token until Apple has taken the word, and whoever finds such a record later
says it again. Hearing it twice does no harm on a device.
"""

import asyncio
from collections.abc import AsyncIterable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import ActivitySubscription, EndReason, LiveActivity
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.service.activities.match_payloads import Sheet
from tally.cricket.service.ports import PushGateway
from tally.kit.clock import Clock

# For how long Apple keeps trying to reach a device that is away.
KEPT_SECONDS = 4 * 3_600


@dataclass(frozen=True, slots=True)
class Ender:
    """Ends activities, and tells their devices."""

    activities: LiveActivityRepository
    apns: PushGateway
    clock: Clock

    async def end(
        self,
        activities: Iterable[LiveActivity],
        reason: EndReason,
        sheet: Sheet,
        shown_for: int = 0,
    ) -> list[Push]:
        """Mark these as ended; the pushes for those that had not ended before and whose devices do not know."""
        now = self.clock.milliseconds()
        ended = await asyncio.gather(
            *(self.activities.end(each, reason, now) for each in activities)
        )
        return await self.pushes([each for each in ended if each is not None], sheet, shown_for)

    async def pushes(
        self,
        activities: Iterable[LiveActivity | ActivitySubscription],
        sheet: Sheet,
        shown_for: int = 0,
    ) -> list[Push]:
        """The word of the end for each that can be reached by a token."""
        pushes: list[Push] = []
        for each in activities:
            token = each.push_token if isinstance(each, ActivitySubscription) else each.update_token
            if token is not None:
                payload = await sheet.end(each.team_id, shown_for)
                pushes.append(
                    Push(
                        token=token,
                        payload=payload,
                        expiration=self.clock.seconds() + KEPT_SECONDS,
                        reference=each,
                    )
                )
        return pushes

    async def send(self, pushes: AsyncIterable[Push]) -> int:
        """Send all of these, streamed; how many could not be told yet."""
        left = 0
        async with aclosing(self.apns.send_all(pushes)) as verdicts:
            async for push, verdict in verdicts:
                left += await self._is_left(push, verdict.outcome)
        return left

    async def send_few(self, pushes: Collection[Push]) -> None:
        """Send those of one person."""

        async def send(push: Push) -> None:
            await self._is_left(push, (await self.apns.send(push)).outcome)

        await asyncio.gather(*(send(push) for push in pushes))

    async def settle(self, pushes: Iterable[Push]) -> None:
        """Note that these have been told in another way."""
        told = [push.reference for push in pushes if isinstance(push.reference, LiveActivity)]
        await asyncio.gather(*(self.activities.settle_end(each) for each in told))

    async def _is_left(self, push: Push, outcome: PushOutcome) -> bool:
        """Whether it has to be said again; if not, that is noted."""
        if outcome is PushOutcome.RETRY:
            return True
        if isinstance(push.reference, LiveActivity):
            await self.activities.settle_end(push.reference)
        return False
