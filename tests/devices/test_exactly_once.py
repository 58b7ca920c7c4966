"""Each reading is stored exactly once, and each batch id is in exactly one list of a receipt.

Hypothesis generates boards, requests, their order and repetition, the server of each request,
concurrency, and the outcome of every transaction (see `fakes.py`). In the end every board sends all
its readings again to a reliable server.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.kit.clock import ManualClock
from tally.store.api import Engine, Get, Query
from tally.store.changes import START as OLDEST
from tally.store.expressions import F
from tally.store.store import Store
from tests.devices.fakes import OUTCOMES, UnreliableServer
from tests.devices.harness import START, Board, Json

READINGS = 8
pytestmark = pytest.mark.soak


@dataclass(frozen=True, slots=True)
class Post:
    """A request: the board, the server, and the readings in order. Negative numbers are invalid."""

    board: int
    server: int
    picks: list[int]


@dataclass(frozen=True, slots=True)
class Wave:
    """Concurrent requests, and the transaction outcomes of both servers."""

    posts: list[Post]
    outcomes: tuple[list[str], list[str]]


@dataclass(slots=True)
class Responses:
    """The batch ids in all receipts so far."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    duplicate: set[str] = field(default_factory=set)


posts = st.builds(
    Post,
    st.integers(0, 1),
    st.integers(0, 1),
    st.lists(st.integers(-READINGS, READINGS - 1), min_size=1, max_size=12),
)
outcomes = st.lists(st.sampled_from(("ok", "ok", "ok", *OUTCOMES)), max_size=10)
waves = st.builds(Wave, st.lists(posts, min_size=1, max_size=4), st.tuples(outcomes, outcomes))
histories = st.lists(waves, max_size=5)


def reading(board: Board, pick: int) -> Json:
    """Return a valid reading, or an invalid one with the same batch id for a negative number."""
    if pick >= 0:
        return board.reading(pick)
    valid = board.reading(pick + READINGS)
    if pick % 3 == 0:
        return valid | {"timestamp_ms": 1}
    return {"batch_id": valid["batch_id"]} if pick % 3 == 1 else valid | {"sensors": {"a b": 1}}


def is_valid(reading: Json) -> bool:
    return reading.get("timestamp_ms", 1) != 1 and "a b" not in reading["sensors"]


def check_receipt(receipt: Json, sent: list[Json], responses: Responses) -> None:
    """Every sent reading is in exactly one list, except for invalid copies of valid readings."""
    acknowledged, duplicates = receipt["acknowledged_batch_ids"], receipt["duplicate_batch_ids"]
    rejected = [sent[rejection["index"]] for rejection in receipt["rejected"]]
    valid = Counter(reading["batch_id"] for reading in sent if is_valid(reading))
    assert Counter(acknowledged) + Counter(duplicates) == valid, receipt
    assert rejected == [
        reading for reading in sent if not is_valid(reading) and reading["batch_id"] not in valid
    ], receipt
    responses.acknowledged.update(acknowledged)
    responses.duplicate.update(duplicates)


async def run_wave(
    wave: Wave, boards: list[Board], servers: list[UnreliableServer], responses: Responses
) -> None:
    async def run(post: Post) -> None:
        sent = [reading(boards[post.board], pick) for pick in post.picks]
        receipt = await servers[post.server].post(boards[post.board].data(*sent))
        if receipt is not None:
            check_receipt(receipt, sent, responses)

    for server, scheduled in zip(servers, wave.outcomes, strict=True):
        server.schedule(scheduled)
    await asyncio.gather(*(run(post) for post in wave.posts))
    for server in servers:
        await server.recover()


async def stored(engine: Engine, board: Board) -> list[Any]:
    page = await engine.query(
        Query(DEVICE_READINGS, F("hardware_id") == board.hardware_id, consistent=True)
    )
    return page.items


async def check_end(engine: Engine, boards: list[Board], responses: Responses) -> None:
    """All valid readings are stored once and unchanged, as all receipts said."""
    for board in boards:
        valid = {reading["batch_id"]: reading for reading in board.readings(READINGS)}
        items = await stored(engine, board)
        assert Counter(item["batch_id"] for item in items) == Counter(list(valid))
        for item in items:
            sent = valid[item["batch_id"]]
            assert (item["timestamp_ms"], item["sensor_status"]) == (
                sent["timestamp_ms"],
                sent["sensor_status"],
            )
            assert {name: float(value) for name, value in item["sensors"].items()} == sent[
                "sensors"
            ]
            batch = await engine.get(
                Get(PROCESSED_BATCHES, {"batch_id": item["batch_id"]}, consistent=True)
            )
            assert batch.item is not None
        logged = await engine.read_changes(DEVICE_READINGS, board.hardware_id, OLDEST, 10_000)
        assert Counter(change.key["ts_batch"] for change in logged.changes) == Counter(
            item["ts_batch"] for item in items
        ), "streams send each reading once"
        assert set(responses.acknowledged) | responses.duplicate >= set(valid)
    assert set(responses.acknowledged.values()) <= {1}, "acknowledged twice"


async def run_history(engine: Engine, history: list[Wave]) -> None:
    boards, responses = [Board(), Board()], Responses()
    servers = [
        UnreliableServer(engine, ManualClock(START)),
        UnreliableServer(engine, ManualClock(START - timedelta(minutes=10))),
    ]
    for wave in history:
        await run_wave(wave, boards, servers, responses)
        for board in boards:
            stored_batch_ids = {item["batch_id"] for item in await stored(engine, board)}
            confirmed = {
                batch_id
                for batch_id in set(responses.acknowledged) | responses.duplicate
                if batch_id.startswith(board.hardware_id)
            }
            assert confirmed <= stored_batch_ids, "confirmed but not stored"
    everything = [Post(board, 0, list(range(READINGS))) for board in range(2)]
    await run_wave(Wave(everything, ([], [])), boards, servers, responses)
    await check_end(engine, boards, responses)


@settings(max_examples=20)
@given(histories)
async def test_every_reading_is_stored_exactly_once(store: Store, history: list[Wave]) -> None:
    await run_history(store._engine, history)


@settings(max_examples=40)
@given(
    st.lists(st.one_of(st.integers(-READINGS, READINGS - 1), st.none()), min_size=1, max_size=100)
)
async def test_a_receipt_is_complete(store: Store, picks: list[int | None]) -> None:
    """Also with a hundred readings that include copies and malformed ones."""
    board, server, responses = (
        Board(),
        UnreliableServer(store._engine, ManualClock(START)),
        Responses(),
    )
    sent = [{"batch_id": ""} if pick is None else reading(board, pick) for pick in picks]
    for _ in range(2):
        receipt = await server.post(board.data(*sent))
        assert receipt is not None
        check_receipt(receipt, sent, responses)
    valid = {board.reading(pick)["batch_id"] for pick in picks if pick is not None and pick >= 0}
    assert responses.acknowledged == Counter(valid)
    assert responses.duplicate == valid
    assert {item["batch_id"] for item in await stored(store._engine, board)} == valid
