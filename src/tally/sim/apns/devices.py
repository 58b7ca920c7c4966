"""The devices that the simulated service knows: their tokens, the channels they listen to, and the mailboxes they read from.

Whoever runs virtual devices takes a mailbox and registers its devices there. What is pushed to a
token, or broadcast to a channel, lands in the mailbox of each device it is for. For a device
without a network, the latest push to each token is kept until it expires, as Apple does.
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
    """What a token is for, and how many bytes it has."""

    DEVICE = "device"
    START = "start"
    UPDATE = "update"


_LENGTHS: Final = {TokenKind.DEVICE: 32, TokenKind.START: 80, TokenKind.UPDATE: 80}


class IssuedToken(msgspec.Struct):
    kind: TokenKind
    device: str
    gone_since_ms: int | None = None


class PushDelivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A push on its way to a device: by one of its tokens, or by a channel."""

    device: str
    payload: str
    push_type: str
    priority: int
    token: str | None = None
    channel: str | None = None


class Mailbox:
    """Deliveries for the devices of one reader, in order; when nobody reads for long, the oldest are lost, and counted."""

    def __init__(self) -> None:
        self._waiting: deque[PushDelivery] = deque()
        self._arrived = asyncio.Event()
        self._is_closed = False
        self.lost = 0

    def put(self, delivery: PushDelivery) -> None:
        if len(self._waiting) >= MAX_QUEUED_DELIVERIES:
            self._waiting.popleft()
            self.lost += 1
        self._waiting.append(delivery)
        self._arrived.set()

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    async def take(self) -> list[PushDelivery]:
        """All that is there; waits for the first. Nothing only if the mailbox has been closed."""
        while not self._waiting and not self._is_closed:
            self._arrived.clear()
            await self._arrived.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def close(self) -> None:
        """Let whoever reads come to the end."""
        self._is_closed = True
        self._arrived.set()

    async def __aiter__(self) -> AsyncIterator[PushDelivery]:
        while taken := await self.take():
            for delivery in taken:
                yield delivery


class VirtualDevice(msgspec.Struct):
    mailbox: Mailbox
    is_online: bool = True
    token: str | None = None
    channels: set[str] = msgspec.field(default_factory=set)
    # The latest push to each token or channel while the device is away, and until when it is good.
    held: dict[str, tuple[int, PushDelivery]] = msgspec.field(default_factory=dict)


class DeviceRegistry:
    """All devices and tokens.

    With `takes_any_token`, one that was never issued is good, and what it gets goes nowhere.
    """

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self.takes_any_token = False
        self.most_gone = MAX_RETIRED_TOKENS
        self.tokens: dict[str, IssuedToken] = {}
        # Those that are no longer good, the oldest first; beyond so many, the oldest are as if they
        # had never been.
        self._gone: deque[str] = deque()
        self.known: dict[str, VirtualDevice] = {}
        self.listeners: dict[str, set[str]] = {}
        self._mailboxes: dict[str, Mailbox] = {}

    def mailbox(self, name: str) -> Mailbox:
        return self._mailboxes.setdefault(name, Mailbox())

    def register(self, device: str, mailbox: str) -> None:
        """Make the device known, or let it read elsewhere from now on."""
        self.find_or_make(device, mailbox).mailbox = self.mailbox(mailbox)

    def find_or_make(self, device: str, mailbox: str) -> VirtualDevice:
        if device not in self.known:
            self.known[device] = VirtualDevice(self.mailbox(mailbox))
        return self.known[device]

    def issue(self, device: str, kind: TokenKind) -> str:
        """A new token of the device.

        One it had of the kind stays good, but for a device token, which is replaced.
        """
        owner = self._find(device)
        token = self._rng.randbytes(_LENGTHS[kind]).hex()
        self.tokens[token] = IssuedToken(kind, device)
        if kind is TokenKind.DEVICE:
            if owner.token is not None:
                self.retire(owner.token)
            owner.token = token
        return token

    def retire(self, token: str) -> None:
        """From now on the token is 410 Unregistered."""
        known = self.tokens.get(token)
        if known is None:
            raise NotFound("There is no such token", code="token_not_found")
        if known.gone_since_ms is None:
            known.gone_since_ms = self._clock.milliseconds()
            self._gone.append(token)
            if len(self._gone) > self.most_gone:
                del self.tokens[self._gone.popleft()]

    def listen(self, device: str, channel: str) -> None:
        self._find(device).channels.add(channel)
        self.listeners.setdefault(channel, set()).add(device)

    def stop_listening(self, device: str, channel: str) -> None:
        self._find(device).channels.discard(channel)
        self.listeners.get(channel, set()).discard(device)

    def set_online(self, device: str, *, is_online: bool) -> None:
        """Give the device a network, and what was kept for it; or take it away."""
        found = self._find(device)
        found.is_online = is_online
        if is_online:
            now = self._clock.seconds()
            for until, delivery in found.held.values():
                if until >= now:
                    found.mailbox.put(delivery)
            found.held.clear()

    def deliver(self, delivery: PushDelivery, expiration: int) -> None:
        device = self.known.get(delivery.device)
        if device is None:
            return
        if device.is_online:
            device.mailbox.put(delivery)
        elif expiration > 0:
            device.held[delivery.token or delivery.channel or ""] = (expiration, delivery)

    def _find(self, device: str) -> VirtualDevice:
        found = self.known.get(device)
        if found is None:
            raise NotFound(f"There is no device {device}", code="device_not_found")
        return found

    def close(self) -> None:
        """Let all who read their mailboxes come to the end."""
        for mailbox in self._mailboxes.values():
            mailbox.close()

    def forget_mailbox(self, name: str) -> None:
        """The reader is gone for good, and its devices with it; their tokens stay as they are."""
        gone = self._mailboxes.pop(name, None)
        if gone is None:
            raise NotFound("There is no such mailbox", code="mailbox_not_found")
        gone.close()
        for device in [device for device, known in self.known.items() if known.mailbox is gone]:
            for channel in self.known.pop(device).channels:
                self.listeners[channel].discard(device)
