"""Events on their way to the application: one subscription, and up to three deliveries until it says 200 within 2 s.

What the network does to them is arranged beforehand: `delay` before each, `duplicates` of each, the
next `drops` lost for good; `hold()` keeps them back until `release("reversed")` or
`release("shuffled")` lets them go in another order. `log` has every attempt, `settled()` waits
until nothing is under way, and `until_attempted(n)` for the n-th attempt.
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
    id: int
    callback_url: str
    created_at: int


class WebhookAttempt(msgspec.Struct, frozen=True):
    """One attempt: the status it got, or 0 if there was no answer in time."""

    event: StravaEvent
    attempt: int
    status: int


class WebhookSender:
    def __init__(self, clock: Clock, rng: random.Random, first_id: int = 1) -> None:
        self._clock = clock
        self._rng = rng
        self._next_id = first_id
        self._client: Client | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._held: list[StravaEvent] | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_POSTS)
        self._attempted = asyncio.Event()
        self.subscription: WebhookSubscription | None = None
        self.log: deque[WebhookAttempt] = deque(maxlen=MAX_LOGGED_ATTEMPTS)
        self.delay = 0.0
        self.retry_pause: float = RETRY_PAUSE_SECONDS
        self.duplicates = 0
        self.drops = 0

    def remember(self, most: int) -> None:
        """Keep no more attempts in the log than this."""
        self.log = deque(self.log, maxlen=most)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver for as long as this lasts; what is under way at the end is given up."""
        async with ClientBuilder().follow_redirects(False).build() as self._client:
            try:
                yield
            finally:
                for task in self._sending:
                    task.cancel()
                await asyncio.gather(*self._sending, return_exceptions=True)
        self._client = None

    async def subscribe(self, callback_url: str, verify_token: str) -> WebhookSubscription:
        """Ask the callback whether it means it, and send events there from now on."""
        if self.subscription is not None:
            raise bad_request("PushSubscription", "", "already exists")
        if not callback_url:
            raise bad_request("PushSubscription", "callback_url", "missing")
        await self._validate(callback_url, verify_token)
        self.subscription = WebhookSubscription(self._next_id, callback_url, self._clock.seconds())
        self._next_id += 1
        return self.subscription

    def resume(self, subscription: WebhookSubscription) -> None:
        """Go on with a subscription that was made before a restart."""
        self.subscription = subscription
        self._next_id = max(self._next_id, subscription.id + 1)

    def unsubscribe(self) -> None:
        self.subscription = None

    def publish(self, event: StravaEvent) -> None:
        """Send it on its way, unless nobody listens or it is to be lost."""
        if self.drops > 0:
            self.drops -= 1
        elif self._held is not None:
            self._held.append(event)
        else:
            self._send(event)

    def hold(self) -> None:
        """Keep events back from now on."""
        if self._held is None:
            self._held = []

    def release(self, order: ReleaseOrder = "sent") -> None:
        """Let go what was kept back, in this order: each leaves when the one before has had its first answer, or none."""
        events, self._held = self._held or [], None
        if order == "reversed":
            events.reverse()
        elif order == "shuffled":
            self._rng.shuffle(events)
        self._start(self._deliver_in_order(events))

    def redeliver(self, event: StravaEvent, times: int = 1) -> None:
        """Send an event again, that many times at once."""
        for _ in range(times):
            self._start(self._deliver(event))

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def until_attempted(self, count: int) -> None:
        """Wait until so many attempts are in the log, which is how a test knows that the next pause has begun."""
        while len(self.log) < count:
            self._attempted.clear()
            await self._attempted.wait()

    def _send(self, event: StravaEvent) -> None:
        for _ in range(1 + self.duplicates):
            self._start(self._deliver(event))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _deliver_in_order(self, events: list[StravaEvent]) -> None:
        for event in events:
            for _ in range(1 + self.duplicates):
                if not await self._attempt(event, 1):
                    self._start(self._insist(event))

    async def _deliver(self, event: StravaEvent) -> None:
        if self.delay:
            await self._clock.sleep(self.delay)
        if not await self._attempt(event, 1):
            await self._insist(event)

    async def _insist(self, event: StravaEvent) -> None:
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
        asked = {
            "hub.verify_token": verify_token,
            "hub.challenge": challenge,
            "hub.mode": "subscribe",
        }
        try:
            status, body = await finish_within(
                self._clock, RESPONSE_TIMEOUT_SECONDS, self._get(with_query(callback_url, asked))
            )
        except (PyreqwestError, DeadlineExceeded) as error:
            raise bad_request("PushSubscription", "callback url", "not verifiable") from error
        if status != 200:
            raise bad_request(
                "PushSubscription", "callback url", "GET to callback URL does not return 200"
            )
        try:
            answer = msgspec.json.decode(body, type=dict[str, str])
        except msgspec.DecodeError as error:
            raise bad_request("PushSubscription", "callback url", "not verifiable") from error
        if answer.get("hub.challenge") != challenge:
            raise bad_request("PushSubscription", "callback url", "not verifiable")

    async def _get(self, url: str) -> tuple[int, bytes]:
        if self._client is None:
            raise RuntimeError("Webhooks are delivered only while they are running")
        response = await self._client.get(url).build().send()
        return response.status, bytes(await response.bytes())
