"""Servers with bad luck, on one engine: transactions fail, answers get lost, and a server may die at any of them.

A `Server` is all of the ingestion with caches of its own. Its luck is a list of words, one for each
transaction:

| word | the transaction |
|---|---|
| `ok` | is carried out |
| `fails` | is not, and the store says so |
| `conflict` | is cancelled for a reason that passes |
| `lost` | is carried out, and the answer is lost |
| `dies before`, `dies after` | is the last thing that happens on the server: no request under way is answered |
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from tally.devices.api.schemas import requests, responses
from tally.devices.model.records import Reading
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.readings import ReadingRepository
from tally.devices.service.devices import FleetService
from tally.devices.service.ingestion import IngestionService
from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.ttl_cache import TTLCache
from tally.store.api import Engine, Transaction, TransactionResult
from tally.store.errors import (
    OutcomeUnknown,
    Reason,
    StoreError,
    StoreUnavailable,
    TransactionCancelled,
)
from tally.store.store import Store
from tests.devices.faulty import Faulty
from tests.devices.site import Json

LUCK = ("ok", "fails", "conflict", "lost", "dies before", "dies after")
CARRIED_OUT = ("ok", "lost", "dies after")
ERRORS: dict[str, Callable[[], StoreError]] = {
    "fails": lambda: StoreUnavailable("away"),
    "conflict": lambda: TransactionCancelled([Reason("TransactionConflict"), Reason("None")]),
    "lost": lambda: OutcomeUnknown("the connection broke"),
}


class Server:
    """Takes requests until it dies, and is started anew then."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._luck: Iterator[str] = iter(())
        self.published: list[str] = []
        self.start()

    def start(self) -> None:
        """Begin with nothing in memory."""
        self._dead = asyncio.Event()
        store = Store(Faulty(self._engine, self._transact_each))
        registry = FleetService(
            DeviceRepository(store),
            self._clock,
            TTLCache(self._clock, 5, 100),
            TTLCache(self._clock, 300, 100),
        )
        self._ingestion = IngestionService(
            ReadingRepository(store), registry, self._clock, 90 * 86_400, self
        )

    def wish(self, luck: Iterable[str]) -> None:
        """What the next transactions come to; after these, all is well."""
        self._luck = iter(luck)

    async def post(self, content: Json) -> Json | None:
        """The receipt for a request, or None if the board gets no answer, or only that the store is away."""
        request = asyncio.create_task(self._ingest(content))
        death = asyncio.create_task(self._dead.wait())
        await asyncio.wait({request, death}, return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            request.cancel()
        death.cancel()
        await asyncio.wait({request, death})
        if request.cancelled():
            return None
        return request.result()

    async def recover(self) -> None:
        """Start anew if it has died."""
        self.wish(())
        if self._dead.is_set():
            self.start()

    async def _ingest(self, content: Json) -> Json | None:
        try:
            receipt = await self._ingestion.ingest(
                *requests.parse_data(msgspec.json.encode(content))
            )
        except Unavailable:
            return None
        told: Json = msgspec.to_builtins(responses.receipt_body(receipt))
        return told

    def publish(self, readings: Sequence[Reading]) -> None:
        self.published += [reading.batch_id for reading in readings]

    async def _transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        """Those with luck go to the engine, all together; the others come to what their luck is."""
        luck = [next(self._luck, "ok") for _ in operations]
        done = [
            operation
            for operation, word in zip(operations, luck, strict=True)
            if word in CARRIED_OUT
        ]
        outcomes = iter(await self._engine.transact_each(done) if done else [])
        if {"dies before", "dies after"} & set(luck):
            self._dead.set()
            await asyncio.Event().wait()  # until it is cancelled: nothing happens here any more
        answers = [next(outcomes) if word in CARRIED_OUT else ERRORS[word]() for word in luck]
        return [
            ERRORS["lost"]() if word == "lost" else answer
            for word, answer in zip(luck, answers, strict=True)
        ]
