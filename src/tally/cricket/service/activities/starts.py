"""Starts Live Activities remotely on each device of a user who follows a live match.

A conditional write claims each start before it is sent, so that only one of several instances, or
of a follow and the orchestrator, sends it: at most once. An activity becomes active when its device
confirms it. A start that is lost in a crash or in transit, or whose confirmation is, is repeated
(see `model.lifecycle`). A device with iOS 18 of a neutral follower subscribes to the match's
broadcast channel, if there is one. Its activity has no token, so it cannot change to a team's view:
it is replaced by an activity with a token.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias, cast

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.lifecycle import (
    ANY_REASON,
    RESTART_AFTER_MS,
    is_restart,
    is_start_due,
    next_restarts,
)
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tally.cricket.model.records import (
    NEUTRAL,
    ActivityStatus,
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
    UserDevice,
    fixture_follow_expiry,
)
from tally.cricket.repository.devices import UserDeviceRepository
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.service.activities.match_payloads import MatchPayloads
from tally.cricket.service.ports import PushGateway
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

# Returns the match's channel, which may be created when the first device needs it.
GetChannel: TypeAlias = Callable[[], Awaitable[str | None]]

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Follower:
    """A follower of a live match, with the follower's Live Activities by device."""

    fixture: Fixture
    follow: Follow
    activities: Mapping[str, LiveActivity]


@dataclass(frozen=True, slots=True)
class ClaimedStart:
    """A start that this instance has claimed; the push carries it as its reference."""

    device: UserDevice
    activity: LiveActivity


@dataclass(frozen=True, slots=True)
class ActivityStarter:
    """Claims starts, sends them and processes the results."""

    activities: LiveActivityRepository
    devices: UserDeviceRepository
    apns: PushGateway
    clock: Clock

    async def claim(
        self,
        follower: Follower,
        payloads: MatchPayloads,
        restartable: Collection[EndReason],
        get_channel: GetChannel,
    ) -> list[Push]:
        """Claim the starts that are due on a follower's devices; return their pushes.

        An activity that ended for a `restartable` reason is started again.
        """
        now = self.clock.milliseconds()
        pushes: list[Push] = []
        for device in await self.devices.list_by_user(follower.follow.user_id, now // 1000):
            activity = follower.activities.get(device.device_id)
            if device.push_to_start_token is None:
                continue
            is_replaced = needs_token(activity, follower.follow)
            is_counted = not is_replaced and is_restart(activity)
            if not (is_replaced or is_start_due(activity, now, restartable)) or (
                is_counted and next_restarts(device.restarted_at, now) is None
            ):
                continue
            claimed = await self._claim_start(follower, device, payloads, restartable, get_channel)
            if claimed and is_counted and not await self.devices.claim_restart(device, now):
                await self._release(claimed[0], activity)
                continue
            pushes += claimed
        return pushes

    async def claim_again(
        self, follower: Follower, payloads: MatchPayloads, device_id: str, get_channel: GetChannel
    ) -> list[Push] | None:
        """Claim a start on a device in any state; return None if the device cannot be started."""
        now = self.clock.seconds()
        for device in await self.devices.list_by_user(follower.follow.user_id, now):
            if device.device_id == device_id and device.push_to_start_token is not None:
                return await self._claim_start(follower, device, payloads, ANY_REASON, get_channel)
        return None

    async def _claim_start(
        self,
        follower: Follower,
        device: UserDevice,
        payloads: MatchPayloads,
        restartable: Collection[EndReason],
        get_channel: GetChannel,
    ) -> list[Push]:
        """Claim one start; return its push, or nothing if another instance was faster."""
        follow = follower.follow
        channel_id = await get_channel() if uses_channel(device, follow) else None
        content_hash = await payloads.start_content_hash(follow.team_id)
        claimed = self._pending(follower, device, channel_id, content_hash)
        seen = follower.activities.get(device.device_id)
        is_claimed = (
            await self.activities.create(claimed, restartable)
            if seen is None or seen.status is ActivityStatus.ENDED
            else await self.activities.claim_start(seen, claimed)
        )
        return [await self._push(device, claimed, payloads)] if is_claimed else []

    async def _release(self, push: Push, seen: LiveActivity | None) -> None:
        """Give a claim back, because the device was restarted for other matches meanwhile."""
        claimed = cast("ClaimedStart", push.reference).activity
        await self.activities.release_start(claimed, None if seen is None else seen.started_at)

    async def send(self, pushes: AsyncIterable[Push]) -> int:
        """Send a stream of starts; return how many APNs accepted."""
        counts: Counter[tuple[PushOutcome, str]] = Counter()
        async with aclosing(self.apns.send_all(pushes)) as results:
            async for push, result in results:
                await self._handle_result(push, result)
                counts[result.outcome, result.reason] += 1
        _log_failures(counts)
        return sum(
            count for (outcome, _), count in counts.items() if outcome is PushOutcome.DELIVERED
        )

    async def send_few(self, pushes: Collection[Push]) -> None:
        """Send the starts of one user."""

        async def send(push: Push) -> tuple[PushOutcome, str]:
            result = await self.apns.send(push)
            await self._handle_result(push, result)
            return result.outcome, result.reason

        _log_failures(Counter(await asyncio.gather(*(send(push) for push in pushes))))

    async def _handle_result(self, push: Push, result: PushResult) -> None:
        """Release a start that certainly did not arrive, so that it is due again at once.

        Without a response it may have arrived; without a key the next one would be in vain.
        """
        claimed = cast("ClaimedStart", push.reference)
        if result.outcome is PushOutcome.TOKEN_INVALID:
            await self.devices.remove_push_to_start(claimed.device)
        elif result.outcome is not PushOutcome.RETRY or result.status == 0:
            return
        await self.activities.release_start(claimed.activity, None)

    async def _push(
        self, device: UserDevice, activity: LiveActivity, payloads: MatchPayloads
    ) -> Push:
        return Push(
            token=device.push_to_start_token or "",
            apns_id=new_uuid(),
            payload=await payloads.start(activity.team_id, activity.channel_id),
            priority=10,
            # Expires before the next start: a device that was offline must not start two.
            expiration=(activity.updated_at + RESTART_AFTER_MS) // 1000,
            is_repeatable=False,
            reference=ClaimedStart(device, activity),
        )

    def _pending(
        self, follower: Follower, device: UserDevice, channel_id: str | None, content_hash: str
    ) -> LiveActivity:
        now = self.clock.milliseconds()
        follow, seen = follower.follow, follower.activities.get(device.device_id)
        return LiveActivity(
            match_id=follow.match_id,
            user_id=follow.user_id,
            device_id=device.device_id,
            team_id=follow.team_id,
            alerts=follow.alerts,
            status=ActivityStatus.PENDING,
            created_at=now,
            updated_at=now,
            expires_at=activity_expiry(follower.fixture, now),
            channel_id=channel_id,
            starts=1 if seen is None else seen.starts + 1,
            started_at=now,
            shown=content_hash,
        )


def may_use_channel(follow: Follow) -> bool:
    """Whether the channel serves this follower.

    It carries one payload for all: the neutral view, with the alerts of the default choice.
    """
    return follow.team_id == NEUTRAL and follow.alerts is AlertChoice.ALL


def uses_channel(device: UserDevice, follow: Follow) -> bool:
    """Whether an activity is started on the channel of its match, or with a token of its own."""
    return device.can_broadcast and may_use_channel(follow)


def needs_token(activity: LiveActivity | None, follow: Follow) -> bool:
    """Whether an activity runs on the channel, and its follower has since chosen something else."""
    return (
        activity is not None
        and activity.status is not ActivityStatus.ENDED
        and activity.channel_id is not None
        and not may_use_channel(follow)
    )


def _log_failures(counts: Mapping[tuple[PushOutcome, str], int]) -> None:
    """Log one line per kind of failure, however many devices it affects."""
    for (outcome, reason), count in counts.items():
        if outcome is not PushOutcome.DELIVERED:
            _log.warning(
                "Live Activity starts failed",
                action="activity_start_failed",
                outcome=outcome.value,
                reason=reason,
                count=count,
            )


def activity_expiry(fixture: Fixture, now: int) -> int:
    """Return when an activity expires: with the follow, but at least an hour from now."""
    return fixture_follow_expiry(fixture, now)
