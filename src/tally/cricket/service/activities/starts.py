"""Starting Live Activities from afar, on each device of a person who follows a live match.

A start is claimed by a conditional write before it is sent, so that of several instances, and of a
follow and the orchestrator at once, one sends it: at most once. If it is lost, in a crash or on its
way, the next one follows after a while (`lifecycle.py`). A device of iOS 18 that looks at the match
from no side is put on the match's broadcast channel, if there is one. It never hands in a token for
it, so its activity counts as active as soon as Apple has taken the start.
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
from tally.cricket.service.activities.match_payloads import Sheet
from tally.cricket.service.ports import PushGateway
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid

# The channel of the match, made when the first device wants it; None where there is none.
ChannelOf: TypeAlias = Callable[[], Awaitable[str | None]]

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Follower:
    """Somebody who follows a live match, and what is known of their Live Activities, by device."""

    fixture: Fixture
    follow: Follow
    known: Mapping[str, LiveActivity]


@dataclass(frozen=True, slots=True)
class Started:
    """What a push-to-start is for: it comes back with the verdict."""

    device: UserDevice
    activity: LiveActivity


@dataclass(frozen=True, slots=True)
class Starter:
    """Claims starts, sends them, and sees to what came of them."""

    activities: LiveActivityRepository
    devices: UserDeviceRepository
    apns: PushGateway
    clock: Clock

    async def claim(
        self,
        person: Follower,
        sheet: Sheet,
        anew_after: Collection[EndReason],
        channel_of: ChannelOf,
    ) -> list[Push]:
        """The starts that are due on a person's devices, claimed and ready to be sent."""
        now = self.clock.milliseconds()
        follow = person.follow
        pushes: list[Push] = []
        for device in await self.devices.of_user(follow.user_id, now // 1000):
            activity = person.known.get(device.device_id)
            if device.push_to_start_token is None or not is_start_due(activity, now, anew_after):
                continue
            wants_channel = device.can_broadcast and follow.team_id == NEUTRAL
            channel_id = await channel_of() if wants_channel else None
            shown = await sheet.shown_at_start(follow.team_id)
            claimed = self._pending(person, device, channel_id, shown)
            if await self._is_mine(activity, claimed, anew_after):
                pushes.append(await self._push(device, claimed, sheet))
        return pushes

    async def send(self, pushes: AsyncIterable[Push]) -> int:
        """Send all of these, streamed; how many Apple has taken."""
        came: Counter[tuple[PushOutcome, str]] = Counter()
        async with aclosing(self.apns.send_all(pushes)) as verdicts:
            async for push, verdict in verdicts:
                await self._heard(push, verdict)
                came[verdict.outcome, verdict.reason] += 1
        _tell(came)
        return sum(
            count for (outcome, _), count in came.items() if outcome is PushOutcome.DELIVERED
        )

    async def send_few(self, pushes: Collection[Push]) -> None:
        """Send the starts of one person."""

        async def send(push: Push) -> tuple[PushOutcome, str]:
            verdict = await self.apns.send(push)
            await self._heard(push, verdict)
            return verdict.outcome, verdict.reason

        _tell(Counter(await asyncio.gather(*(send(push) for push in pushes))))

    async def _heard(self, push: Push, verdict: PushResult) -> None:
        """See to what came of a start. One that may pass is tried again when it is due."""
        started = cast("Started", push.reference)
        activity = started.activity
        if verdict.outcome is PushOutcome.DELIVERED:
            if activity.channel_id is not None:
                active = replace(
                    activity, status=ActivityStatus.ACTIVE, updated_at=self.clock.milliseconds()
                )
                await self.activities.activate(active)
        elif verdict.outcome is PushOutcome.TOKEN_INVALID:
            await self.devices.forget_push_to_start(started.device)

    async def _is_mine(
        self, before: LiveActivity | None, claimed: LiveActivity, anew_after: Collection[EndReason]
    ) -> bool:
        if before is not None and before.status is ActivityStatus.PENDING:
            now = claimed.updated_at
            return await self.activities.claim_start(before, now, claimed.channel_id, claimed.shown)
        return await self.activities.create(claimed, anew_after)

    async def _push(self, device: UserDevice, activity: LiveActivity, sheet: Sheet) -> Push:
        wait = start_backoff_ms(activity.starts) // 1000
        return Push(
            token=device.push_to_start_token or "",
            apns_id=new_uuid(),
            payload=await sheet.start(activity.team_id, activity.channel_id),
            priority=10,
            # Not longer than until the next one, or a device that was away would show the match
            # twice.
            expiration=self.clock.seconds() + wait,
            reference=Started(device, activity),
        )

    def _pending(
        self, person: Follower, device: UserDevice, channel_id: str | None, shown: str
    ) -> LiveActivity:
        now = self.clock.milliseconds()
        follow = person.follow
        return LiveActivity(
            match_id=follow.match_id,
            user_id=follow.user_id,
            device_id=device.device_id,
            team_id=follow.team_id,
            status=ActivityStatus.PENDING,
            created_at=now,
            updated_at=now,
            expires_at=activity_expiry(person.fixture, now),
            channel_id=channel_id,
            starts=consecutive_starts(person.known.get(device.device_id), now) + 1,
            started_at=now,
            shown=shown,
        )


def _tell(came: Mapping[tuple[PushOutcome, str], int]) -> None:
    """One line for each kind of trouble, however many devices it was with."""
    for (outcome, reason), count in came.items():
        if outcome is not PushOutcome.DELIVERED:
            told = {"outcome": outcome.value, "reason": reason, "count": count}
            _log.warning("Live Activities could not be started", action="activity_start", **told)


def activity_expiry(fixture: Fixture, now: int) -> int:
    """Two days after the match started, or an hour from now where that is later: the end of the match comes first."""
    return max(follow_expiry(fixture.start_time, fixture.match_type), now // 1000 + 3_600)
