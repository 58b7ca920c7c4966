"""Ends Live Activities and notifies their devices at least once.

An activity is marked as ended before its device is notified, so that only one of several instances
notifies it. The record keeps the token until APNs accepts the push; the sweep finds such records
and sends again. A device ignores the second notification.
"""

import asyncio
from collections.abc import AsyncIterable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from tally.cricket.model.push import Push, PushOutcome
from tally.cricket.model.records import ActivitySubscription, EndReason, LiveActivity
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.service.activities.match_payloads import (
    DISMISS_IMMEDIATELY,
    END_PUSH_EXPIRATION_SECONDS,
    MatchPayloads,
)
from tally.cricket.service.ports import PushGateway
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class ActivityEnder:
    """Ends activities and sends the end payloads."""

    activities: LiveActivityRepository
    apns: PushGateway
    clock: Clock

    async def end(
        self,
        activities: Iterable[LiveActivity],
        reason: EndReason,
        payloads: MatchPayloads,
        dismiss_after: int = DISMISS_IMMEDIATELY,
    ) -> list[Push]:
        """Mark activities as ended; return pushes for those that this call ended."""
        now = self.clock.milliseconds()
        ended = await asyncio.gather(
            *(self.activities.end(activity, reason, now) for activity in activities)
        )
        return await self.pushes(
            [activity for activity in ended if activity is not None], payloads, dismiss_after
        )

    async def pushes(
        self,
        targets: Iterable[LiveActivity | ActivitySubscription],
        payloads: MatchPayloads,
        dismiss_after: int = DISMISS_IMMEDIATELY,
    ) -> list[Push]:
        """Return an end push for each target with a token."""
        pushes: list[Push] = []
        for target in targets:
            token = (
                target.push_token
                if isinstance(target, ActivitySubscription)
                else target.update_token
            )
            if token is not None:
                pushes.append(
                    Push(
                        token=token,
                        payload=await payloads.end(target.team_id, dismiss_after),
                        expiration=self.clock.seconds() + END_PUSH_EXPIRATION_SECONDS,
                        reference=target,
                    )
                )
        return pushes

    async def send(self, pushes: AsyncIterable[Push]) -> int:
        """Send a stream of pushes; return how many have to be sent again."""
        unsent = 0
        async with aclosing(self.apns.send_all(pushes)) as results:
            async for push, result in results:
                unsent += await self._must_resend(push, result.outcome)
        return unsent

    async def send_few(self, pushes: Collection[Push]) -> None:
        """Send the pushes of one user."""

        async def send(push: Push) -> None:
            await self._must_resend(push, (await self.apns.send(push)).outcome)

        await asyncio.gather(*(send(push) for push in pushes))

    async def _must_resend(self, push: Push, outcome: PushOutcome) -> bool:
        """Return whether a push has to be sent again; if not, record that."""
        if outcome is PushOutcome.RETRY:
            return True
        if isinstance(push.reference, LiveActivity):
            await self.activities.mark_end_delivered(push.reference)
        return False
