"""The push targets of a match: the Live Activities and subscriptions that display it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeAlias

from tally.cricket.model.records import ActivitySubscription, EndReason, PushTarget, activity_key
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.kit.clock import Clock

# Sorts after every key of a Live Activity.
_SUBSCRIPTION_PREFIX: Final = "\U0010ffff"

# Live Activities are started by Tally or registered; apps start those of subscriptions themselves.
Target: TypeAlias = PushTarget | ActivitySubscription


@dataclass(frozen=True, slots=True)
class PushTargets:
    """Reads the push targets of matches and removes those with invalid tokens."""

    activities: LiveActivityRepository
    subscriptions: ActivitySubscriptionRepository
    clock: Clock

    async def pages(self, match_id: str) -> AsyncGenerator[Sequence[Target], None]:
        """Yield all targets of a match in key order, a page at a time."""
        now = self.clock.milliseconds()
        async with aclosing(self.activities.targets(match_id, now)) as targets:
            async for page in targets:
                yield page
        async with aclosing(
            self.subscriptions.list_by_match(match_id, now // 1000)
        ) as subscriptions:
            async for subscription in subscriptions:
                yield [subscription]

    async def remove(self, target: Target, token: str) -> None:
        """Remove a target whose token APNs reports as invalid."""
        if isinstance(target, ActivitySubscription):
            await self.subscriptions.remove(target.match_id, target.push_token, target.user_id)
        else:
            now = self.clock.milliseconds()
            await self.activities.end(target, EndReason.TOKEN_INVALID, now, only_token=token)


def target_key(target: Target) -> str:
    """Return the sort key of a target; subscriptions come last."""
    if isinstance(target, ActivitySubscription):
        return f"{_SUBSCRIPTION_PREFIX}{target.push_token}"
    return activity_key(target.user_id, target.device_id)


def target_token(target: Target) -> str | None:
    return target.push_token if isinstance(target, ActivitySubscription) else target.update_token
