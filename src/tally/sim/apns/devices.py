"""Virtual devices: their tokens, channel subscriptions and mailboxes.

A client registers its devices with a mailbox and reads deliveries from it. A push or broadcast is
put into the mailbox of each target device. Like APNs, the registry stores the latest push per token
for an offline device until the push expires.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator
from enum import Enum
from typing import Final

import msgspec

from tally.errors import NotFound
from tally.kit.clock import Clock

MAX_QUEUED_DELIVERIES: Final = 100_000
MAX_RETIRED_TOKENS: Final = 100_000


class TokenKind(Enum):
    """The purpose of a token."""

    DEVICE = "device"
    START = "start"
    UPDATE = "update"


_TOKEN_BYTES: Final = {TokenKind.DEVICE: 32, TokenKind.START: 80, TokenKind.UPDATE: 80}


class IssuedToken(msgspec.Struct):
    """A token of a device; `retired_at_ms` is set once it is unregistered."""

    kind: TokenKind
    device: str
    retired_at_ms: int | None = None


class PushDelivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A push to a device, by token or by channel."""

    device: str
    payload: str
    push_type: str
    priority: int
    token: str | None = None
    channel: str | None = None


class Mailbox:
    """The delivery queue of one client. When it is full, the oldest deliveries are dropped."""

    def __init__(self) -> None:
        self._queue: deque[PushDelivery] = deque()
        self._arrived = asyncio.Event()
        self._is_closed = False
        self.dropped = 0

    def put(self, delivery: PushDelivery) -> None:
        if len(self._queue) >= MAX_QUEUED_DELIVERIES:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(delivery)
        self._arrived.set()

    @property
    def is_empty(self) -> bool:
        return not self._queue

    async def take(self) -> list[PushDelivery]:
        """All queued deliveries; waits for the first. Empty only after the mailbox was closed."""
        while not self._queue and not self._is_closed:
            self._arrived.clear()
            await self._arrived.wait()
        deliveries = list(self._queue)
        self._queue.clear()
        return deliveries

    def close(self) -> None:
        """End iteration for the reader."""
        self._is_closed = True
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[PushDelivery]:
        while deliveries := await self.take():
            for delivery in deliveries:
                yield delivery


class VirtualDevice(msgspec.Struct):
    """A device and what is stored for it while it is offline."""

    mailbox: Mailbox
    is_online: bool = True
    token: str | None = None
    channels: set[str] = msgspec.field(default_factory=set)
    # The latest push per token or channel, with its expiration in epoch seconds.
    stored: dict[str, tuple[int, PushDelivery]] = msgspec.field(default_factory=dict)


class DeviceRegistry:
    """All devices and tokens.

    With `accepts_any_token`, pushes to unknown tokens succeed and are discarded. Pushes can be lost
    without an error, as on real phones: those to `lossy_targets` (tokens, channels or devices),
    and `loss_share` of all others (0 to 1).
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self.accepts_any_token = False
        self.lossy_targets: set[str] = set()
        self.loss_share = 0.0
        self.lost = 0
        self.max_retired_tokens = MAX_RETIRED_TOKENS
        self.tokens: dict[str, IssuedToken] = {}
        # Retired tokens, oldest first. Beyond `max_retired_tokens` the oldest become unknown.
        self._retired: deque[str] = deque()
        self.devices: dict[str, VirtualDevice] = {}
        self.subscribers: dict[str, set[str]] = {}
        self._mailboxes: dict[str, Mailbox] = {}

    def mailbox(self, name: str) -> Mailbox:
        return self._mailboxes.setdefault(name, Mailbox())

    def register(self, device: str, mailbox: str) -> None:
        """Register a device, or move a registered one to another mailbox."""
        self.find_or_create(device, mailbox).mailbox = self.mailbox(mailbox)

    def find_or_create(self, device: str, mailbox: str) -> VirtualDevice:
        if device not in self.devices:
            self.devices[device] = VirtualDevice(self.mailbox(mailbox))
        return self.devices[device]

    def issue(self, device: str, kind: TokenKind) -> str:
        """Issue a token. A new device token retires the previous one; other kinds do not."""
        owner = self._find(device)
        token = self._rng.randbytes(_TOKEN_BYTES[kind]).hex()
        self.tokens[token] = IssuedToken(kind, device)
        if kind is TokenKind.DEVICE:
            if owner.token is not None:
                self.retire(owner.token)
            owner.token = token
        return token

    def retire(self, token: str) -> None:
        """Unregister a token: pushes to it get 410 Unregistered."""
        issued = self.tokens.get(token)
        if issued is None:
            raise NotFound("Unknown token", code="token_not_found")
        if issued.retired_at_ms is None:
            issued.retired_at_ms = self._clock.milliseconds()
            self._retired.append(token)
            if len(self._retired) > self.max_retired_tokens:
                del self.tokens[self._retired.popleft()]

    def subscribe(self, device: str, channel: str) -> None:
        self._find(device).channels.add(channel)
        self.subscribers.setdefault(channel, set()).add(device)

    def unsubscribe(self, device: str, channel: str) -> None:
        self._find(device).channels.discard(channel)
        self.subscribers.get(channel, set()).discard(device)

    def set_online(self, device: str, *, is_online: bool) -> None:
        """Set a device online, which delivers stored pushes, or offline."""
        found = self._find(device)
        found.is_online = is_online
        if is_online:
            now = self._clock.seconds()
            for expiration, delivery in found.stored.values():
                if expiration >= now:
                    found.mailbox.put(delivery)
            found.stored.clear()

    def deliver(self, delivery: PushDelivery, expiration: int) -> None:
        device = self.devices.get(delivery.device)
        if device is None:
            return
        if self._is_lost(delivery):
            self.lost += 1
            return
        if device.is_online:
            device.mailbox.put(delivery)
        elif expiration > 0:
            device.stored[delivery.token or delivery.channel or ""] = (expiration, delivery)

    def _is_lost(self, delivery: PushDelivery) -> bool:
        targets = {delivery.device, delivery.token, delivery.channel}
        return not self.lossy_targets.isdisjoint(targets) or (
            self.loss_share > 0 and self._rng.random() < self.loss_share
        )

    def _find(self, device: str) -> VirtualDevice:
        found = self.devices.get(device)
        if found is None:
            raise NotFound(f"Unknown device {device}", code="device_not_found")
        return found

    def close(self) -> None:
        """Close all mailboxes."""
        for mailbox in self._mailboxes.values():
            mailbox.close()

    def remove_mailbox(self, name: str) -> None:
        """Remove a mailbox and its devices; their tokens stay registered."""
        removed = self._mailboxes.pop(name, None)
        if removed is None:
            raise NotFound("Unknown mailbox", code="mailbox_not_found")
        removed.close()
        for device in [name for name, entry in self.devices.items() if entry.mailbox is removed]:
            for channel in self.devices.pop(device).channels:
                self.subscribers[channel].discard(device)
