"""Delivers the newest display update of a match to all its devices.

`FanOut` streams the devices from the store page by page and never loads all of them. A newer update
replaces the one in flight and continues from the current position. An alert stays with the updates
that follow it until every device has been alerted. An invalid token ends its Live Activity. A push
that failed is sent again later, with the update that is the newest then. Devices on the match's
broadcast channel are reached with one request.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import msgspec

from tally.cricket.model.events import AlertChoice
from tally.cricket.model.payloads import Alert
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tally.cricket.model.records import NEUTRAL, PushTarget
from tally.cricket.service.activities.match_payloads import DisplayUpdate
from tally.cricket.service.live.fanout_cursor import INITIAL_CURSOR, START_KEY, FanoutCursor
from tally.cricket.service.live.push_targets import (
    PushTargets,
    Target,
    target_key,
    target_token,
)
from tally.cricket.service.ports import PushGateway
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.retry import full_jitter

MAX_UNREACHED: Final = 10_000
INITIAL_BACKOFF_SECONDS: Final = 2.0
MAX_BACKOFF_SECONDS: Final = 60.0
_EMPTY_UPDATE: Final = DisplayUpdate({NEUTRAL: {}}, 0)

_log = logs.logger()


class PendingAlert(NamedTuple):
    """An alert that stays with the updates until it has reached every device."""

    alert: Alert
    cursor: FanoutCursor


class Recipient(msgspec.Struct, frozen=True):
    """The target of a push, and whether the push carries the alert."""

    target: Target
    is_alerted: bool


@dataclass(slots=True)
class _Broadcast:
    """The state of the broadcast channel: whether the update and an alert are still to be sent."""

    channel_id: str | None = None
    is_pending: bool = False
    alert: Alert | None = None


@dataclass(slots=True)
class FanOut:
    """The fan-out of one match; `run` it while it is busy.

    `on_delivered` is called with each update that all devices have. The private fields are the
    position of the fan-out: they change together, on the hot path, and are therefore not grouped.
    """

    match_id: str
    targets: PushTargets
    apns: PushGateway
    clock: Clock
    on_delivered: Callable[[DisplayUpdate], Awaitable[None]]
    update: DisplayUpdate | None = None
    # The newest alert of each choice.
    _alerts: dict[AlertChoice, PendingAlert] = field(default_factory=dict)
    _update_cursor: FanoutCursor = INITIAL_CURSOR
    _cycle: int = 0
    _key: str = START_KEY
    _is_pending: bool = False
    _broadcast: _Broadcast = field(default_factory=_Broadcast)
    # Recipients whose push failed, by key.
    _unreached: dict[str, Recipient] = field(default_factory=dict)
    _attempts: int = 0
    _replaced: asyncio.Event = field(default_factory=asyncio.Event)
    # Encoded payloads of the current update, by view and the choice whose alert they carry.
    _payloads: dict[tuple[str, AlertChoice | None], bytes] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether some device lacks the newest update."""
        return self._is_pending or self._broadcast.is_pending or bool(self._unreached)

    def replace_pending(
        self,
        update: DisplayUpdate,
        alerts: Mapping[AlertChoice, Alert],
        channel_id: str | None,
    ) -> None:
        """Deliver this update instead of the one in flight, with an alert for some choices."""
        self.update, self._payloads = update, {}
        self._update_cursor = FanoutCursor(self._cycle, self._key)
        self._is_pending, self._attempts = True, 0
        self._replaced.set()
        self._broadcast.channel_id = channel_id
        self._broadcast.is_pending = channel_id is not None
        for choice, alert in alerts.items():
            self._alerts[choice] = PendingAlert(alert, self._update_cursor)
        # The channel serves the default choice.
        self._broadcast.alert = alerts.get(AlertChoice.ALL, self._broadcast.alert)

    async def run(self) -> None:
        """Send until every device has the newest update, however often it is replaced."""
        while self.is_busy:
            if self._is_pending:
                await self._send_broadcast()
                await self._send(self._next_cycle())
            else:
                await self._retry_unreached()
        if self.update is not None:
            await self.on_delivered(self.update)

    async def _next_cycle(self) -> AsyncGenerator[Push, None]:
        """Yield a push for each device that lacks the newest update, in key order."""
        cycle = self._cycle
        is_done = False
        async with aclosing(self.targets.pages(self.match_id)) as pages:
            async for page in pages:
                for target in page:
                    key = target_key(target)
                    is_done = self._update_cursor.is_done(cycle, key)
                    if is_done:
                        break
                    self._key = key
                    if (
                        self._update_cursor.is_due(cycle, key)
                        and (push := self._push_if_needed(target, key)) is not None
                    ):
                        yield push
                if is_done:
                    break
        # An update that arrives from here on starts with a new cycle, while the last results of
        # this one are still outstanding.
        self._is_pending = not (is_done or self._update_cursor.is_done_after(cycle))
        self._cycle, self._key = cycle + 1, START_KEY

    def _push_if_needed(self, target: Target, key: str) -> Push | None:
        channel_id = self._broadcast.channel_id
        if (
            isinstance(target, PushTarget)
            and channel_id is not None
            and target.channel_id == channel_id
        ):
            return None
        if target_token(target) is None:
            return None
        missed_alert = key in self._unreached and self._unreached[key].is_alerted
        pending = self._alerts.get(target.alerts)
        is_due = pending is not None and pending.cursor.is_due(self._cycle, key)
        return self._push(target, missed_alert or is_due)

    def _push(self, target: Target, is_alerted: bool) -> Push:
        update = self.update or _EMPTY_UPDATE
        choice = target.alerts if is_alerted and target.alerts in self._alerts else None
        view = target.team_id if target.team_id in update.contents else NEUTRAL
        payload = self._payloads.get((view, choice))
        if payload is None:
            alert = None if choice is None else self._alerts[choice].alert
            payload = self._payloads[view, choice] = update.payload(view, alert)
        return Push(
            token=target_token(target) or "",
            payload=payload,
            priority=update.priority(choice is not None),
            expiration=update.expiration,
            is_replaceable=True,
            reference=Recipient(target, choice is not None),
        )

    async def _send(self, pushes: AsyncGenerator[Push, None]) -> None:
        async with aclosing(pushes), aclosing(self.apns.send_all(pushes)) as results:
            async for push, result in results:
                if result.outcome is not PushOutcome.DELIVERED or self._unreached:
                    await self._handle_result(push, result)

    async def _handle_result(self, push: Push, result: PushResult) -> None:
        recipient = cast("Recipient", push.reference)
        key = target_key(recipient.target)
        if result.outcome is PushOutcome.RETRY:
            self._add_unreached(key, recipient)
            return
        self._unreached.pop(key, None)
        if result.outcome is PushOutcome.TOKEN_INVALID:
            await self.targets.remove(recipient.target, push.token)
        elif result.outcome is PushOutcome.REJECTED:
            _log.error(
                "APNs rejected a display update",
                action="push_rejected",
                match=self.match_id,
                reason=result.reason,
            )

    def _add_unreached(self, key: str, recipient: Recipient) -> None:
        if len(self._unreached) < MAX_UNREACHED or key in self._unreached:
            self._unreached[key] = recipient
        elif not self._is_pending:
            # Too many to remember: visit all devices again.
            self._update_cursor = FanoutCursor(self._cycle, self._key)
            for choice, pending in self._alerts.items():
                self._alerts[choice] = pending._replace(cursor=self._update_cursor)
            self._is_pending = True

    async def _retry_unreached(self) -> None:
        """Send the newest update to the unreached devices after a back-off.

        Returns early when a newer update arrives during the back-off.
        """
        self._attempts += 1
        self._replaced.clear()
        try:
            pause = INITIAL_BACKOFF_SECONDS / 2 + full_jitter(
                self._attempts, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS
            )
            await finish_within(self.clock, pause, self._replaced.wait())
        except DeadlineExceeded:
            pass
        else:
            return
        await self._send_broadcast()
        unreached = list(self._unreached.values())

        async def pushes() -> AsyncGenerator[Push, None]:
            for recipient in unreached:
                yield self._push(recipient.target, recipient.is_alerted)

        await self._send(pushes())

    async def _send_broadcast(self) -> None:
        """Send the update to the match's broadcast channel, if it is pending."""
        update, broadcast = self.update, self._broadcast
        channel_id, alert = broadcast.channel_id, broadcast.alert
        if not broadcast.is_pending or channel_id is None or update is None:
            return
        result = await self.apns.broadcast(
            channel_id,
            update.payload(NEUTRAL, alert, to_channel=True),
            priority=update.priority(alert is not None),
            expiration=update.expiration,
        )
        if result.outcome is PushOutcome.RETRY or self.update is not update:
            return
        broadcast.is_pending, broadcast.alert = False, None
        if result.outcome in {PushOutcome.TOKEN_INVALID, PushOutcome.REJECTED}:
            _log.error(
                "APNs rejected a broadcast",
                action="broadcast_rejected",
                match=self.match_id,
                reason=result.reason,
            )
