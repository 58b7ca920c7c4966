"""Which requests the DynamoDB engine retries, tested with a fake service on a real socket."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Check,
    Delete,
    Get,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.dynamodb import Credentials, DynamoDBRetryPolicy, open_dynamodb
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.errors import (
    InvalidKey,
    OutcomeUnknown,
    StoreUnavailable,
    Throttled,
    TransactionCancelled,
)
from tally.store.expressions import F, not_exists
from tally.store.schema import S, Table
from tests.store.fake_dynamodb import (
    FakeDynamoDB,
    InstantClock,
    Reply,
    Service,
    broken,
    cancelled,
    closed,
    cut_off,
    damaged,
    fake_dynamodb,
    gateway,
    impostor,
    refusal,
    reset,
    response,
    silence,
    throttled,
)

TABLE = Table("readings", partition=S("id"))
KEY = {"id": "one"}
ITEM = {"id": {"S": "one"}}
ATTEMPTS = 6

Call: TypeAlias = Callable[[DynamoDBEngine], Awaitable[Any]]

READS: dict[str, Call] = {
    "get": lambda engine: engine.get(Get(TABLE, KEY)),
    "query": lambda engine: engine.query(Query(TABLE, F("id") == "one")),
    "scan": lambda engine: engine.scan(Scan(TABLE)),
    "batch_get": lambda engine: engine.batch_get(BatchGet(TABLE, (KEY,))),
    "transact_get": lambda engine: engine.transact_get(TransactionGet((Get(TABLE, KEY),))),
    "list_tables": lambda engine: engine.list_tables(),
}
WRITES: dict[str, Call] = {
    "put": lambda engine: engine.put(Put(TABLE, {"id": "one"})),
    "conditional put": lambda engine: engine.put(
        Put(TABLE, {"id": "one"}, condition=not_exists("id"))
    ),
    "update": lambda engine: engine.update(Update(TABLE, KEY, (F("count").add(1),))),
    "delete": lambda engine: engine.delete(Delete(TABLE, KEY)),
    "batch_write": lambda engine: engine.batch_write(BatchWrite(TABLE, puts=({"id": "one"},))),
}
# A response that every operation can parse.
FINE = response(
    {
        "Items": [],
        "Count": 0,
        "ScannedCount": 0,
        "Responses": {"readings": [ITEM]},
        "UnprocessedKeys": {},
        "UnprocessedItems": {},
        "TableNames": [],
    }
)
FINE_TRANSACTION_GET = response({"Responses": [{"Item": ITEM}]})
BREAKS: dict[str, Reply] = {
    "closed": closed,
    "reset": reset,
    "cut off": cut_off,
    "internal error": broken,
    "bad gateway": gateway,
    "damaged": damaged,
    "impostor": impostor,
}


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[FakeDynamoDB]:
    clock = InstantClock()
    async with fake_dynamodb() as service, opened(service.url, clock) as engine:
        yield FakeDynamoDB(service, clock, engine)


@pytest.fixture
def fake(shared: FakeDynamoDB) -> FakeDynamoDB:
    shared.reset_state()
    return shared


@pytest.fixture
def service(fake: FakeDynamoDB) -> Service:
    return fake.service


@pytest.fixture
def clock(fake: FakeDynamoDB) -> InstantClock:
    return fake.clock


@pytest.fixture
def engine(fake: FakeDynamoDB) -> DynamoDBEngine:
    return fake.engine


@contextlib.asynccontextmanager
async def opened(
    url: str, clock: InstantClock, read_timeout: float = 30.0, **retry_policy: Any
) -> AsyncIterator[DynamoDBEngine]:
    """An engine that always draws the maximum back-off."""
    settings = {
        "attempts": ATTEMPTS,
        "initial_backoff": 1.0,
        "max_backoff": 8.0,
        "deadline": 60.0,
        **retry_policy,
    }
    async with open_dynamodb(
        endpoint=url,
        credentials=Credentials("tally", "secret"),
        read_timeout=read_timeout,
        retry_policy=DynamoDBRetryPolicy(clock=clock, draw=lambda _low, high: high, **settings),
    ) as engine:
        yield engine


def refused_url() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("fault", BREAKS)
async def test_a_read_without_a_response_is_retried(
    name: str, fault: str, engine: DynamoDBEngine, service: Service
) -> None:
    fine = FINE_TRANSACTION_GET if name == "transact_get" else FINE
    service.replies += [BREAKS[fault], fine]

    await READS[name](engine)

    assert len(service.sent) == 2
    assert service.sent[0] == service.sent[1]


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fault", BREAKS)
async def test_a_write_without_a_response_is_sent_once_and_its_outcome_is_unknown(
    name: str, fault: str, engine: DynamoDBEngine, service: Service, clock: InstantClock
) -> None:
    service.replies += [BREAKS[fault], FINE]

    with pytest.raises(OutcomeUnknown, match="readings"):
        await WRITES[name](engine)

    assert len(service.sent) == 1
    assert clock.pauses == []


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_throttled_requests_are_retried_with_growing_back_off(
    name: str, engine: DynamoDBEngine, service: Service, clock: InstantClock
) -> None:
    fine = FINE_TRANSACTION_GET if name == "transact_get" else FINE
    service.replies += [throttled(), throttled(), throttled(), throttled(), throttled(), fine]

    await {**READS, **WRITES}[name](engine)

    assert len(service.sent) == 6
    assert clock.pauses == [1.0, 2.0, 4.0, 8.0, 8.0]


async def test_persistent_throttling_is_raised_after_the_last_attempt(
    engine: DynamoDBEngine, service: Service, clock: InstantClock
) -> None:
    service.replies.extend([throttled()] * 100)

    with pytest.raises(Throttled, match="PutItem on readings"):
        await WRITES["put"](engine)

    assert len(service.sent) == ATTEMPTS
    assert len(clock.pauses) == ATTEMPTS - 1


async def test_no_back_off_ends_after_the_deadline(service: Service, clock: InstantClock) -> None:
    service.replies.extend([throttled()] * 100)

    async with opened(service.url, clock, deadline=4.0) as engine:
        with pytest.raises(Throttled):
            await READS["get"](engine)

    assert clock.pauses == [1.0, 2.0]


def test_back_off_has_full_jitter() -> None:
    drawn: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return high / 2

    retry_policy = DynamoDBRetryPolicy(initial_backoff=0.5, max_backoff=3.0, draw=draw)

    assert [retry_policy.backoff(attempt) for attempt in (1, 2, 3, 4, 50)] == [
        0.25,
        0.5,
        1.0,
        1.5,
        1.5,
    ]
    assert drawn == [(0.0, 0.5), (0.0, 1.0), (0.0, 2.0), (0.0, 3.0), (0.0, 3.0)]


async def test_a_request_to_a_hanging_service_times_out_like_a_broken_connection(
    service: Service, clock: InstantClock
) -> None:
    async with opened(service.url, clock, read_timeout=1.0) as engine:
        service.replies += [silence, FINE, silence, silence, FINE]

        await READS["get"](engine)
        with pytest.raises(OutcomeUnknown):
            await WRITES["put"](engine)
        await engine.transact(transaction())

    assert [sent.operation for sent in service.sent] == ["GetItem"] * 2 + ["PutItem"] + [
        "TransactWriteItems"
    ] * 2


async def test_a_request_that_was_never_sent_is_retried_and_then_unavailable(
    clock: InstantClock,
) -> None:
    async with opened(refused_url(), clock) as engine:
        for name, call in {**READS, **WRITES}.items():
            clock.pauses.clear()
            with pytest.raises(StoreUnavailable) as caught:
                await call(engine)
            assert type(caught.value) is StoreUnavailable, name
            assert len(clock.pauses) == ATTEMPTS - 1, name


async def test_an_unresolvable_host_is_retried_and_then_unavailable(
    clock: InstantClock,
) -> None:
    async with opened("http://nobody.invalid:8000", clock) as engine:
        with pytest.raises(StoreUnavailable) as caught:
            await WRITES["update"](engine)

    assert type(caught.value) is StoreUnavailable
    assert len(clock.pauses) == ATTEMPTS - 1


async def test_a_write_is_applied_once_when_the_service_becomes_available() -> None:
    url = refused_url()
    async with contextlib.AsyncExitStack() as stack:
        started: list[Service] = []

        async def start() -> None:
            if not started:
                started.append(
                    await stack.enter_async_context(fake_dynamodb(int(url.rpartition(":")[2])))
                )

        engine = await stack.enter_async_context(opened(url, InstantClock(at_pause=start)))

        await WRITES["update"](engine)

        assert [sent.operation for sent in started[0].sent] == ["UpdateItem"]


async def test_a_write_in_conflict_with_a_transaction_is_retried(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies += [refusal("TransactionConflictException"), FINE]

    await WRITES["update"](engine)

    assert len(service.sent) == 2


def transaction(token: str | None = None) -> Transaction:
    return Transaction(
        (Put(TABLE, {"id": "one"}), Check(TABLE, {"id": "two"}, not_exists("id"))), token
    )


@pytest.mark.parametrize("fault", BREAKS)
async def test_a_transaction_is_retried_with_the_same_token_after_a_broken_connection(
    fault: str, engine: DynamoDBEngine, service: Service
) -> None:
    service.replies += [BREAKS[fault], BREAKS[fault], FINE]

    await engine.transact(transaction())

    tokens = [sent.body["ClientRequestToken"] for sent in service.sent]
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    assert len(tokens[0]) == 36


async def test_two_transactions_without_tokens_get_different_ones(
    engine: DynamoDBEngine, service: Service
) -> None:
    await engine.transact(transaction())
    await engine.transact(transaction())

    assert len({sent.body["ClientRequestToken"] for sent in service.sent}) == 2


async def test_a_specified_token_is_used(engine: DynamoDBEngine, service: Service) -> None:
    service.replies += [closed, refusal("TransactionInProgressException"), FINE]

    await engine.transact(transaction("my-own-token"))

    assert [sent.body["ClientRequestToken"] for sent in service.sent] == ["my-own-token"] * 3


async def test_a_transaction_in_conflict_is_retried(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies += [
        cancelled("None", "TransactionConflict"),
        cancelled("ThrottlingError", "TransactionConflict"),
        FINE,
    ]

    await engine.transact(transaction())

    assert len(service.sent) == 3


async def test_a_persistent_conflict_is_raised_with_its_reasons(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies.extend([cancelled("None", "TransactionConflict")] * 100)

    with pytest.raises(TransactionCancelled) as caught:
        await engine.transact(transaction())

    assert [reason.code for reason in caught.value.reasons] == ["None", "TransactionConflict"]
    assert len(service.sent) == ATTEMPTS


async def test_a_transaction_that_is_only_throttled_ends_as_throttled(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies.extend([cancelled("ProvisionedThroughputExceeded", "None")] * 100)

    with pytest.raises(Throttled):
        await engine.transact(transaction())

    assert len(service.sent) == ATTEMPTS


async def test_a_failed_condition_next_to_a_conflict_is_raised_immediately(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies += [cancelled("TransactionConflict", "ConditionalCheckFailed"), FINE]

    with pytest.raises(TransactionCancelled):
        await engine.transact(transaction())

    assert len(service.sent) == 1


async def test_a_transaction_that_never_gets_a_response_has_an_unknown_outcome(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies.extend([closed] + [throttled()] * 100)

    with pytest.raises(OutcomeUnknown):
        await engine.transact(transaction())

    assert len(service.sent) == ATTEMPTS


async def test_a_transaction_rejected_after_a_broken_connection_is_rejected(
    engine: DynamoDBEngine, service: Service
) -> None:
    """With its token, the second attempt would have succeeded if the first had been applied."""
    service.replies += [closed, cancelled("ConditionalCheckFailed", "None")]

    with pytest.raises(TransactionCancelled):
        await engine.transact(transaction())


async def test_an_invalid_request_is_never_sent(engine: DynamoDBEngine, service: Service) -> None:
    with pytest.raises(InvalidKey):
        await engine.put(Put(TABLE, {"name": "no id"}))

    assert service.sent == []


async def test_a_ping_sends_one_request(
    engine: DynamoDBEngine, service: Service, clock: InstantClock
) -> None:
    service.replies.extend([closed] * 2)

    with pytest.raises(StoreUnavailable):
        await engine.ping()

    assert [sent.operation for sent in service.sent] == ["ListTables"]
    assert clock.pauses == []


async def test_closing_waits_for_running_requests_and_rejects_new_ones(
    service: Service, clock: InstantClock
) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await go_on.wait()
        await response({"Item": ITEM})(writer)

    service.replies.append(late)
    async with opened(service.url, clock) as engine:
        reading = asyncio.create_task(engine.get(Get(TABLE, KEY)))
        await arrived.wait()
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)  # the task begins

        with pytest.raises(StoreUnavailable, match="closed"):
            await engine.get(Get(TABLE, KEY))
        assert not closing.done()

        go_on.set()
        await closing
        assert (await reading).item == {"id": "one"}
