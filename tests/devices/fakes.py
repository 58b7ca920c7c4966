"""Ingestion servers that fail on demand, on a real engine.

An `UnreliableServer` runs the ingestion with its own caches. A test schedules one outcome per
transaction:

| outcome | the transaction |
|---|---|
| `ok` | commits |
| `fails` | does not commit, and the store reports an error |
| `conflict` | is cancelled for a transient reason |
| `lost` | commits, but the response is lost |
| `dies before`, `dies after` | is the last one: the server crashes before or after it commits |
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tally.devices.api.schemas import requests, responses
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
from tests.devices.harness import Json

TransactEach: TypeAlias = Callable[
    [Sequence[Transaction]], Coroutine[Any, Any, list[TransactionResult | StoreError]]
]

OUTCOMES = ("ok", "fails", "conflict", "lost", "dies before", "dies after")
COMMITTED = ("ok", "lost", "dies after")
ERRORS: dict[str, Callable[[], StoreError]] = {
    "fails": lambda: StoreUnavailable("unavailable"),
    "conflict": lambda: TransactionCancelled([Reason("TransactionConflict"), Reason("None")]),
    "lost": lambda: OutcomeUnknown("connection lost"),
}


class InterceptingEngine:
    """Delegates to an engine, except for `transact_each`, which the test supplies."""

    def __init__(self, engine: Engine, transact_each: TransactEach) -> None:
        self._engine = engine
        self.transact_each = transact_each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class UnreliableServer:
    """Ingests requests until it crashes; `recover` restarts it."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._outcomes: Iterator[str] = iter(())
        self.start()

    def start(self) -> None:
        """Start with empty caches."""
        self._crashed = asyncio.Event()
        store = Store(InterceptingEngine(self._engine, self._transact_each))
        devices = FleetService(
            DeviceRepository(store),
            self._clock,
            TTLCache(self._clock, 5, 100),
            TTLCache(self._clock, 300, 100),
        )
        self._ingestion = IngestionService(
            ReadingRepository(store), devices, self._clock, 90 * 86_400
        )

    def schedule(self, outcomes: Iterable[str]) -> None:
        """Set the outcomes of the next transactions; all later ones succeed."""
        self._outcomes = iter(outcomes)

    async def post(self, content: Json) -> Json | None:
        """Return the receipt, or None if the board gets no response or a 503."""
        request = asyncio.create_task(self._ingest(content))
        crash = asyncio.create_task(self._crashed.wait())
        await asyncio.wait({request, crash}, return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            request.cancel()
        crash.cancel()
        await asyncio.wait({request, crash})
        if request.cancelled():
            return None
        return request.result()

    async def recover(self) -> None:
        """Restart the server if it has crashed."""
        self.schedule(())
        if self._crashed.is_set():
            self.start()

    async def _ingest(self, content: Json) -> Json | None:
        try:
            receipt = await self._ingestion.ingest(
                *requests.parse_upload(msgspec.json.encode(content))[:2]
            )
        except Unavailable:
            return None
        body: Json = msgspec.to_builtins(responses.receipt_body(receipt))
        return body

    async def _transact_each(
        self, transactions: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        """Commit the transactions whose outcome says so, in one call; fail the others."""
        outcomes = [next(self._outcomes, "ok") for _ in transactions]
        committed = [
            transaction
            for transaction, outcome in zip(transactions, outcomes, strict=True)
            if outcome in COMMITTED
        ]
        committed_results = iter(await self._engine.transact_each(committed) if committed else [])
        if {"dies before", "dies after"} & set(outcomes):
            self._crashed.set()
            await asyncio.Event().wait()  # until the request is cancelled
        results = [
            next(committed_results) if outcome in COMMITTED else ERRORS[outcome]()
            for outcome in outcomes
        ]
        return [
            ERRORS["lost"]() if outcome == "lost" else result
            for outcome, result in zip(outcomes, results, strict=True)
        ]
