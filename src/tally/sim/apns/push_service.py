"""The push port: each request is checked, recorded, and handed on to the devices it is for; or fails as was arranged."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tally.kit.clock import Clock
from tally.sim.apns.channels import ChannelRegistry, error_response
from tally.sim.apns.devices import DeviceRegistry, PushDelivery
from tally.sim.apns.faults import PushFault, PushFaultInjector
from tally.sim.apns.frames import Http2ErrorCode
from tally.sim.apns.provider_tokens import ProviderTokenVerifier
from tally.sim.apns.push_requests import PushError, PushRequest, parse_push, validate_push
from tally.sim.apns.request_log import RecordedPush, RequestLog
from tally.sim.apns.streams import Http2Response, Http2Stream, StreamHandler

_RESETS: Final = {"refused": Http2ErrorCode.REFUSED_STREAM, "failed": Http2ErrorCode.INTERNAL_ERROR}
_SHUTDOWN: Final = b'{"reason":"Shutdown"}'


@dataclass(frozen=True, slots=True)
class PushService:
    """Answers what comes in on the push port."""

    bundle_id: str
    clock: Clock
    rng: random.Random
    providers: ProviderTokenVerifier
    devices: DeviceRegistry
    channels: ChannelRegistry
    faults: PushFaultInjector
    record: RequestLog
    _waiting: set[asyncio.Task[None]] = field(default_factory=set)

    def handle(self, exchange: Http2Stream) -> Http2Response | None:
        return self._with_faults(exchange, self._served)

    def handle_management(self, exchange: Http2Stream) -> Http2Response | None:
        return self._with_faults(exchange, self.channels.handle)

    def _with_faults(self, exchange: Http2Stream, serve: StreamHandler) -> Http2Response | None:
        if not self.faults.pending:
            return serve(exchange)
        asked = parse_push(exchange)
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
        self, fault: PushFault, exchange: Http2Stream, asked: PushRequest, serve: StreamHandler
    ) -> None:
        await self.clock.sleep(fault.delay)
        answer = self._failed(fault, exchange, asked, serve)
        if answer is not None:
            exchange.answer(answer)

    def _failed(
        self, fault: PushFault, exchange: Http2Stream, asked: PushRequest, serve: StreamHandler
    ) -> Http2Response | None:
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

    def _unanswered(
        self, fault: PushFault, exchange: Http2Stream, asked: PushRequest, how: str
    ) -> None:
        if fault.cut != "after":
            self._note(0, how, exchange, asked, "")

    def _served(self, exchange: Http2Stream) -> Http2Response:
        asked = parse_push(exchange)
        trouble = self.providers.trouble(exchange.headers.get(b"authorization"))
        trouble = trouble or validate_push(asked, exchange, self.bundle_id, self.devices)
        if trouble is None and asked.is_broadcast and asked.target not in self.channels.known:
            trouble = 400, "ChannelNotRegistered"
        if trouble is not None:
            return self._refused(trouble, exchange, asked)
        apns_id = asked.apns_id or str(UUID(int=self.rng.getrandbits(128), version=4)).encode()
        self._note(200, "", exchange, asked, apns_id.decode())
        self._hand_on(exchange, asked)
        return Http2Response(
            200, ((b"apns-request-id" if asked.is_broadcast else b"apns-id", apns_id),)
        )

    def _refused(
        self,
        trouble: PushError,
        exchange: Http2Stream,
        asked: PushRequest,
        retry_after: int | None = None,
    ) -> Http2Response:
        self._note(*trouble, exchange, asked, asked.apns_id.decode("latin-1"))
        headers = ((b"apns-id", asked.apns_id[:100]),) if asked.apns_id else ()
        if retry_after is not None:
            headers = (*headers, (b"retry-after", b"%d" % retry_after))
        token = self.devices.tokens.get(asked.target)
        since = token.gone_since_ms if token is not None else None
        if trouble[0] == 410 and since is None:
            since = self.clock.milliseconds()
        return error_response(trouble, headers, since if trouble[0] == 410 else None)

    def _hand_on(self, exchange: Http2Stream, asked: PushRequest) -> None:
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
                PushDelivery(device, payload, push_type, priority, token, channel), expiration
            )

    def _note(
        self, status: int, reason: str, exchange: Http2Stream, asked: PushRequest, apns_id: str
    ) -> None:
        if not self.record.remembers:
            self.record.count(status, reason)
            return
        self.record.add(
            RecordedPush(
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
