"""The served store answers as DynamoDB does: to boto3, to raw requests and to nonsense."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tally.settings import Secret
from tally.store.wire.request_model import RequestModel
from tests.store.served import (
    boto3_resource,
    call,
    dynamodb_command,
    served_store,
)

KEY = {"pk": {"S": "a"}}
HASH = [{"AttributeName": "pk", "KeyType": "HASH"}]
STRING = [{"AttributeName": "pk", "AttributeType": "S"}]
ENVELOPE = "1 validation error detected: "
INVALID = "One or more parameter values were invalid: "
EVERYTHING = {
    "pk": "x",
    "s": 1,
    "m": {"l": [Decimal("1.5"), b"abc", None, True, {"a", "b"}, {Decimal(1)}, {b"x"}]},
    "empty": "",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("wire")) as served:
        body = {"TableName": "tab", "KeySchema": HASH, "AttributeDefinitions": STRING}
        assert call(served, "CreateTable", {**body, "BillingMode": "PAY_PER_REQUEST"})[0] == 200
        yield served


@pytest.fixture(scope="module")
def table(url: str) -> Any:
    created = boto3_resource(url).create_table(
        TableName="music",
        KeySchema=[*HASH, {"AttributeName": "s", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            *STRING,
            {"AttributeName": "s", "AttributeType": "N"},
            {"AttributeName": "g", "AttributeType": "S"},
        ],
        ProvisionedThroughput={"ReadCapacityUnits": 5, "WriteCapacityUnits": 6},
        LocalSecondaryIndexes=[
            {
                "IndexName": "local",
                "KeySchema": [*HASH, {"AttributeName": "g", "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "global",
                "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["n"]},
                "ProvisionedThroughput": {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
            }
        ],
    )
    created.wait_until_exists()
    return created


def test_boto3_reads_what_it_wrote_with_every_type(table: Any) -> None:
    table.put_item(Item=EVERYTHING)
    assert table.get_item(Key={"pk": "x", "s": 1})["Item"] == EVERYTHING
    found = table.get_item(Key={"pk": "x", "s": 1}, ProjectionExpression="m.l[0], s")["Item"]
    assert found == {"s": 1, "m": {"l": [Decimal("1.5")]}}
    assert "Item" not in table.get_item(Key={"pk": "x", "s": 2})


def test_boto3_pages_through_queries_and_scans(table: Any) -> None:
    with table.batch_writer() as batch:
        for number in range(60):
            batch.put_item(Item={"pk": "page", "s": number, "g": f"g{number % 3}"})
    paginator = table.meta.client.get_paginator("query")
    pages = paginator.paginate(
        TableName="music",
        KeyConditionExpression=Key("pk").eq("page") & Key("s").between(10, 49),
        FilterExpression=Attr("g").eq("g1"),
        PaginationConfig={"PageSize": 7},
    )
    assert [item["s"] for page in pages for item in page["Items"]] == [*range(10, 50, 3)]
    by_index = table.query(
        IndexName="global", KeyConditionExpression=Key("g").eq("g2"), Select="COUNT"
    )
    assert (by_index["Count"], by_index["ScannedCount"]) == (20, 20)
    backward = table.query(
        IndexName="local",
        KeyConditionExpression=Key("pk").eq("page") & Key("g").begins_with("g2"),
        ScanIndexForward=False,
        Limit=1,
        ConsistentRead=True,
    )
    assert backward["Items"][0]["s"] == 59
    segments = [table.scan(Segment=number, TotalSegments=3)["Count"] for number in range(3)]
    assert sum(segments) == table.scan()["Count"] >= 60


def test_boto3_updates_with_conditions_and_return_values(table: Any) -> None:
    update = {
        "Key": {"pk": "counter", "s": 0},
        "UpdateExpression": "SET n = if_not_exists(n, :zero) + :one ADD tags :tag",
        "ExpressionAttributeValues": {":zero": 0, ":one": 1, ":tag": {"t"}},
        "ReturnValues": "ALL_NEW",
    }
    table.update_item(**update)
    after = table.update_item(**update)["Attributes"]
    assert after == {"pk": "counter", "s": 0, "n": 2, "tags": {"t"}}
    with pytest.raises(ClientError) as caught:
        table.delete_item(
            Key={"pk": "counter", "s": 0},
            ConditionExpression=Attr("n").gt(5),
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    response: Any = caught.value.response
    assert response["Item"]["n"] == {"N": "2"}
    deleted = table.delete_item(Key={"pk": "counter", "s": 0}, ReturnValues="ALL_OLD")
    assert deleted["Attributes"] == after


def test_legacy_parameters_mean_the_same_as_expressions(table: Any) -> None:
    table.put_item(Item={"pk": "old", "s": 1, "n": 1, "l": ["a"]})
    updated = table.update_item(
        Key={"pk": "old", "s": 1},
        AttributeUpdates={
            "n": {"Action": "ADD", "Value": 2},
            "l": {"Action": "ADD", "Value": ["b"]},
            "new": {"Value": "v"},
        },
        Expected={"n": {"Value": 1}, "none": {"Exists": False}},
        ReturnValues="ALL_NEW",
    )
    assert updated["Attributes"] == {"pk": "old", "s": 1, "n": 3, "l": ["a", "b"], "new": "v"}
    condition = {"ComparisonOperator": "EQ", "AttributeValueList": ["old"]}
    found = table.query(
        KeyConditions={"pk": condition},
        QueryFilter={
            "n": {"ComparisonOperator": "GT", "AttributeValueList": [2]},
            "x": {"ComparisonOperator": "NOT_NULL"},
        },
        ConditionalOperator="OR",
        AttributesToGet=["n"],
    )
    assert found["Items"] == [{"n": 3}]
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        table.put_item(
            Item={"pk": "old", "s": 1},
            Expected={"n": {"ComparisonOperator": "LT", "AttributeValueList": [3]}},
        )


def test_transactions_are_atomic_and_repeat_by_token(table: Any) -> None:
    client = table.meta.client
    write = {
        "TableName": "music",
        "Key": {"pk": "tx", "s": 1},
        "UpdateExpression": "ADD n :one",
        "ExpressionAttributeValues": {":one": 1},
    }
    for _ in range(2):
        client.transact_write_items(TransactItems=[{"Update": write}], ClientRequestToken="token-1")
    gets = [{"Get": {"TableName": "music", "Key": {"pk": "tx", "s": number}}} for number in (1, 2)]
    read = client.transact_get_items(TransactItems=gets)["Responses"]
    assert read == [{"Item": {"pk": "tx", "s": 1, "n": 1}}, {}]
    check = {
        "TableName": "music",
        "Key": {"pk": "tx", "s": 1},
        "ConditionExpression": "n > :one",
        "ExpressionAttributeValues": {":one": 1},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    put = {"Put": {"TableName": "music", "Item": {"pk": "tx", "s": 2}}}
    with pytest.raises(ClientError) as caught:
        client.transact_write_items(TransactItems=[put, {"ConditionCheck": check}])
    response: Any = caught.value.response
    assert response["Error"]["Message"] == (
        "Transaction cancelled, please refer cancellation reasons for specific reasons"
        " [None, ConditionalCheckFailed]"
    )
    assert response["CancellationReasons"][1]["Item"]["n"] == {"N": "1"}
    assert "Item" not in table.get_item(Key={"pk": "tx", "s": 2})


def test_batches_span_tables(url: str, table: Any) -> None:
    client = table.meta.client
    items = {
        "music": [{"PutRequest": {"Item": {"pk": "b", "s": 1}}}],
        "tab": [{"PutRequest": {"Item": {"pk": "b"}}}],
    }
    written = client.batch_write_item(RequestItems=items, ReturnConsumedCapacity="TOTAL")
    assert written["UnprocessedItems"] == {}
    assert {part["TableName"] for part in written["ConsumedCapacity"]} == {"music", "tab"}
    keys = {"music": {"Keys": [{"pk": "b", "s": 1}, {"pk": "b", "s": 9}]}}
    keys["tab"] = {"Keys": [{"pk": "b"}]}
    assert client.batch_get_item(RequestItems=keys)["Responses"] == {
        "music": [{"pk": "b", "s": 1}],
        "tab": [{"pk": "b"}],
    }


def test_capacity_and_collection_metrics_are_returned_on_request(table: Any) -> None:
    written = table.put_item(
        Item={"pk": "cap", "s": 1, "pad": "x" * 1500},
        ReturnConsumedCapacity="TOTAL",
        ReturnItemCollectionMetrics="SIZE",
    )
    assert written["ConsumedCapacity"] == {"TableName": "music", "CapacityUnits": 2.0}
    assert written["ItemCollectionMetrics"]["ItemCollectionKey"] == {"pk": "cap"}
    read = table.query(
        IndexName="global",
        KeyConditionExpression=Key("g").eq("-"),
        ReturnConsumedCapacity="INDEXES",
    )
    assert read["ConsumedCapacity"]["GlobalSecondaryIndexes"] == {"global": {"CapacityUnits": 0.5}}


def test_tables_are_described_changed_and_deleted(url: str) -> None:
    client = boto3_resource(url).meta.client
    client.create_table(
        TableName="changing",
        KeySchema=HASH,
        AttributeDefinitions=STRING,
        BillingMode="PAY_PER_REQUEST",
        DeletionProtectionEnabled=True,
        Tags=[{"Key": "team", "Value": "a"}],
    )
    client.get_waiter("table_exists").wait(TableName="changing")
    client.put_item(TableName="changing", Item={"pk": "1", "g": "x"})
    index = {
        "IndexName": "added",
        "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "ALL"},
    }
    client.update_table(
        TableName="changing",
        AttributeDefinitions=[{"AttributeName": "g", "AttributeType": "S"}],
        GlobalSecondaryIndexUpdates=[{"Create": index}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    described: Any = None
    for _ in range(1000):
        described = client.describe_table(TableName="changing")["Table"]
        if described["GlobalSecondaryIndexes"][0]["IndexStatus"] == "ACTIVE":
            break
    assert described["StreamSpecification"]["StreamViewType"] == "NEW_IMAGE"
    assert described["ItemCount"] == 1
    found = client.query(
        TableName="changing", IndexName="added", KeyConditionExpression=Key("g").eq("x")
    )
    assert found["Items"] == [{"pk": "1", "g": "x"}]
    arn = described["TableArn"]
    client.tag_resource(ResourceArn=arn, Tags=[{"Key": "cost", "Value": "b"}])
    client.untag_resource(ResourceArn=arn, TagKeys=["team"])
    assert client.list_tags_of_resource(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "b"}]
    ttl = {"AttributeName": "until", "Enabled": True}
    client.update_time_to_live(TableName="changing", TimeToLiveSpecification=ttl)
    status = client.describe_time_to_live(TableName="changing")["TimeToLiveDescription"]
    assert status == {"TimeToLiveStatus": "ENABLED", "AttributeName": "until"}
    with pytest.raises(ClientError, match="protected against deletion"):
        client.delete_table(TableName="changing")
    client.update_table(TableName="changing", DeletionProtectionEnabled=False)
    client.delete_table(TableName="changing")
    client.get_waiter("table_not_exists").wait(TableName="changing")
    assert "changing" not in client.list_tables()["TableNames"]


def at(name: str, rule: str, value: str = "null") -> str:
    return (
        f"1 validation error detected: Value {value} at '{name}' failed to satisfy constraint:"
        f" Member must {rule}"
    )


EMPTY = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
NO_UNITS = (
    "One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both"
    " be specified when BillingMode is PROVISIONED"
)
OVERFLOW = (
    "Number overflow. Attempting to store a number with magnitude larger than supported range"
)
NO_MATCH = "The provided key element does not match the schema"
TAB: dict[str, Any] = {"TableName": "tab"}


@pytest.mark.parametrize(
    ("operation", "body", "message"),
    [
        ("GetItem", TAB, at("key", "not be null")),
        ("GetItem", {**TAB, "Key": {}}, NO_MATCH),
        ("GetItem", {**TAB, "Key": {"pk": {"N": "1"}}}, NO_MATCH),
        ("GetItem", {**TAB, "Key": {"pk": {}}}, EMPTY),
        (
            "GetItem",
            {**TAB, "Key": KEY, "ReturnConsumedCapacity": "x"},
            at("returnConsumedCapacity", "satisfy enum value set: [INDEXES, TOTAL, NONE]", "'x'"),
        ),
        (
            "GetItem",
            {**TAB, "Key": KEY, "ExpressionAttributeNames": {"#a": "b"}},
            "ExpressionAttributeNames can only be specified when using expressions",
        ),
        ("GetItem", {"TableName": "none", "Key": KEY}, "Requested resource not found"),
        ("GetItem", {"TableName": 5, "Key": KEY}, "NUMBER_VALUE cannot be converted to String"),
        ("PutItem", {**TAB, "Item": {}}, INVALID + "Missing the key pk in the item"),
        (
            "PutItem",
            {**TAB, "Item": {"pk": {"N": "1"}}},
            INVALID + "Type mismatch for key pk expected: S actual: N",
        ),
        (
            "PutItem",
            {**TAB, "Item": {**KEY, "n": {"N": "1_0"}}},
            "The parameter cannot be converted to a numeric value: 1_0",
        ),
        (
            "PutItem",
            {**TAB, "Item": {**KEY, "n": {"N": "1e400"}}},
            OVERFLOW,
        ),
        (
            "PutItem",
            {**TAB, "Item": {**KEY, "n": {"SS": ["a", "a"]}}},
            ENVELOPE + INVALID + "Input collection [a, a] contains duplicates.",
        ),
        (
            "PutItem",
            {**TAB, "Item": {**KEY, "n": {"S": "a" * 409_600}}},
            "Item size has exceeded the maximum allowed size",
        ),
        (
            "UpdateItem",
            {**TAB, "Key": KEY, "UpdateExpression": "SET a = b"},
            "The provided expression refers to an attribute that does not exist in the item",
        ),
        (
            "UpdateItem",
            {**TAB, "Key": KEY, "UpdateExpression": "SET a.b = pk"},
            "The document path provided in the update expression is invalid for update",
        ),
        (
            "Query",
            {
                **TAB,
                "KeyConditionExpression": "x = :x",
                "ExpressionAttributeValues": {":x": {"S": "x"}},
            },
            "Query condition missed key schema element: pk",
        ),
        ("Scan", {**TAB, "Limit": 0}, at("limit", "have value greater than or equal to 1", "'0'")),
        (
            "BatchGetItem",
            {"RequestItems": {"tab": {"Keys": [KEY, KEY]}}},
            "Provided list of item keys contains duplicates",
        ),
        (
            "TransactWriteItems",
            {"TransactItems": [{"Delete": {**TAB, "Key": KEY}}, {"Delete": {**TAB, "Key": KEY}}]},
            "Transaction request cannot include multiple operations on one item",
        ),
        (
            "CreateTable",
            {"TableName": "new", "KeySchema": HASH, "AttributeDefinitions": STRING},
            NO_UNITS,
        ),
        (
            "DescribeTable",
            {"TableName": "none"},
            "Requested resource not found: Table: none not found",
        ),
    ],
)
def test_an_error_has_the_wording_of_the_service(
    url: str, operation: str, body: dict[str, Any], message: str
) -> None:
    status, response = call(url, operation, body)
    assert status == 400
    assert response.get("message", response.get("Message")) == message
    assert response["__type"].startswith("com.amazon")


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 10**20),
        st.sampled_from(["", "tab", "music", "a", "1", "ALL_OLD", "COUNT", "YQ=="]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["pk", "S", "N", "SS", "M", "L", "B", "Keys", "Get", "Put", "Item"]),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=6,
)
OPERATIONS = ["GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan", "BatchGetItem"]
OPERATIONS += ["BatchWriteItem", "TransactGetItems", "TransactWriteItems", "DescribeTable"]
OPERATIONS += ["CreateTable", "UpdateTable", "UpdateTimeToLive", "ListTables", "TagResource"]
OPERATIONS += ["ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction", "UntagResource"]
FIELDS = """
TableName Key Item KeySchema AttributeDefinitions UpdateExpression ConditionExpression Expected
KeyConditions KeyConditionExpression FilterExpression ProjectionExpression AttributesToGet Limit
ExpressionAttributeValues ExpressionAttributeNames ReturnValues Select Segment TotalSegments
ExclusiveStartKey RequestItems TransactItems AttributeUpdates QueryFilter IndexName ResourceArn Tags
BillingMode GlobalSecondaryIndexes StreamSpecification TimeToLiveSpecification Statement Statements
TransactStatements Parameters NextToken TagKeys ProvisionedThroughput GlobalSecondaryIndexUpdates
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example("PutItem", {"Expected": {"pk": None}}, True)
@given(
    st.sampled_from(OPERATIONS),
    st.dictionaries(st.sampled_from(FIELDS.split()), VALUES, max_size=5),
    st.booleans(),
)
def test_no_request_body_causes_a_server_error(
    url: str, operation: str, fields: dict[str, Any], with_table: bool
) -> None:
    body = {**fields, "TableName": "tab", "Key": KEY, "Item": KEY} if with_table else fields
    status, response = call(url, operation, body)
    assert status in (200, 400), response


def test_on_other_addresses_requests_must_be_signed_with_the_key(tmp_path: Path) -> None:
    with served_store(tmp_path, secret=Secret("right")) as served:
        assert boto3_resource(served, "right").meta.client.list_tables()["TableNames"] == []
        with pytest.raises(ClientError, match="InvalidSignatureException"):
            boto3_resource(served, "wrong").meta.client.list_tables()
        status, response = call(served, "ListTables", {})
        assert status == 400
        assert response["__type"].endswith("IncompleteSignatureException")


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    with dynamodb_command(tmp_path) as (url, process):
        client = boto3_resource(url).meta.client
        client.create_table(
            TableName="durable",
            KeySchema=HASH,
            AttributeDefinitions=STRING,
            BillingMode="PAY_PER_REQUEST",
        )
        client.put_item(TableName="durable", Item={"pk": "kept"})
        process.kill()
        process.wait(60.0)
    with dynamodb_command(tmp_path) as (url, _):
        found = boto3_resource(url).meta.client.get_item(TableName="durable", Key={"pk": "kept"})
        assert found["Item"] == {"pk": "kept"}


def test_the_example_of_the_page_runs(url: str) -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "dynamodb.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    example = examples[0]  # the other one is for pytest
    variables: dict[str, Any] = {}
    exec(example.replace("http://127.0.0.1:8000", url), variables)  # noqa: S102 - our own page
    assert variables["songs"] == [{"artist": "Nina Simone", "title": "Sinnerman", "plays": 1}]


def test_the_page_lists_every_operation(url: str) -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "dynamodb.md"
    text = page.read_text(encoding="utf-8")
    services = {"DynamoDB": "dynamodb", "DynamoDBStreams": "dynamodbstreams"}
    for target, operation in [
        (f"{prefix}_20120810.{operation}", operation)
        for prefix, service in services.items()
        for operation in RequestModel(service).operations
    ]:
        _, response = call(url, operation, {}, **{"X-Amz-Target": target})
        is_served = not response.get("__type", "").endswith("UnknownOperationException")
        assert (f"`{operation}`" in text) == is_served, operation
