"""The push port: each request is checked, recorded, and handed on to the devices it is for; or fails as was arranged."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tally.kit.clock import Clock
from tally.sim.apns.channels import Channels, refusal
from tally.sim.apns.devices import Delivery, Devices
from tally.sim.apns.exchange import Answer, Exchange, Handler
from tally.sim.apns.faults import PushFault, PushFaults
from tally.sim.apns.frames import Code
from tally.sim.apns.keys import Providers
from tally.sim.apns.record import Record, Seen
from tally.sim.apns.requests import Asked, Trouble, read, trouble_with

_RESETS: Final = {"refused": Code.REFUSED_STREAM, "failed": Code.INTERNAL_ERROR}
_SHUTDOWN: Final = b'{"reason":"Shutdown"}'


@dataclass(frozen=True, slots=True)
class PushService:
    """Answers what comes in on the push port."""

    bundle_id: str
    clock: Clock
    chance: random.Random
    providers: Providers
    devices: Devices
    channels: Channels
    faults: PushFaults
    record: Record
    _waiting: set[asyncio.Task[None]] = field(default_factory=set)

    def handle(self, exchange: Exchange) -> Answer | None:
        return self._with_faults(exchange, self._served)

    def handle_management(self, exchange: Exchange) -> Answer | None:
        return self._with_faults(exchange, self.channels.handle)

    def _with_faults(self, exchange: Exchange, serve: Handler) -> Answer | None:
        if not self.faults.pending:
            return serve(exchange)
        asked = read(exchange)
        fault = self.faults.take(asked.path, asked.target)
        if fault is None:
            return serve(exchange)
        if fault.delay:
            task = asyncio.create_task(self._late(fault, exchange, asked, serve))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
            return None
        return self._failed(fault, exchange, asked, serve)

    def stop(self) -> None:
        for task in tuple(self._waiting):
            task.cancel()

    async def _late(
        self, fault: PushFault, exchange: Exchange, asked: Asked, serve: Handler
    ) -> None:
        await self.clock.sleep(fault.delay)
        answer = self._failed(fault, exchange, asked, serve)
        if answer is not None:
            exchange.answer(answer)

    def _failed(
        self, fault: PushFault, exchange: Exchange, asked: Asked, serve: Handler
    ) -> Answer | None:
        """What a fault makes of a request: another answer, none, or the right one."""
        if fault.cut == "after":
            serve(exchange)
        if fault.cut is not None:
            self._unanswered(fault, exchange, asked, "cut")
            exchange.connection.abort()
            return None
        if fault.reset is not None:
            self._unanswered(fault, exchange, asked, f"reset {fault.reset}")
            exchange.connection.reset_stream(exchange.stream, _RESETS[fault.reset])
            return None
        if fault.goaway == "abrupt":
            self._unanswered(fault, exchange, asked, "goaway")
            exchange.connection.go_away(exchange.stream - 2, _SHUTDOWN)
            return None
        if fault.goaway == "graceful":
            exchange.connection.go_away(max(exchange.connection.streams), _SHUTDOWN)
        if fault.status is not None:
            return self._refused((fault.status, fault.reason), exchange, asked, fault.retry_after)
        return serve(exchange)

    def _unanswered(self, fault: PushFault, exchange: Exchange, asked: Asked, how: str) -> None:
        if fault.cut != "after":
            self._note(0, how, exchange, asked, "")

    def _served(self, exchange: Exchange) -> Answer:
        asked = read(exchange)
        trouble = self.providers.trouble(exchange.headers.get(b"authorization"))
        trouble = trouble or trouble_with(asked, exchange, self.bundle_id, self.devices)
        if trouble is None and asked.is_broadcast and asked.target not in self.channels.known:
            trouble = 400, "ChannelNotRegistered"
        if trouble is not None:
            return self._refused(trouble, exchange, asked)
        apns_id = asked.apns_id or str(UUID(int=self.chance.getrandbits(128), version=4)).encode()
        self._note(200, "", exchange, asked, apns_id.decode())
        self._hand_on(exchange, asked)
        return Answer(200, ((b"apns-request-id" if asked.is_broadcast else b"apns-id", apns_id),))

    def _refused(
        self, trouble: Trouble, exchange: Exchange, asked: Asked, retry_after: int | None = None
    ) -> Answer:
        self._note(*trouble, exchange, asked, asked.apns_id.decode("latin-1"))
        headers = ((b"apns-id", asked.apns_id[:100]),) if asked.apns_id else ()
        if retry_after is not None:
            headers = (*headers, (b"retry-after", b"%d" % retry_after))
        token = self.devices.tokens.get(asked.target)
        since = token.gone_since_ms if token is not None else None
        if trouble[0] == 410 and since is None:
            since = self.clock.milliseconds()
        return refusal(trouble, headers, since if trouble[0] == 410 else None)

    def _hand_on(self, exchange: Exchange, asked: Asked) -> None:
        expiration = int(asked.expiration or b"0")
        token, channel = (None, asked.target) if asked.is_broadcast else (asked.target, None)
        if channel is not None:
            devices = tuple(self.devices.listeners.get(channel, ()))
            # A channel that keeps nothing reaches those who are there now.
            expiration = expiration if self.channels.known[channel].message_storage_policy else 0
        else:
            known = self.devices.tokens.get(asked.target)
            devices = (known.device,) if known is not None else ()
        for device in devices:
            payload = exchange.body.decode("utf-8", "replace")
            push_type, priority = asked.push_type.decode(), int(asked.priority or b"10")
            self.devices.deliver(
                Delivery(device, payload, push_type, priority, token, channel), expiration
            )

    def _note(
        self, status: int, reason: str, exchange: Exchange, asked: Asked, apns_id: str
    ) -> None:
        if not self.record.remembers:
            self.record.count(status, reason)
            return
        self.record.add(
            Seen(
                asked.target,
                status,
                reason,
                exchange.connection.number,
                self.clock.milliseconds(),
                exchange.headers.get(b":method", b"").decode("latin-1"),
                asked.path,
                asked.push_type.decode("latin-1"),
                asked.priority.decode("latin-1"),
                asked.expiration.decode("latin-1"),
                asked.topic.decode("latin-1"),
                apns_id,
                asked.collapse_id.decode("latin-1"),
                exchange.body,
            )
        )
