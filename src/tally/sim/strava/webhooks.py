"""Sends webhook events to the subscribed application, with up to three attempts each.

An attempt succeeds if the application responds with 200 within 2 s. Tests configure network
conditions: a `delay` before each event, `duplicates` of each, `drops` of the next ones. `hold()`
buffers events until `release()` sends them in order, reversed or shuffled. `log` has every attempt;
`wait_idle()` and `wait_for_attempts(n)` synchronize with it.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import msgspec
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import PyreqwestError

from tally.kit.clock import Clock, DeadlineExceeded, finish_within
from tally.sim.request_parsing import with_query
from tally.sim.strava.model import StravaEvent, bad_request

RESPONSE_TIMEOUT_SECONDS: Final = 2
MAX_ATTEMPTS: Final = 3
RETRY_PAUSE_SECONDS: Final = 120
MAX_CONCURRENT_POSTS: Final = 64
MAX_LOGGED_ATTEMPTS: Final = 100_000

ReleaseOrder = Literal["sent", "reversed", "shuffled"]


class WebhookSubscription(msgspec.Struct, frozen=True):
    """The push subscription of the application."""

    id: int
    callback_url: str
    created_at: int


class WebhookAttempt(msgspec.Struct, frozen=True):
    """A delivery attempt and its status; 0 if there was no response in time."""

    event: StravaEvent
    attempt: int
    status: int


class WebhookSender:
    """The subscription and the events in flight."""

    def __init__(self, clock: Clock, rng: random.Random, first_id: int = 1) -> None:
        self._clock = clock
        self._rng = rng
        self._next_id = first_id
        self._client: Client | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._held_events: list[StravaEvent] | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_POSTS)
        self._attempted = asyncio.Event()
        self.subscription: WebhookSubscription | None = None
        self.log: deque[WebhookAttempt] = deque(maxlen=MAX_LOGGED_ATTEMPTS)
        self.delay = 0.0
        self.retry_pause: float = RETRY_PAUSE_SECONDS
        self.duplicates = 0
        self.drops = 0

    def limit_log(self, limit: int) -> None:
        """Log at most `limit` attempts."""
        self.log = deque(self.log, maxlen=limit)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send events until the block ends; cancels the ones in flight."""
        async with ClientBuilder().follow_redirects(False).build() as self._client:
            try:
                yield
            finally:
                for task in self._sending:
                    task.cancel()
                await asyncio.gather(*self._sending, return_exceptions=True)
        self._client = None

    async def subscribe(self, callback_url: str, verify_token: str) -> WebhookSubscription:
        """Validate the callback and send events to it from now on."""
        if self.subscription is not None:
            raise bad_request("PushSubscription", "", "already exists")
        if not callback_url:
            raise bad_request("PushSubscription", "callback_url", "missing")
        await self._validate(callback_url, verify_token)
        self.subscription = WebhookSubscription(self._next_id, callback_url, self._clock.seconds())
        self._next_id += 1
        return self.subscription

    def resume(self, subscription: WebhookSubscription) -> None:
        """Restore a subscription from a snapshot."""
        self.subscription = subscription
        self._next_id = max(self._next_id, subscription.id + 1)

    def unsubscribe(self) -> None:
        self.subscription = None

    def publish(self, event: StravaEvent) -> None:
        """Send an event, unless it is dropped or held."""
        if self.drops > 0:
            self.drops -= 1
        elif self._held_events is not None:
            self._held_events.append(event)
        else:
            self._send(event)

    def hold(self) -> None:
        """Buffer events from now on."""
        if self._held_events is None:
            self._held_events = []

    def release(self, order: ReleaseOrder = "sent") -> None:
        """Send the held events in this order, one after the first attempt of the other."""
        events, self._held_events = self._held_events or [], None
        if order == "reversed":
            events.reverse()
        elif order == "shuffled":
            self._rng.shuffle(events)
        self._start(self._deliver_in_order(events))

    def redeliver(self, event: StravaEvent, times: int = 1) -> None:
        """Send an event again, `times` concurrently."""
        for _ in range(times):
            self._start(self._deliver(event))

    async def wait_idle(self) -> None:
        """Wait until no event is in flight."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def wait_for_attempts(self, count: int) -> None:
        """Wait until `count` attempts are logged; the next retry pause has then begun."""
        while len(self.log) < count:
            self._attempted.clear()
            await self._attempted.wait()

    def _send(self, event: StravaEvent) -> None:
        for _ in range(1 + self.duplicates):
            self._start(self._deliver(event))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver_in_order(self, events: list[StravaEvent]) -> None:
        for event in events:
            for _ in range(1 + self.duplicates):
                if not await self._attempt(event, 1):
                    self._start(self._retry(event))

    async def _deliver(self, event: StravaEvent) -> None:
        if self.delay:
            await self._clock.sleep(self.delay)
        if not await self._attempt(event, 1):
            await self._retry(event)

    async def _retry(self, event: StravaEvent) -> None:
        for attempt in range(2, MAX_ATTEMPTS + 1):
            await self._clock.sleep(self.retry_pause)
            if await self._attempt(event, attempt):
                return

    async def _attempt(self, event: StravaEvent, attempt: int) -> bool:
        async with self._slots:
            status = await self._post(event)
        self.log.append(WebhookAttempt(event, attempt, status))
        self._attempted.set()
        return status == 200

    async def _post(self, event: StravaEvent) -> int:
        if self.subscription is None or self._client is None:
            return 0
        request = self._client.post(self.subscription.callback_url).header(
            "content-type", "application/json"
        )
        sending = request.body_bytes(msgspec.json.encode(event)).build().send()
        try:
            return (await finish_within(self._clock, RESPONSE_TIMEOUT_SECONDS, sending)).status
        except (PyreqwestError, DeadlineExceeded):
            return 0

    async def _validate(self, callback_url: str, verify_token: str) -> None:
        challenge = f"{self._rng.getrandbits(64):016x}"
        parameters = {
            "hub.verify_token": verify_token,
            "hub.challenge": challenge,
            "hub.mode": "subscribe",
        }
        try:
            status, body = await finish_within(
                self._clock,
                RESPONSE_TIMEOUT_SECONDS,
                self._get(with_query(callback_url, parameters)),
            )
        except (PyreqwestError, DeadlineExceeded) as error:
            raise bad_request("PushSubscription", "callback url", "not verifiable") from error
        if status != 200:
            raise bad_request(
                "PushSubscription", "callback url", "GET to callback URL does not return 200"
            )
        try:
            response = msgspec.json.decode(body, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise bad_request("PushSubscription", "callback url", "not verifiable") from error
        if response.get("hub.challenge") != challenge:
            raise bad_request("PushSubscription", "callback url", "not verifiable")

    async def _get(self, url: str) -> tuple[int, bytes]:
        if self._client is None:
            raise RuntimeError("WebhookSender is not running")
        response = await self._client.get(url).build().send()
        return response.status, bytes(await response.bytes())
