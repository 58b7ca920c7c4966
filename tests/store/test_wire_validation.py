"""Errors and details of responses that clients compare: wording, precedence, capacity, indexes."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.store.served import call, served_store
from tests.store.wire_requests import KEY, ONE, TYPED, Body, index, setup, table

INVALID = "One or more parameter values were invalid: "
ENVELOPE = "1 validation error detected: "
PLAIN: Body = {"TableName": "plain"}
MAP = "java.util.Map<java.lang.String, com.amazonaws.dynamodb.v20120810.AttributeValue>"
SET_N = {"UpdateExpression": "SET n = n + :v"}
UNITS = {"ReadCapacityUnits": 1, "WriteCapacityUnits": 1}
SPLIT = {
    "CapacityUnits": 4.0,
    "TableName": "indexed",
    "Table": {"CapacityUnits": 1.0},
    "GlobalSecondaryIndexes": {"global": {"CapacityUnits": 1.0}, "keys": {"CapacityUnits": 1.0}},
    "LocalSecondaryIndexes": {"local": {"CapacityUnits": 1.0}},
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("validation")) as served:
        for operation, body in setup():
            assert call(served, operation, body)[0] == 200
        provisioned = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": UNITS}
        assert call(served, *table("units", "pk:S", "pk", **provisioned))[0] == 200
        yield served


def put(value: Any) -> Body:
    return {**PLAIN, "Item": {**KEY, "v": value}}


def update(text: str, values: Any = None) -> Body:
    given = {} if values is None else {"ExpressionAttributeValues": values}
    return {**PLAIN, "Key": KEY, "UpdateExpression": text, **given}


def delete(text: str, values: Any) -> Body:
    return {
        **PLAIN,
        "Key": {"pk": {"S": "none"}},
        "ConditionExpression": text,
        "ExpressionAttributeValues": values,
    }


def start_at(key: Any) -> Body:
    return {"TableName": "indexed", "ExclusiveStartKey": key}


@pytest.mark.parametrize(
    ("operation", "body", "message"),
    [
        ("PutItem", {**PLAIN, "Item": []}, f"Unrecognized collection type {MAP}"),
        ("PutItem", put({"BOOL": 1}), "NUMBER_VALUE cannot be converted to Boolean"),
        ("PutItem", put({"BOOL": "x"}), "Unexpected token received from parser"),
        ("PutItem", put({"L": {}}), "Start of structure or map found where not expected"),
        ("PutItem", put({"M": []}), f"Unrecognized collection type {MAP}"),
        (
            "PutItem",
            put([]),
            "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue",
        ),
        ("PutItem", put({"SS": []}), f"{ENVELOPE}{INVALID}An string set  may not be empty"),
        (
            "UpdateItem",
            update("SET v = :v", {":v": {"SS": []}}),
            (
                f"{ENVELOPE}ExpressionAttributeValues contains invalid value:"
                f" {INVALID}An string set"
                "  may not be empty for key :v"
            ),
        ),
        (
            "DeleteItem",
            delete("v = :v", {":v": {}}),
            (
                "ExpressionAttributeValues contains invalid value: Supplied"
                " AttributeValue is empty,"
                " must contain exactly one of the supported datatypes for key :v"
            ),
        ),
        (
            "UpdateItem",
            update("SET a = ((:v))", ONE),
            f"{ENVELOPE}Invalid UpdateExpression: The expression has redundant parentheses;",
        ),
        ("UpdateItem", update(""), "Invalid UpdateExpression: The expression can not be empty;"),
        (
            "UpdateItem",
            {**PLAIN, "Key": KEY, **SET_N, "ExpressionAttributeValues": {":v": {"N": "1e-125"}}},
            "Attempting to store more than 38 significant digits in a Number",
        ),
        (
            "UpdateItem",
            {**PLAIN, "ReturnValues": "X", "ReturnConsumedCapacity": "X"},
            f"{ENVELOPE}Value null at 'key' failed to satisfy constraint: Member must not be null",
        ),
        ("Query", {"TableName": "none"}, "Requested resource not found"),
        (
            "Scan",
            start_at({"pk": {"S": "p"}, "sk": {"S": "1"}}),
            (
                "The provided starting key is invalid: The provided key element does not match the"
                " schema"
            ),
        ),
        (
            "DeleteItem",
            {**PLAIN, "Key": KEY, "Expected": {"n": {"ComparisonOperator": "GT"}}},
            (
                f"{INVALID}Value or AttributeValueList must be used with ComparisonOperator: GT for"
                " Attribute: n"
            ),
        ),
        ("PutItem", put({"M": {"": {"NULL": True}}}), "Empty attribute name"),
        (
            "PutItem",
            put({"M": {"x" * 65536: {"NULL": True}}}),
            "Attribute name is too large, must be less than 65536 bytes",
        ),
        (
            "DeleteItem",
            delete(f"v IN (:v{', :v' * 100})", ONE),
            (
                "Invalid ConditionExpression: The IN operator is provided with too many operands;"
                " number of operands: 102"
            ),
        ),
        (
            "DeleteItem",
            delete(f"v = :{'v' * 255}", {f":{'v' * 255}": {"NULL": True}}),
            (
                "ExpressionAttributeValues contains invalid key: The expression attribute map"
                " contains a key that is too long;"
            ),
        ),
        (
            "DescribeTable",
            {"TableName": "x" * 256},
            "TableName must be at least 3 characters long and at most 255 characters long",
        ),
        (
            "UpdateItem",
            {**PLAIN, "Key": KEY, "Expected": {"n": {"Exists": True}}},
            f"{ENVELOPE}{INVALID}Value must be provided when Exists is true for Attribute: n",
        ),
        (
            "Scan",
            {
                **PLAIN,
                "ScanFilter": {"n": {"ComparisonOperator": "NULL"}},
                "ConditionalOperator": "OR",
            },
            "ConditionalOperator can only be used when Filter or Expected has two or more elements",
        ),
        (
            "BatchWriteItem",
            {"RequestItems": {"plain": [{"PutRequest": {"Item": {"n": TYPED[":n"]}}}]}},
            "The provided key element does not match the schema",
        ),
        (
            *table("new", "pk:S sk:S x:S", "pk", "sk", "x"),
            (
                f"{ENVELOPE}Value '[KeySchemaElement(attributeName=pk, keyType=HASH),"
                " KeySchemaElement(attributeName=sk, keyType=RANGE),"
                " KeySchemaElement(attributeName=x, keyType=RANGE)]' at 'keySchema'"
                " failed to satisfy"
                " constraint: Member must have length less than or equal to 2"
            ),
        ),
        (
            *table("new", "pk:S", "pk", KeySchema=None),
            (
                f"{ENVELOPE}Value null at 'keySchema' failed to satisfy constraint:"
                " Member must not be"
                " null"
            ),
        ),
        (
            *table("new", "pk:S g:S", "pk", GlobalSecondaryIndexes=[index("none", "zz")]),
            (
                f"{INVALID}Some index key attributes are not defined in AttributeDefinitions. Keys:"
                " [zz], AttributeDefinitions: [pk, g]"
            ),
        ),
        (
            *table(
                "new", "pk:S sk:S", "pk", "sk", LocalSecondaryIndexes=[index("lsi", "sk", "pk")]
            ),
            (
                f"{INVALID}Index KeySchema does not have the same leading hash key as"
                " table KeySchema"
                " for index: lsi. index hash key: sk, table hash key: pk"
            ),
        ),
        (
            "DescribeTable",
            {},
            "The parameter 'TableName' is required but was not present in the request",
        ),
        (
            "UpdateTable",
            {"TableName": "units", "ProvisionedThroughput": UNITS},
            (
                "The provisioned throughput for the table will not change. The"
                " requested value equals"
                " the current value. Current ReadCapacityUnits provisioned for the"
                " table: 1. Requested"
                " ReadCapacityUnits: 1. Current WriteCapacityUnits provisioned for the table: 1."
                " Requested WriteCapacityUnits: 1. Refer to the Amazon DynamoDB Developer Guide for"
                " current limits and how to request higher limits."
            ),
        ),
        (
            "UpdateTable",
            {
                "TableName": "indexed",
                "GlobalSecondaryIndexUpdates": [
                    {"Delete": {"IndexName": "global"}},
                    {"Delete": {"IndexName": "keys"}},
                ],
            },
            (
                "Subscriber limit exceeded: Only 1 online index can be created or deleted"
                " simultaneously per table"
            ),
        ),
        (
            "UpdateTable",
            {
                "TableName": "indexed",
                "GlobalSecondaryIndexUpdates": [{"Update": {"IndexName": "global"}}],
            },
            (
                f"{ENVELOPE}Value null at"
                " 'globalSecondaryIndexUpdates.1.member.update.provisionedThroughput'"
                " failed to satisfy"
                " constraint: Member must not be null"
            ),
        ),
    ],
)
def test_the_service_reports_this_mistake(
    url: str, operation: str, body: Body, message: str
) -> None:
    status, response = call(url, operation, body)
    assert (status, response.get("message", response.get("Message"))) == (400, message)


def test_a_wrong_key_cancels_the_transaction_with_a_reason_for_its_item(url: str) -> None:
    items = [
        {"Put": {**PLAIN, "Item": {"pk": {"S": "fine"}}}},
        {"Put": {**PLAIN, "Item": {"pk": {"N": "1"}}}},
        {"Delete": {**PLAIN, "Key": {"x": {"S": "1"}}}},
    ]
    status, response = call(url, "TransactWriteItems", {"TransactItems": items})
    assert (status, response["Message"].rpartition("[")[2]) == (
        400,
        "None, ValidationError, ValidationError]",
    )
    assert [reason.get("Message") for reason in response["CancellationReasons"]] == [
        None,
        f"{INVALID}Type mismatch for key pk expected: S actual: N",
        "The provided key element does not match the schema",
    ]
    assert call(url, "GetItem", {**PLAIN, "Key": {"pk": {"S": "fine"}}}) == (200, {})


def test_the_capacity_of_a_write_is_split_by_index(url: str) -> None:
    numbers = {name: {"N": "1"} for name in ("sk", "h")}
    item = {"pk": {"S": "split"}, "g": {"S": "x"}, **numbers}
    body = {"TableName": "indexed", "Item": item, "ReturnConsumedCapacity": "INDEXES"}
    assert call(url, "PutItem", body)[1]["ConsumedCapacity"] == SPLIT
    unchanged = call(url, "PutItem", body)[1]["ConsumedCapacity"]
    assert unchanged == {
        **{name: SPLIT[name] for name in ("TableName", "Table")},
        "CapacityUnits": 1.0,
    }
    requests = {
        "indexed": [{"DeleteRequest": {"Key": {name: item[name] for name in ("pk", "sk")}}}]
    }
    batch = {"RequestItems": requests, "ReturnConsumedCapacity": "INDEXES"}
    assert call(url, "BatchWriteItem", batch)[1]["ConsumedCapacity"] == [SPLIT]


def test_a_transaction_reports_the_capacity_of_each_table(url: str) -> None:
    numbers = {name: {"N": "1"} for name in ("sk", "h")}
    item = {"pk": {"S": "split"}, "g": {"S": "x"}, **numbers}
    items = [
        {"Put": {"TableName": "indexed", "Item": item}},
        {"Delete": {**PLAIN, "Key": {"pk": {"S": "none"}}}},
    ]
    body = {"TransactItems": items, "ReturnConsumedCapacity": "INDEXES"}
    first, second = call(url, "TransactWriteItems", body)[1]["ConsumedCapacity"]
    assert (first["TableName"], first["CapacityUnits"], first["WriteCapacityUnits"]) == (
        *("indexed", 8.0),
        8.0,
    )
    assert first["LocalSecondaryIndexes"]["local"]["WriteCapacityUnits"] == 2.0
    assert (second["TableName"], second["CapacityUnits"]) == ("plain", 2.0)


@pytest.mark.parametrize("operation", ["Query", "Scan"])
def test_all_attributes_of_a_local_index_come_from_the_table(url: str, operation: str) -> None:
    condition = {
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": {":p": {"S": "p"}, ":v": {"N": "3"}},
    }
    body = {
        "TableName": "indexed",
        "IndexName": "local",
        "Select": "ALL_ATTRIBUTES",
        "FilterExpression": "v > :v",
        **(condition if operation == "Query" else {}),
    }
    body.setdefault("ExpressionAttributeValues", {":v": {"N": "3"}})
    found = call(url, operation, body)[1]["Items"]
    assert [(item["v"]["N"], item["g"]["S"]) for item in found] == [("4", "g0"), ("5", "g1")]


def test_ttl_is_changed_for_the_attribute_that_it_is_enabled_for(url: str) -> None:
    def change(name: str, *, enabled: bool) -> tuple[int, Any]:
        specification = {"AttributeName": name, "Enabled": enabled}
        return call(url, "UpdateTimeToLive", {**PLAIN, "TimeToLiveSpecification": specification})

    assert change("until", enabled=True)[0] == 200
    different = "TimeToLive is active on a different AttributeName: current AttributeName is until"
    assert change("other", enabled=True)[1]["message"] == different
    assert change("other", enabled=False)[1]["message"] == different
    assert change("until", enabled=False)[0] == 200


def test_a_table_has_at_most_50_tags(url: str) -> None:
    arn = call(url, "DescribeTable", PLAIN)[1]["Table"]["TableArn"]
    tags = [{"Key": f"k{number}", "Value": ""} for number in range(51)]
    _, response = call(url, "TagResource", {"ResourceArn": arn, "Tags": tags})
    assert response["message"] == f"{INVALID}Too many tags: tag limit is 50"
    assert call(url, "TagResource", {"ResourceArn": arn, "Tags": tags[:50]}) == (200, {})
    assert (
        "Atleast one Tag"
        in call(url, "TagResource", {"ResourceArn": arn, "Tags": []})[1]["message"]
    )
    assert "Invalid TableArn" in call(url, "ListTagsOfResource", {"ResourceArn": "x"})[1]["message"]


@pytest.mark.parametrize(
    ("arn", "kind"),
    [
        ("table/plain", "ValidationException"),
        ("arn:aws:dynamodb:local:000000000000", "ValidationException"),
        ("arn:aws:dynamodb:local:000000000000:stream/plain", "ValidationException"),
        ("arn:aws:sqs:local:000000000000:plain", "AccessDeniedException"),
        ("arn:aws:dynamodb:local:000000000000:table/absent", "ResourceNotFoundException"),
    ],
)
def test_only_tables_have_tags(url: str, arn: str, kind: str) -> None:
    status, response = call(url, "ListTagsOfResource", {"ResourceArn": arn})
    assert (status, response["__type"].rpartition("#")[2]) == (400, kind)


def test_tags_of_the_service_cannot_be_set(url: str) -> None:
    arn = call(url, "DescribeTable", PLAIN)[1]["Table"]["TableArn"]
    tags = [{"Key": "aws:owner", "Value": "x"}]
    response = call(url, "TagResource", {"ResourceArn": arn, "Tags": tags})[1]
    assert response["message"] == f"{INVALID}Tag keys must not start with aws: Key: aws:owner"


def test_a_null_member_is_absent_and_a_fraction_is_cut_off(url: str) -> None:
    names = call(url, "ListTables", {})[1]["TableNames"]
    assert call(url, "ListTables", {"Limit": None})[1]["TableNames"] == names
    assert call(url, "ListTables", {"Limit": 1.5})[1]["TableNames"] == names[:1]
    throughput = {"ReadCapacityUnits": 2.5, "WriteCapacityUnits": 3}
    update = {"TableName": "units", "ProvisionedThroughput": throughput}
    assert call(url, "UpdateTable", update)[0] == 200
    described = call(url, "DescribeTable", {"TableName": "units"})[1]["Table"]
    assert described["ProvisionedThroughput"]["ReadCapacityUnits"] == 2
