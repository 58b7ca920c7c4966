"""The requests of each operation, and the parsed responses."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tally.store.api import (
    BatchGet,
    BatchWrite,
    Capacity,
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
from tally.store.dynamodb import Credentials, open_dynamodb
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.expressions import F, make_path, not_exists
from tally.store.schema import GlobalIndex, N, S, Table
from tests.store.fake_dynamodb import Service, fake_dynamodb, response

TABLE = Table(
    "readings",
    partition=S("id"),
    sort=N("at"),
    indexes=(GlobalIndex("by-city", partition=S("city")),),
)
NAME = "test-readings"
KEY = {"id": "one", "at": 1}
WIRE_KEY = {"id": {"S": "one"}, "at": {"N": "1"}}
TOTAL = {"ReturnConsumedCapacity": "TOTAL"}


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[tuple[Service, DynamoDBEngine]]:
    secret = Credentials("tally", "secret")
    async with (
        fake_dynamodb() as service,
        open_dynamodb(endpoint=service.url, credentials=secret, table_prefix="test-") as engine,
    ):
        yield service, engine


@pytest.fixture
def service(running: tuple[Service, DynamoDBEngine]) -> Service:
    running[0].reset_state()
    return running[0]


@pytest.fixture
def engine(running: tuple[Service, DynamoDBEngine]) -> DynamoDBEngine:
    return running[1]


REQUESTS: dict[str, tuple[Callable[[DynamoDBEngine], Awaitable[Any]], dict[str, Any]]] = {
    "GetItem": (
        lambda engine: engine.get(Get(TABLE, KEY, (make_path("map", "size"),), consistent=True)),
        {
            "TableName": NAME,
            "Key": WIRE_KEY,
            "ProjectionExpression": "#n0.#n1",
            "ExpressionAttributeNames": {"#n0": "map", "#n1": "size"},
            "ConsistentRead": True,
            **TOTAL,
        },
    ),
    "PutItem": (
        lambda engine: engine.put(Put(TABLE, {**KEY, "on": True}, not_exists("id"), "ALL_OLD")),
        {
            "TableName": NAME,
            "Item": {**WIRE_KEY, "on": {"BOOL": True}},
            "ConditionExpression": "attribute_not_exists(#n0)",
            "ExpressionAttributeNames": {"#n0": "id"},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnValues": "ALL_OLD",
            **TOTAL,
        },
    ),
    "UpdateItem": (
        lambda engine: engine.update(
            Update(TABLE, KEY, (F("n").add(1),), F("n") < 9, "UPDATED_NEW")
        ),
        {
            "TableName": NAME,
            "Key": WIRE_KEY,
            "UpdateExpression": "ADD #n0 :v0",
            "ConditionExpression": "#n0 < :v1",
            "ExpressionAttributeNames": {"#n0": "n"},
            "ExpressionAttributeValues": {":v0": {"N": "1"}, ":v1": {"N": "9"}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnValues": "UPDATED_NEW",
            **TOTAL,
        },
    ),
    "DeleteItem": (
        lambda engine: engine.delete(Delete(TABLE, KEY)),
        {"TableName": NAME, "Key": WIRE_KEY, "ReturnValues": "NONE", **TOTAL},
    ),
    "Query": (
        lambda engine: engine.query(
            Query(
                TABLE,
                (F("id") == "one") & (F("at") > 0),
                filter=F("city").exists(),
                projection=(make_path("city"),),
                forward=False,
                limit=5,
                start=KEY,
            )
        ),
        {
            "TableName": NAME,
            "KeyConditionExpression": "#n0 = :v0 AND #n1 > :v1",
            "FilterExpression": "attribute_exists(#n2)",
            "ProjectionExpression": "#n2",
            "ExpressionAttributeNames": {"#n0": "id", "#n1": "at", "#n2": "city"},
            "ExpressionAttributeValues": {":v0": {"S": "one"}, ":v1": {"N": "0"}},
            "ScanIndexForward": False,
            "Limit": 5,
            "ExclusiveStartKey": WIRE_KEY,
            "ConsistentRead": False,
            **TOTAL,
        },
    ),
    "Scan": (
        lambda engine: engine.scan(Scan(TABLE, "by-city")),
        {"TableName": NAME, "IndexName": "by-city", "ConsistentRead": False, **TOTAL},
    ),
    "BatchGetItem": (
        lambda engine: engine.batch_get(
            BatchGet(TABLE, (KEY,), (make_path("n"),), consistent=True)
        ),
        {
            "RequestItems": {
                NAME: {
                    "Keys": [WIRE_KEY],
                    "ProjectionExpression": "#n0",
                    "ExpressionAttributeNames": {"#n0": "n"},
                    "ConsistentRead": True,
                }
            },
            **TOTAL,
        },
    ),
    "BatchWriteItem": (
        lambda engine: engine.batch_write(BatchWrite(TABLE, ({**KEY, "at": 2},), (KEY,))),
        {
            "RequestItems": {
                NAME: [
                    {"PutRequest": {"Item": {**WIRE_KEY, "at": {"N": "2"}}}},
                    {"DeleteRequest": {"Key": WIRE_KEY}},
                ]
            },
            **TOTAL,
        },
    ),
    "TransactWriteItems": (
        lambda engine: engine.transact(
            Transaction(
                (
                    Put(TABLE, KEY),
                    Update(TABLE, {"id": "two", "at": 1}, (F("n").remove(),)),
                    Delete(TABLE, {"id": "three", "at": 1}, F("n") == 1),
                    Check(TABLE, {"id": "four", "at": 1}, not_exists("id")),
                ),
                "token",
            )
        ),
        {
            "TransactItems": [
                {"Put": {"TableName": NAME, "Item": WIRE_KEY}},
                {
                    "Update": {
                        "TableName": NAME,
                        "Key": {"id": {"S": "two"}, "at": {"N": "1"}},
                        "UpdateExpression": "REMOVE #n0",
                        "ExpressionAttributeNames": {"#n0": "n"},
                    }
                },
                {
                    "Delete": {
                        "TableName": NAME,
                        "Key": {"id": {"S": "three"}, "at": {"N": "1"}},
                        "ConditionExpression": "#n0 = :v0",
                        "ExpressionAttributeNames": {"#n0": "n"},
                        "ExpressionAttributeValues": {":v0": {"N": "1"}},
                        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    }
                },
                {
                    "ConditionCheck": {
                        "TableName": NAME,
                        "Key": {"id": {"S": "four"}, "at": {"N": "1"}},
                        "ConditionExpression": "attribute_not_exists(#n0)",
                        "ExpressionAttributeNames": {"#n0": "id"},
                        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    }
                },
            ],
            "ClientRequestToken": "token",
            **TOTAL,
        },
    ),
    "TransactGetItems": (
        lambda engine: engine.transact_get(TransactionGet((Get(TABLE, KEY),))),
        {"TransactItems": [{"Get": {"TableName": NAME, "Key": WIRE_KEY}}], **TOTAL},
    ),
}


@pytest.mark.parametrize("operation", REQUESTS)
async def test_each_operation_is_encoded(
    operation: str, engine: DynamoDBEngine, service: Service
) -> None:
    call, expected = REQUESTS[operation]
    service.replies.append(
        response(
            {
                "Items": [],
                "Count": 0,
                "ScannedCount": 0,
                "Responses": [] if "Transact" in operation else {},
            }
        )
    )

    await call(engine)

    assert [(sent.operation, sent.body) for sent in service.sent] == [(operation, expected)]


async def test_a_get_returns_the_item_and_its_cost(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies.append(
        response({"Item": WIRE_KEY, "ConsumedCapacity": {"TableName": NAME, "CapacityUnits": 0.5}})
    )

    found = await engine.get(Get(TABLE, KEY))

    assert found.item == KEY
    assert found.capacity == Capacity(read=0.5)


async def test_a_write_that_returns_nothing_has_no_item(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies.append(
        response({"Attributes": {}, "ConsumedCapacity": {"TableName": NAME, "CapacityUnits": 2}})
    )

    written = await engine.update(Update(TABLE, KEY, (F("n").remove(),), returns="UPDATED_NEW"))

    assert written.item is None
    assert written.capacity == Capacity(write=2.0)


async def test_a_page_contains_the_key_of_the_next_page(
    engine: DynamoDBEngine, service: Service
) -> None:
    consumed = {"TableName": NAME, "CapacityUnits": 1.5}
    reply = {
        "Items": [WIRE_KEY],
        "Count": 1,
        "ScannedCount": 3,
        "LastEvaluatedKey": WIRE_KEY,
        "ConsumedCapacity": consumed,
    }
    service.replies.append(response(reply))

    page = await engine.scan(Scan(TABLE))

    assert (page.items, page.next, page.count, page.scanned) == ([KEY], KEY, 1, 3)
    assert page.capacity == Capacity(read=1.5)


async def test_unprocessed_items_of_a_batch_are_returned(
    engine: DynamoDBEngine, service: Service
) -> None:
    other = {"id": {"S": "two"}, "at": {"N": "1"}}
    consumed = [{"TableName": NAME, "CapacityUnits": 0.5}]
    service.replies += [
        response(
            {
                "Responses": {NAME: [WIRE_KEY]},
                "UnprocessedKeys": {NAME: {"Keys": [other]}},
                "ConsumedCapacity": consumed,
            },
        ),
        response(
            {
                "UnprocessedItems": {
                    NAME: [{"DeleteRequest": {"Key": other}}, {"PutRequest": {"Item": WIRE_KEY}}]
                }
            },
        ),
        response({"UnprocessedItems": {}, "ConsumedCapacity": [*consumed, *consumed]}),
    ]
    writes = BatchWrite(TABLE, (KEY,), ({"id": "two", "at": 1},))

    found = await engine.batch_get(BatchGet(TABLE, (KEY, {"id": "two", "at": 1})))
    partly = await engine.batch_write(writes)
    wholly = await engine.batch_write(writes)

    assert (found.items, found.unprocessed) == ([KEY], ({"id": "two", "at": 1},))
    assert found.capacity == Capacity(read=0.5)
    assert partly.unprocessed == writes
    assert wholly.unprocessed is None
    assert wholly.capacity == Capacity(write=1.0)


async def test_a_transaction_costs_writes_and_a_replay_costs_reads(
    engine: DynamoDBEngine, service: Service
) -> None:
    service.replies += [
        response(
            {"ConsumedCapacity": [{"TableName": NAME, "CapacityUnits": 4, "WriteCapacityUnits": 4}]}
        ),
        response(
            {"ConsumedCapacity": [{"TableName": NAME, "CapacityUnits": 2, "ReadCapacityUnits": 2}]}
        ),
        response(
            {
                "ConsumedCapacity": [
                    {"TableName": NAME, "CapacityUnits": 4},
                    {"TableName": "other", "CapacityUnits": 2},
                ]
            }
        ),
    ]
    transaction = Transaction((Put(TABLE, KEY),))

    costs = [(await engine.transact(transaction)).capacity for _ in range(3)]

    assert costs == [Capacity(write=4.0), Capacity(read=2.0), Capacity(write=6.0)]


async def test_a_transaction_reads_in_the_order_of_its_gets(
    engine: DynamoDBEngine, service: Service
) -> None:
    consumed = [{"TableName": NAME, "CapacityUnits": 4, "ReadCapacityUnits": 4}]
    service.replies.append(
        response({"Responses": [{}, {"Item": WIRE_KEY}], "ConsumedCapacity": consumed})
    )

    found = await engine.transact_get(
        TransactionGet((Get(TABLE, {"id": "two", "at": 1}), Get(TABLE, KEY)))
    )

    assert found.items == [None, KEY]
    assert found.capacity == Capacity(read=4.0)


async def test_an_update_without_a_step_is_sent_without_an_expression(
    engine: DynamoDBEngine, service: Service
) -> None:
    await engine.update(Update(TABLE, KEY, ()))

    assert "UpdateExpression" not in service.sent[0].body


async def test_sweeping_sends_no_request(engine: DynamoDBEngine, service: Service) -> None:
    assert await engine.sweep(TABLE, now=1.0, limit=10) == 0
    assert service.sent == []


def test_secrets_are_in_no_representation() -> None:
    shown = repr(Credentials("known", "hidden-secret", "hidden-token"))

    assert "known" in shown
    assert "hidden" not in shown
