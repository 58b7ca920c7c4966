"""Starts Live Activities remotely on each device of a user who follows a live match.

A conditional write claims each start before it is sent, so that only one of several instances, or
of a follow and the orchestrator, sends it: at most once. A start that is lost in a crash or in
transit is repeated after a back-off (see `model.lifecycle`). A device with iOS 18 of a neutral
follower subscribes to the match's broadcast channel, if there is one. It never registers a token,
so its activity becomes active as soon as APNs accepts the start.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias, cast

from tally.cricket.model.lifecycle import consecutive_starts, is_start_due, start_backoff_ms
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tally.cricket.model.records import (
    NEUTRAL,
    ActivityStatus,
    EndReason,
    Fixture,
    Follow,
    LiveActivity,
    UserDevice,
    follow_expiry,
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
        follow = follower.follow
        pushes: list[Push] = []
        for device in await self.devices.list_by_user(follow.user_id, now // 1000):
            activity = follower.activities.get(device.device_id)
            if device.push_to_start_token is None or not is_start_due(activity, now, restartable):
                continue
            uses_channel = device.can_broadcast and follow.team_id == NEUTRAL
            channel_id = await get_channel() if uses_channel else None
            content_hash = await payloads.start_content_hash(follow.team_id)
            claimed = self._pending(follower, device, channel_id, content_hash)
            if await self._try_claim(activity, claimed, restartable):
                pushes.append(await self._push(device, claimed, payloads))
        return pushes

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
        """Record the result of a start. A failed one is repeated when it is due."""
        claimed = cast("ClaimedStart", push.reference)
        activity = claimed.activity
        if result.outcome is PushOutcome.DELIVERED:
            if activity.channel_id is not None:
                active = replace(
                    activity, status=ActivityStatus.ACTIVE, updated_at=self.clock.milliseconds()
                )
                await self.activities.activate(active)
        elif result.outcome is PushOutcome.TOKEN_INVALID:
            await self.devices.remove_push_to_start(claimed.device)

    async def _try_claim(
        self,
        existing: LiveActivity | None,
        claimed: LiveActivity,
        restartable: Collection[EndReason],
    ) -> bool:
        if existing is not None and existing.status is ActivityStatus.PENDING:
            now = claimed.updated_at
            return await self.activities.claim_start(
                existing, now, claimed.channel_id, claimed.shown
            )
        return await self.activities.create(claimed, restartable)

    async def _push(
        self, device: UserDevice, activity: LiveActivity, payloads: MatchPayloads
    ) -> Push:
        wait = start_backoff_ms(activity.starts) // 1000
        return Push(
            token=device.push_to_start_token or "",
            apns_id=new_uuid(),
            payload=await payloads.start(activity.team_id, activity.channel_id),
            priority=10,
            # Expires before the next start: a device that was offline must not start two.
            expiration=self.clock.seconds() + wait,
            reference=ClaimedStart(device, activity),
        )

    def _pending(
        self, follower: Follower, device: UserDevice, channel_id: str | None, content_hash: str
    ) -> LiveActivity:
        now = self.clock.milliseconds()
        follow = follower.follow
        return LiveActivity(
            match_id=follow.match_id,
            user_id=follow.user_id,
            device_id=device.device_id,
            team_id=follow.team_id,
            status=ActivityStatus.PENDING,
            created_at=now,
            updated_at=now,
            expires_at=activity_expiry(follower.fixture, now),
            channel_id=channel_id,
            starts=consecutive_starts(follower.activities.get(device.device_id), now) + 1,
            started_at=now,
            shown=content_hash,
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
    return max(follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600)
