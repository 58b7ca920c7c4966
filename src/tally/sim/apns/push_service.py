"""The push port: applies faults, validates requests, records them and delivers pushes."""

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
    """Handles requests to the push port and the channel management port.

    It connects every part of the simulator, hence more than eight fields.
    """

    bundle_id: str
    clock: Clock
    rng: random.Random
    token_verifier: ProviderTokenVerifier
    devices: DeviceRegistry
    channels: ChannelRegistry
    faults: PushFaultInjector
    log: RequestLog
    _delayed: set[asyncio.Task[None]] = field(default_factory=set)

    def handle(self, stream: Http2Stream) -> Http2Response | None:
        return self._with_faults(stream, self._handle_push)

    def handle_management(self, stream: Http2Stream) -> Http2Response | None:
        return self._with_faults(stream, self.channels.handle)

    def _with_faults(self, stream: Http2Stream, serve: StreamHandler) -> Http2Response | None:
        if not self.faults.pending:
            return serve(stream)
        push = parse_push(stream)
        fault = self.faults.take(push.path, push.target)
        if fault is None:
            return serve(stream)
        if fault.delay:
            task = asyncio.create_task(self._respond_later(fault, stream, push, serve))
            self._delayed.add(task)
            task.add_done_callback(self._delayed.discard)
            return None
        return self._apply_fault(fault, stream, push, serve)

    def stop(self) -> None:
        for task in tuple(self._delayed):
            task.cancel()

    async def _respond_later(
        self, fault: PushFault, stream: Http2Stream, push: PushRequest, serve: StreamHandler
    ) -> None:
        await self.clock.sleep(fault.delay)
        response = self._apply_fault(fault, stream, push, serve)
        if response is not None:
            stream.respond(response)

    def _apply_fault(
        self, fault: PushFault, stream: Http2Stream, push: PushRequest, serve: StreamHandler
    ) -> Http2Response | None:
        """Apply a fault: another response, none, or the regular one."""
        if fault.cut == "after":
            serve(stream)
        if fault.cut is not None:
            self._record_without_response(fault, stream, push, "cut")
            stream.connection.abort()
            return None
        if fault.reset is not None:
            self._record_without_response(fault, stream, push, f"reset {fault.reset}")
            stream.connection.reset_stream(stream.stream_id, _RESETS[fault.reset])
            return None
        if fault.goaway == "abrupt":
            self._record_without_response(fault, stream, push, "goaway")
            stream.connection.go_away(stream.stream_id - 2, _SHUTDOWN)
            return None
        if fault.goaway == "graceful":
            stream.connection.go_away(max(stream.connection.streams), _SHUTDOWN)
        if fault.status is not None:
            return self._reject((fault.status, fault.reason), stream, push, fault.retry_after)
        return serve(stream)

    def _record_without_response(
        self, fault: PushFault, stream: Http2Stream, push: PushRequest, reason: str
    ) -> None:
        if fault.cut != "after":
            self._record(0, reason, stream, push, "")

    def _handle_push(self, stream: Http2Stream) -> Http2Response:
        push = parse_push(stream)
        error = self.token_verifier.verify(stream.headers.get(b"authorization"))
        error = error or validate_push(push, stream, self.bundle_id, self.devices)
        if error is None and push.is_broadcast and push.target not in self.channels.configs:
            error = 400, "ChannelNotRegistered"
        if error is not None:
            return self._reject(error, stream, push)
        apns_id = push.apns_id or str(UUID(int=self.rng.getrandbits(128), version=4)).encode()
        self._record(200, "", stream, push, apns_id.decode())
        self._deliver(stream, push)
        return Http2Response(
            200, ((b"apns-request-id" if push.is_broadcast else b"apns-id", apns_id),)
        )

    def _reject(
        self,
        error: PushError,
        stream: Http2Stream,
        push: PushRequest,
        retry_after: int | None = None,
    ) -> Http2Response:
        self._record(*error, stream, push, push.apns_id.decode("latin-1"))
        headers = ((b"apns-id", push.apns_id[:100]),) if push.apns_id else ()
        if retry_after is not None:
            headers = (*headers, (b"retry-after", b"%d" % retry_after))
        token = self.devices.tokens.get(push.target)
        retired_at_ms = token.retired_at_ms if token is not None else None
        if error[0] == 410 and retired_at_ms is None:
            retired_at_ms = self.clock.milliseconds()
        return error_response(error, headers, retired_at_ms if error[0] == 410 else None)

    def _deliver(self, stream: Http2Stream, push: PushRequest) -> None:
        expiration = int(push.expiration or b"0")
        token, channel = (None, push.target) if push.is_broadcast else (push.target, None)
        if channel is not None:
            devices = tuple(self.devices.subscribers.get(channel, ()))
            # A channel without message storage reaches only devices that are online.
            expiration = expiration if self.channels.configs[channel].message_storage_policy else 0
        else:
            issued = self.devices.tokens.get(push.target)
            devices = (issued.device,) if issued is not None else ()
        for device in devices:
            payload = stream.body.decode("utf-8", "replace")
            push_type, priority = push.push_type.decode(), int(push.priority or b"10")
            self.devices.deliver(
                PushDelivery(device, payload, push_type, priority, token, channel), expiration
            )

    def _record(
        self, status: int, reason: str, stream: Http2Stream, push: PushRequest, apns_id: str
    ) -> None:
        if not self.log.is_recording:
            self.log.count(status, reason)
            return
        self.log.add(
            RecordedPush(
                push.target,
                status,
                reason,
                stream.connection.number,
                self.clock.milliseconds(),
                stream.headers.get(b":method", b"").decode("latin-1"),
                push.path,
                push.push_type.decode("latin-1"),
                push.priority.decode("latin-1"),
                push.expiration.decode("latin-1"),
                push.topic.decode("latin-1"),
                apns_id,
                push.collapse_id.decode("latin-1"),
                stream.body,
            )
        )
