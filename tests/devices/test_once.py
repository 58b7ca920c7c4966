"""Each reading is stored exactly once, and each batch id of a request comes back in exactly one part of the answer.

Hypothesis makes up boards, what they send in which order and how often, to which of two servers,
what runs at once, and the luck of every transaction (`unlucky.py`). At the end every board sends
everything once more, to a server that is well.
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
from tally.store.expressions import F
from tally.store.store import Store
from tests.devices.fakes import OUTCOMES, UnreliableServer
from tests.devices.harness import START, Board, Json

READINGS = 8
pytestmark = pytest.mark.soak


@dataclass(frozen=True, slots=True)
class Post:
    """A request: which board sends which readings, in this order, to which server.

    A negative number is a broken copy.
    """

    board: int
    server: int
    picks: list[int]


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests that run at once, and the luck that the servers have with them."""

    posts: list[Post]
    luck: tuple[list[str], list[str]]


@dataclass(slots=True)
class Told:
    """What the boards were told so far, by batch id."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    duplicate: set[str] = field(default_factory=set)


posts = st.builds(
    Post,
    st.integers(0, 1),
    st.integers(0, 1),
    st.lists(st.integers(-READINGS, READINGS - 1), min_size=1, max_size=12),
)
luck = st.lists(st.sampled_from(("ok", "ok", "ok", *OUTCOMES)), max_size=10)
waves = st.builds(Wave, st.lists(posts, min_size=1, max_size=4), st.tuples(luck, luck))
histories = st.lists(waves, max_size=5)


def reading(board: Board, pick: int) -> Json:
    """A good reading; or, for a negative number, one of the same batch id that breaks a rule or cannot be read at all."""
    if pick >= 0:
        return board.reading(pick)
    good = board.reading(pick + READINGS)
    if pick % 3 == 0:
        return good | {"timestamp_ms": 1}
    return {"batch_id": good["batch_id"]} if pick % 3 == 1 else good | {"sensors": {"a b": 1}}


def check_receipt(receipt: Json, sent: list[Json], told: Told) -> None:
    """Every batch id that was sent is in exactly one part, and nothing else is."""
    acknowledged, duplicates = receipt["acknowledged_batch_ids"], receipt["duplicate_batch_ids"]
    rejected = {sent[each["index"]]["batch_id"] for each in receipt["rejected"]}
    application = Counter(acknowledged) + Counter(duplicates) + Counter(rejected)
    assert application == Counter({each["batch_id"] for each in sent}), receipt
    told.acknowledged.update(acknowledged)
    told.duplicate.update(duplicates)


async def run_wave(
    wave: Wave, boards: list[Board], servers: list[UnreliableServer], told: Told
) -> None:
    async def run(post: Post) -> None:
        sent = [reading(boards[post.board], pick) for pick in post.picks]
        receipt = await servers[post.server].post(boards[post.board].data(*sent))
        if receipt is not None:
            check_receipt(receipt, sent, told)

    for server, its_luck in zip(servers, wave.luck, strict=True):
        server.schedule(its_luck)
    await asyncio.gather(*(run(post) for post in wave.posts))
    for server in servers:
        await server.recover()


async def stored(engine: Engine, board: Board) -> list[Any]:
    page = await engine.query(
        Query(DEVICE_READINGS, F("hardware_id") == board.hardware_id, consistent=True)
    )
    return page.items


async def check_end(
    engine: Engine, boards: list[Board], servers: list[UnreliableServer], told: Told
) -> None:
    """All good readings are there, once and unchanged; what was told before was true."""
    for board in boards:
        good = {each["batch_id"]: each for each in board.readings(READINGS)}
        items = await stored(engine, board)
        assert Counter(item["batch_id"] for item in items) == Counter(list(good))
        for item in items:
            sent = good[item["batch_id"]]
            assert (item["timestamp_ms"], item["sensor_status"]) == (
                sent["timestamp_ms"],
                sent["sensor_status"],
            )
            assert {name: float(value) for name, value in item["sensors"].items()} == sent[
                "sensors"
            ]
            seen = await engine.get(
                Get(PROCESSED_BATCHES, {"batch_id": item["batch_id"]}, consistent=True)
            )
            assert seen.item is not None
        assert set(told.acknowledged) | told.duplicate >= set(good)
    assert set(told.acknowledged.values()) <= {1}, "acknowledged twice"
    announced = Counter(batch_id for server in servers for batch_id in server.published)
    assert set(announced.values()) <= {1}, "announced twice"
    assert set(told.acknowledged) <= set(announced), "acknowledged, and nobody who watches was told"


async def play(engine: Engine, history: list[Wave]) -> None:
    boards, told = [Board(), Board()], Told()
    servers = [
        UnreliableServer(engine, ManualClock(START)),
        UnreliableServer(engine, ManualClock(START - timedelta(minutes=10))),
    ]
    for wave in history:
        await run_wave(wave, boards, servers, told)
        for board in boards:
            stored_batch_ids = {item["batch_id"] for item in await stored(engine, board)}
            promised = {
                each
                for each in set(told.acknowledged) | told.duplicate
                if each.startswith(board.hardware_id)
            }
            assert promised <= stored_batch_ids, "what was acknowledged is there"
    everything = [Post(board, 0, list(range(READINGS))) for board in range(2)]
    await run_wave(Wave(everything, ([], [])), boards, servers, told)
    await check_end(engine, boards, servers, told)


@settings(max_examples=20)
@given(histories)
async def test_every_reading_is_stored_once_whatever_happens(
    store: Store, history: list[Wave]
) -> None:
    await play(store.engine, history)


@settings(max_examples=40)
@given(
    st.lists(st.one_of(st.integers(-READINGS, READINGS - 1), st.none()), min_size=1, max_size=100)
)
async def test_a_request_is_answered_in_full(store: Store, picks: list[int | None]) -> None:
    """Also with a hundred readings, most of them copies, some of them no readings at all."""
    board, server, told = Board(), UnreliableServer(store.engine, ManualClock(START)), Told()
    sent = [{"batch_id": ""} if pick is None else reading(board, pick) for pick in picks]
    for _ in range(2):
        receipt = await server.post(board.data(*sent))
        assert receipt is not None
        check_receipt(receipt, sent, told)
    good = {board.reading(pick)["batch_id"] for pick in picks if pick is not None and pick >= 0}
    assert told.acknowledged == Counter(good)
    assert told.duplicate == good
    assert {item["batch_id"] for item in await stored(store.engine, board)} == good
