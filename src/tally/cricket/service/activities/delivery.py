"""How a display state reaches the devices of a match: one payload for each view, streamed to everyone who shows it.

`FanOut` goes on until everybody has the newest state. Devices are read from the store page by page
and never held all at once. While it is on its way a newer state may be offered: it takes over from
where the fan-out stands. An alert stays with the states that follow it until everybody has been
alerted. A token that Apple no longer knows ends its Live Activity; a push that could not be
delivered in time is tried again later, with what is then the newest state. Devices on the match's
broadcast channel are reached with a single request.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, cast

from tally.cricket.model import payloads
from tally.cricket.model.payloads import Alert
from tally.cricket.model.push import Priority, Push, PushOutcome, PushResult
from tally.cricket.model.records import (
    NEUTRAL,
    ActivitySubscription,
    EndReason,
    PushTarget,
    activity_key,
)
from tally.cricket.repository.live_activities import LiveActivityRepository
from tally.cricket.repository.subscriptions import ActivitySubscriptionRepository
from tally.cricket.service.activities.fanout_cursor import FIRST, START, Turn
from tally.cricket.service.ports import PushGateway
from tally.kit import logs
from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.kit.retry import full_jitter

# After this long without news a device says that the score may be old.
STALE_SECONDS: Final = 1_800
# For how long Apple keeps trying to reach a device that is away.
KEPT_SECONDS: Final = 900
KEPT_AT_THE_END_SECONDS: Final = 4 * 3_600
# The final score stays on the Lock Screen for this long.
DISMISSED_SECONDS: Final = 900
MAX_WAITING: Final = 10_000
# After every key of a Live Activity.
LAST: Final = "\U0010ffff"
FIRST_WAIT: Final = 2.0
LONGEST_WAIT: Final = 60.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Showing:
    """What devices should show: a content for each view.

    `is_end` takes it off the screen after a while.
    """

    contents: dict[str, dict[str, Any]]
    timestamp: int
    is_end: bool = False

    def payload(self, view: str, alert: Alert | None, *, to_channel: bool = False) -> bytes:
        content = self.contents.get(view) or self.contents[NEUTRAL]
        if self.is_end:
            dismiss_at = self.timestamp + DISMISSED_SECONDS
            return payloads.end_payload(
                timestamp=self.timestamp,
                content=content,
                dismiss_at=dismiss_at,
                alert=alert,
                to_channel=to_channel,
            )
        stale_at = self.timestamp + STALE_SECONDS
        return payloads.update_payload(
            timestamp=self.timestamp,
            content=content,
            alert=alert,
            stale_at=stale_at,
            to_channel=to_channel,
        )

    def priority(self, is_alerted: bool) -> Priority:
        return 10 if is_alerted or self.is_end else 5

    @property
    def expiration(self) -> int:
        return self.timestamp + (KEPT_AT_THE_END_SECONDS if self.is_end else KEPT_SECONDS)


NOTHING_SHOWN: Final = Showing({NEUTRAL: {}}, 0)


Target: TypeAlias = PushTarget | ActivitySubscription


class Addressed(NamedTuple):
    """Whom a push is for, and whether it was to light the screen."""

    target: Target
    is_alerted: bool


@dataclass(frozen=True, slots=True)
class Audience:
    """All who show a match: Live Activities that were started here or have registered, and those that apps started themselves."""

    activities: LiveActivityRepository
    subscriptions: ActivitySubscriptionRepository
    clock: Clock

    async def of(self, match_id: str) -> AsyncGenerator[Sequence[Target], None]:
        """Everyone, a page at a time, in the order of their keys."""
        now = self.clock.milliseconds()
        async with aclosing(self.activities.targets(match_id, now)) as targets:
            async for page in targets:
                yield page
        async with aclosing(self.subscriptions.of_match(match_id, now // 1000)) as subscriptions:
            async for subscription in subscriptions:
                yield [subscription]

    async def forget(self, target: Target, token: str) -> None:
        """Apple does not know the token (any more)."""
        if isinstance(target, ActivitySubscription):
            await self.subscriptions.remove(target.match_id, target.push_token, target.user_id)
        else:
            now = self.clock.milliseconds()
            await self.activities.end(target, EndReason.TOKEN_INVALID, now, only_token=token)


def key_of(target: Target) -> str:
    """Where it comes in the order: subscriptions after everything else."""
    if isinstance(target, ActivitySubscription):
        return f"{LAST}{target.push_token}"
    return activity_key(target.user_id, target.device_id)


def token_of(target: Target) -> str | None:
    return target.push_token if isinstance(target, ActivitySubscription) else target.update_token


@dataclass(slots=True)
class FanOut:
    """The devices of one match, and what they should show.

    `run` it while it is busy; `done` hears what everybody has.
    """

    match_id: str
    audience: Audience
    apns: PushGateway
    clock: Clock
    done: Callable[[Showing], Awaitable[None]]
    showing: Showing | None = None
    _alert: Alert | None = None
    _state_turn: Turn = FIRST
    _alert_turn: Turn = FIRST
    _number: int = 0
    _key: str = START
    _is_due: bool = False
    _channel_id: str | None = None
    _is_channel_due: bool = False
    _channel_alert: Alert | None = None
    # Those who could not be reached, by key.
    _waiting: dict[str, Addressed] = field(default_factory=dict)
    _tries: int = 0
    _offered: asyncio.Event = field(default_factory=asyncio.Event)
    _made: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    @property
    def is_busy(self) -> bool:
        """Whether somebody has not been reached yet."""
        return self._is_due or self._is_channel_due or bool(self._waiting)

    def offer(self, showing: Showing, alert: Alert | None, channel_id: str | None) -> None:
        """Show this from now on, instead of what was on its way."""
        self.showing, self._made = showing, {}
        self._state_turn, self._is_due, self._tries = Turn(self._number, self._key), True, 0
        self._offered.set()
        self._channel_id, self._is_channel_due = channel_id, channel_id is not None
        if alert is not None:
            self._alert, self._alert_turn, self._channel_alert = alert, self._state_turn, alert

    async def run(self) -> None:
        """Until everybody has the newest state, however often it changes on the way."""
        while self.is_busy:
            if self._is_due:
                await self._to_channel()
                await self._send(self._round())
            else:
                await self._again()
        if self.showing is not None:
            await self.done(self.showing)

    async def _round(self) -> AsyncGenerator[Push, None]:
        """A push for each who has not had the newest state, in the order of the keys."""
        number = self._number
        is_done = False
        async with aclosing(self.audience.of(self.match_id)) as pages:
            async for page in pages:
                for target in page:
                    key = key_of(target)
                    is_done = self._state_turn.is_done(number, key)
                    if is_done:
                        break
                    self._key = key
                    if (
                        self._state_turn.is_due(number, key)
                        and (push := self._push(target, key)) is not None
                    ):
                        yield push
                if is_done:
                    break
        # What is offered from here on begins with a new round, while the last answers of this one
        # still come in.
        self._is_due = not (is_done or self._state_turn.is_done_after(number))
        self._number, self._key = number + 1, START

    def _push(self, target: Target, key: str) -> Push | None:
        if (
            isinstance(target, PushTarget)
            and self._channel_id is not None
            and target.channel_id == self._channel_id
        ):
            return None
        if token_of(target) is None:
            return None
        was_missed = key in self._waiting and self._waiting[key].is_alerted
        return self._made_for(target, was_missed or self._alert_turn.is_due(self._number, key))

    def _made_for(self, target: Target, is_alerted: bool) -> Push:
        showing = self.showing or NOTHING_SHOWN
        is_alerted = is_alerted and self._alert is not None
        view = target.team_id if target.team_id in showing.contents else NEUTRAL
        payload = self._made.get((view, is_alerted))
        if payload is None:
            payload = self._made[view, is_alerted] = showing.payload(
                view, self._alert if is_alerted else None
            )
        return Push(
            token=token_of(target) or "",
            payload=payload,
            priority=showing.priority(is_alerted),
            expiration=showing.expiration,
            is_replaceable=True,
            reference=Addressed(target, is_alerted),
        )

    async def _send(self, pushes: AsyncGenerator[Push, None]) -> None:
        async with aclosing(pushes), aclosing(self.apns.send_all(pushes)) as verdicts:
            async for push, verdict in verdicts:
                await self._heard(push, verdict)

    async def _heard(self, push: Push, verdict: PushResult) -> None:
        if verdict.outcome is PushOutcome.DELIVERED and not self._waiting:
            return
        addressed = cast("Addressed", push.reference)
        key = key_of(addressed.target)
        if verdict.outcome is PushOutcome.RETRY:
            self._wait_for(key, addressed)
            return
        self._waiting.pop(key, None)
        if verdict.outcome is PushOutcome.TOKEN_INVALID:
            await self.audience.forget(addressed.target, push.token)
        elif verdict.outcome is PushOutcome.REJECTED:
            _log.error(
                "Apple refused a push",
                action="push_refused",
                match=self.match_id,
                reason=verdict.reason,
            )

    def _wait_for(self, key: str, addressed: Addressed) -> None:
        if len(self._waiting) < MAX_WAITING or key in self._waiting:
            self._waiting[key] = addressed
        elif not self._is_due:
            # Too many to remember: another round for all.
            self._state_turn = self._alert_turn = Turn(self._number, self._key)
            self._is_due = True

    async def _again(self) -> None:
        """Those who could not be reached, after a while that grows; with what is the newest state by then."""
        self._tries += 1
        self._offered.clear()
        try:
            pause = FIRST_WAIT / 2 + full_jitter(self._tries, FIRST_WAIT, LONGEST_WAIT)
            await finish_within(self.clock, pause, self._offered.wait())
        except DeadlineExceeded:
            pass
        else:
            return
        await self._to_channel()
        waiting = list(self._waiting.values())

        async def pushes() -> AsyncGenerator[Push, None]:
            for target, is_alerted in waiting:
                yield self._made_for(target, is_alerted)

        await self._send(pushes())

    async def _to_channel(self) -> None:
        """One request for all who subscribe to the match's channel."""
        showing, channel_id, alert = self.showing, self._channel_id, self._channel_alert
        if not self._is_channel_due or channel_id is None or showing is None:
            return
        payload = showing.payload(NEUTRAL, alert, to_channel=True)
        priority = showing.priority(alert is not None)
        verdict = await self.apns.broadcast(
            channel_id, payload, priority=priority, expiration=showing.expiration
        )
        if verdict.outcome is PushOutcome.RETRY or self.showing is not showing:
            return
        self._is_channel_due, self._channel_alert = False, None
        if verdict.outcome in {PushOutcome.TOKEN_INVALID, PushOutcome.REJECTED}:
            _log.error(
                "Apple refused a broadcast",
                action="push_refused",
                match=self.match_id,
                reason=verdict.reason,
            )
