"""The gateway to Apple's push service: takes pushes and answers with verdicts, whatever happens on the way.

    async with open_apns(settings, clock, metrics) as apns:
        async with aclosing(apns.send_all(pushes)) as verdicts:
            async for push, verdict in verdicts: ...

What may pass (429, 500, 503, a broken or silent connection, an expired provider token) is tried
again with back-off, within `PATIENCE`; what is left then is a RETRY for whoever sent it. Without a
key nothing is sent, and every verdict says so.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import Counter, Gauge
from pyreqwest.client import Client, ClientBuilder

from tally.cricket.apns.channels import Channels
from tally.cricket.apns.connection_pool import Lane, Lanes
from tally.cricket.apns.flow import Flow
from tally.cricket.apns.model import NOT_CONFIGURED, Channel, Outcome, Priority, Push, Verdict
from tally.cricket.apns.provider import ProviderToken
from tally.cricket.apns.requests import Requests
from tally.cricket.apns.token_queue import Turn, Turns
from tally.errors import Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy, full_jitter
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret, Settings, SettingsError

# For one push: how often, how patiently, and for how long in all.
PATIENCE: Final = RetryPolicy(attempts=6, base=0.25, cap=5.0, deadline=20.0)
ANSWER_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 5.0
_PING_SECONDS: Final = 20.0
_LOUD_SECONDS: Final = 60.0
_UNCONFIGURED_SECONDS: Final = 60.0

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Line:
    """What there is once there is a key: the connections, the wire format, the channels."""

    lanes: Lanes
    requests: Requests
    channels: Channels


class ApnsGateway:
    """Apple's push service for one app; see `port.Apns` for what its methods promise."""

    def __init__(
        self, line: Line | None, clock: Clock, metrics: Metrics, patience: RetryPolicy = PATIENCE
    ) -> None:
        self._line = line
        self._clock = clock
        self._patience = patience
        self._turns = Turns()
        self._told: TTLCache[str, bool] = TTLCache(clock, _LOUD_SECONDS, 100)
        registry = metrics.registry
        self._ended = Counter(
            "tally_apns_pushes", "Pushes by what became of them", ["outcome"], registry=registry
        )
        self._delivered = self._ended.labels(Outcome.DELIVERED.value)
        told = "Requests that Apple did not take, by what it said; 0 where no answer came"
        self._troubles = Counter(
            "tally_apns_troubles", told, ["status", "reason"], registry=registry
        )
        under_way = Gauge(
            "tally_apns_under_way", "Requests to Apple not yet answered", registry=registry
        )
        under_way.set_function(lambda: line.lanes.under_way if line is not None else 0)

    @property
    def is_configured(self) -> bool:
        return self._line is not None

    async def send(self, push: Push) -> Verdict:
        return await self._in_turn(push.token, push) if self._line is not None else _UNCONFIGURED

    def send_all(
        self, pushes: AsyncIterable[Push], concurrency: int | None = None
    ) -> AsyncGenerator[tuple[Push, Verdict], None]:
        most = self._line.lanes.most if self._line is not None else 1
        return Flow(self.send, concurrency or most).run(pushes)

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> Verdict:
        if self._line is None:
            return _UNCONFIGURED
        push = Push(
            token="", payload=payload, priority=priority, expiration=expiration, is_state=True
        )
        return await self._in_turn(f"channel {channel_id}", push, channel_id)

    async def create_channel(self, *, keeps_latest: bool = True) -> str:
        return await self._channels().create(keeps_latest=keeps_latest)

    async def delete_channel(self, channel_id: str) -> bool:
        return await self._channels().delete(channel_id)

    async def read_channel(self, channel_id: str) -> Channel | None:
        return await self._channels().read(channel_id)

    async def list_channels(self) -> Sequence[str]:
        return await self._channels().every()

    def _channels(self) -> Channels:
        if self._line is None:
            raise Unavailable("Pushes are not set up here", code="apns_not_set_up")
        return self._line.channels

    async def _in_turn(self, key: str, push: Push, channel_id: str | None = None) -> Verdict:
        turn = self._turns.take(key)
        try:
            if turn.before is not None:
                await turn.comes()
            verdict = await self._patiently(push, turn, channel_id)
        finally:
            self._turns.end(key, turn)
        if verdict.outcome is Outcome.DELIVERED:
            self._delivered.inc()
        else:
            self._ended.labels(verdict.outcome.value).inc()
            if verdict.outcome is Outcome.REFUSED:
                self._say_loudly(push, verdict)
        return verdict

    async def _patiently(self, push: Push, turn: Turn, channel_id: str | None) -> Verdict:
        """Try until there is a verdict that will not change, or no patience left, or a newer state waits."""
        tries, end = 0, 0.0
        verdict = _SUPERSEDED
        while not (push.is_state and turn.is_overtaken):
            tries += 1
            verdict = await self._once(push, channel_id)
            if verdict.outcome is not Outcome.RETRY:
                return verdict if tries == 1 else msgspec.structs.replace(verdict, tries=tries)
            now = self._clock.monotonic()
            end = end or now + self._patience.deadline
            wait = max(
                full_jitter(tries, self._patience.base, self._patience.cap), verdict.retry_after
            )
            if tries >= self._patience.attempts or now + wait > end:
                return msgspec.structs.replace(verdict, tries=tries, retry_after=wait)
            await turn.rest(self._clock, wait, is_state=push.is_state)
        return msgspec.structs.replace(
            _SUPERSEDED, status=verdict.status, reason=verdict.reason, tries=tries
        )

    async def _once(self, push: Push, channel_id: str | None) -> Verdict:
        line = self._line
        if line is None:
            return _UNCONFIGURED
        lanes, requests = line.lanes, line.requests
        lane = lanes.enter() or await lanes.enter_later()
        number = lane.begun
        try:
            url, headers = (
                requests.to_device(push)
                if channel_id is None
                else requests.to_channel(channel_id, push)
            )
            verdict = await requests.send(lane.client, url, headers, push.payload)
        finally:
            lanes.leave(lane)
        if verdict.status == 200:
            lanes.went_well(lane)
        else:
            self._learn(lanes, lane, number, verdict)
        return verdict

    def _learn(self, lanes: Lanes, lane: Lane, number: int, verdict: Verdict) -> None:
        self._troubles.labels(str(verdict.status), verdict.reason).inc()
        if verdict.outcome is Outcome.RETRY and verdict.status != 403:
            lanes.slow_down(lane, number, verdict.retry_after, is_answered=verdict.status != 0)
        else:
            lanes.went_well(lane)

    def _say_loudly(self, push: Push, verdict: Verdict) -> None:
        """Somebody has to repair this; once a minute is loud enough."""
        if self._told.get(verdict.reason) is None:
            self._told.put(verdict.reason, value=True)
            about = {
                "status": verdict.status,
                "reason": verdict.reason,
                "push_type": push.push_type,
                "bytes": len(push.payload),
            }
            _log.error("Apple refuses pushes", action="apns_refused", **about)


_UNCONFIGURED: Final = Verdict(
    Outcome.RETRY, reason=NOT_CONFIGURED, retry_after=_UNCONFIGURED_SECONDS, tries=0
)
_SUPERSEDED: Final = Verdict(Outcome.SUPERSEDED, tries=0)


@asynccontextmanager
async def open_apns(
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    patience: RetryPolicy = PATIENCE,
    answer_seconds: float = ANSWER_SECONDS,
) -> AsyncIterator[ApnsGateway]:
    """The gateway that the settings ask for; a SettingsError where they do not hold.

    No answer within so long is none.
    """
    if settings.cricket_apns_key is None:
        _log.warning(
            "Pushes are not set up: TALLY_CRICKET_APNS_KEY is missing, and nothing is sent",
            action="apns_not_set_up",
        )
        yield ApnsGateway(None, clock, metrics, patience)
        return
    provider = _provider(settings, settings.cricket_apns_key, clock)
    authority = _authority(settings.cricket_apns_authority)
    count, rest = settings.cricket_apns_connections, patience.base
    lanes = Lanes(
        lambda: _connected(authority, answer_seconds),
        count,
        clock,
        rest=rest,
        longest_rest=3 * patience.cap,
    )
    requests = Requests(settings.cricket_apns_url, settings.cricket_apns_bundle_id, provider)
    async with _connected(authority, answer_seconds) as client:
        channels = Channels(
            client,
            settings.cricket_apns_manage_url,
            settings.cricket_apns_bundle_id,
            provider,
            clock,
        )
        try:
            yield ApnsGateway(Line(lanes, requests, channels), clock, metrics, patience)
        finally:
            await lanes.close()


def _provider(settings: Settings, given: Secret, clock: Clock) -> ProviderToken:
    needed = ("cricket_apns_bundle_id", "cricket_apns_team_id", "cricket_apns_key_id")
    missing = [name for name in needed if not getattr(settings, name)]
    if missing:
        raise SettingsError(
            [f"TALLY_{name.upper()} is needed beside TALLY_CRICKET_APNS_KEY" for name in missing]
        )
    text = given.reveal().replace("\\n", "\n")
    if "-----BEGIN" not in text:
        try:
            text = Path(text).expanduser().read_text()
        except (OSError, ValueError) as error:
            raise SettingsError(
                ["TALLY_CRICKET_APNS_KEY is neither a key nor the path of a file that can be read"]
            ) from error
    return ProviderToken(
        Secret(text), settings.cricket_apns_key_id, settings.cricket_apns_team_id, clock
    )


def _authority(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path is not None else None
    except OSError as error:
        raise SettingsError(
            [f"TALLY_CRICKET_APNS_AUTHORITY: {path} cannot be read: {error.strerror}"]
        ) from error


def _connected(authority: bytes | None, answer_seconds: float) -> Client:
    """A client that keeps one HTTP/2 connection, and notices when nobody is at the other end."""
    building = (
        ClientBuilder()
        .http2_prior_knowledge()
        .https_only(True)
        .follow_redirects(False)
        .user_agent("tally")
        .timeout(timedelta(seconds=answer_seconds))
        .connect_timeout(timedelta(seconds=_CONNECT_SECONDS))
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(timedelta(seconds=_PING_SECONDS))
        .http2_keep_alive_timeout(timedelta(seconds=ANSWER_SECONDS))
        .http2_keep_alive_while_idle(True)
    )
    return (
        building.add_root_certificate_pem(authority) if authority is not None else building
    ).build()
