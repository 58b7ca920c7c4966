"""Descriptions of tables: settings that have no effect here, and how they are changed."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.store.served import call, served_store
from tests.store.wire_requests import Body, definitions, index, table

INVALID = "One or more parameter values were invalid: "
ON_DEMAND = {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000, "Status": "ACTIVE"}
STREAM = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}


def units(read: int, write: int) -> Body:
    return {"ReadCapacityUnits": read, "WriteCapacityUnits": write}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("tables")) as served:
        yield served


def create(url: str, name: str, **fields: Any) -> Body:
    """Create a table with a global index, and describe it."""
    fields.setdefault("GlobalSecondaryIndexes", [index("global", "g")])
    assert call(url, *table(name, "pk:S g:S", "pk", **fields))[0] == 200
    return describe(url, name)


def describe(url: str, name: str) -> Body:
    described: Body = call(url, "DescribeTable", {"TableName": name})[1]["Table"]
    return described


def change(url: str, name: str, **fields: Any) -> str:
    """Change a table; return the message if it fails."""
    _, response = call(url, "UpdateTable", {"TableName": name, **fields})
    return str(response.get("message", ""))


def change_index(url: str, name: str, **fields: Any) -> str:
    update = {"Update": {"IndexName": "global", **fields}}
    return change(url, name, GlobalSecondaryIndexUpdates=[update])


def test_the_warm_throughput_is_described_and_only_increases(url: str) -> None:
    described = create(url, "warm")
    assert described["WarmThroughput"] == ON_DEMAND
    assert described["GlobalSecondaryIndexes"][0]["WarmThroughput"] == ON_DEMAND
    assert change(url, "warm", WarmThroughput={"ReadUnitsPerSecond": 13_000}) == ""
    assert change_index(url, "warm", WarmThroughput={"WriteUnitsPerSecond": 5_000}) == ""
    described = describe(url, "warm")
    assert described["WarmThroughput"] == {**ON_DEMAND, "ReadUnitsPerSecond": 13_000}
    changed = {**ON_DEMAND, "WriteUnitsPerSecond": 5_000}
    assert described["GlobalSecondaryIndexes"][0]["WarmThroughput"] == changed
    assert change(url, "warm", WarmThroughput={"ReadUnitsPerSecond": 12_999}) == (
        f"{INVALID}Requested ReadUnitsPerSecond for WarmThroughput for table is lower than current"
        " WarmThroughput, decreasing WarmThroughput is not supported"
    )


def test_the_limits_of_an_on_demand_table_are_described(url: str) -> None:
    described = create(url, "limited", OnDemandThroughput={"MaxReadRequestUnits": 10})
    limits = {"MaxReadRequestUnits": 10, "MaxWriteRequestUnits": -1}
    assert described["OnDemandThroughput"] == limits
    assert change(url, "limited", OnDemandThroughput={"MaxWriteRequestUnits": 7}) == ""
    assert change_index(url, "limited", OnDemandThroughput={"MaxReadRequestUnits": 3}) == ""
    described = describe(url, "limited")
    assert described["OnDemandThroughput"] == {**limits, "MaxWriteRequestUnits": 7}
    (found,) = described["GlobalSecondaryIndexes"]
    assert found["OnDemandThroughput"] == {**limits, "MaxReadRequestUnits": 3}


def test_encryption_with_a_managed_key_is_described(url: str) -> None:
    assert "SSEDescription" not in create(url, "plain-text", SSESpecification={"Enabled": False})
    assert change(url, "plain-text", SSESpecification={"Enabled": True}) == ""
    described = describe(url, "plain-text")["SSEDescription"]
    assert (described["Status"], described["SSEType"]) == ("ENABLED", "KMS")
    assert described["KMSMasterKeyArn"].startswith("arn:aws:kms:")


def test_a_billing_mode_is_changed_with_the_units_that_it_needs(url: str) -> None:
    described = create(url, "billed")
    since = described["BillingModeSummary"]["LastUpdateToPayPerRequestDateTime"]
    assert since == pytest.approx(described["CreationDateTime"], abs=1)
    assert change(url, "billed", BillingMode="PROVISIONED") == (
        f"{INVALID}ProvisionedThroughput must be specified when BillingMode is PROVISIONED"
    )
    blocked = change_index(url, "billed", ProvisionedThroughput=units(1, 1))
    assert blocked.endswith("Action Blocked: IndexUpdate")
    provisioned = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": units(2, 3)}
    assert change(url, "billed", **provisioned) == ""
    described = describe(url, "billed")
    assert described["BillingModeSummary"] == {
        "BillingMode": "PROVISIONED",
        "LastUpdateToPayPerRequestDateTime": since,
    }
    assert described["WarmThroughput"]["WriteUnitsPerSecond"] == 3
    assert change_index(url, "billed", ProvisionedThroughput=units(4, 4)) == ""


def test_the_name_of_a_disabled_stream_remains_in_the_description(url: str) -> None:
    enabled = create(url, "streamed", StreamSpecification=STREAM)
    assert change(url, "streamed", StreamSpecification={"StreamEnabled": False}) == ""
    described = describe(url, "streamed")
    assert described["LatestStreamArn"] == enabled["LatestStreamArn"]
    assert "StreamSpecification" not in described
    assert change(url, "streamed", StreamSpecification=STREAM) == ""
    assert describe(url, "streamed")["LatestStreamLabel"] > enabled["LatestStreamLabel"]


def test_the_limits_of_an_on_demand_table_are_positive_or_none(url: str) -> None:
    create(url, "bounded")
    for units in (0, -2):
        assert change(url, "bounded", OnDemandThroughput={"MaxReadRequestUnits": units}) == (
            f"{INVALID}Requested MaxReadRequestUnits for OnDemandThroughput for table is outside of"
            " valid range"
        )
    assert change(url, "bounded", OnDemandThroughput={"MaxReadRequestUnits": -1}) == ""


def test_an_index_that_is_deleted_is_described_once_more(url: str) -> None:
    create(url, "deleting")
    update = {"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "global"}}]}
    _, response = call(url, "UpdateTable", {"TableName": "deleting", **update})
    (described,) = response["TableDescription"]["GlobalSecondaryIndexes"]
    assert (described["IndexName"], described["IndexStatus"]) == ("global", "DELETING")
    assert "GlobalSecondaryIndexes" not in describe(url, "deleting")


def test_a_local_index_cannot_be_deleted(url: str) -> None:
    local = {"LocalSecondaryIndexes": [index("local", "pk", "h")]}
    assert call(url, *table("with-local", "pk:S sk:S h:S", "pk", "sk", **local))[0] == 200
    update = {"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "local"}}]}
    status, response = call(url, "UpdateTable", {"TableName": "with-local", **update})
    assert status == 400
    assert response["__type"].endswith("#ResourceNotFoundException")
    assert len(describe(url, "with-local")["LocalSecondaryIndexes"]) == 1


def test_a_new_index_cannot_change_the_type_of_a_key(url: str) -> None:
    create(url, "typed")
    for types in ("pk:N x:S", "g:N x:S"):
        created = {"GlobalSecondaryIndexUpdates": [{"Create": index("other", "x")}]}
        message = change(url, "typed", AttributeDefinitions=definitions(types), **created)
        assert message.startswith(f"{INVALID}The type of a key attribute cannot change: ")
    assert len(describe(url, "typed")["GlobalSecondaryIndexes"]) == 1


def test_an_item_expires_within_seconds_not_at_the_end_of_the_hour(url: str) -> None:
    create(url, "expiring")
    specification = {"AttributeName": "until", "Enabled": True}
    enabled = {"TableName": "expiring", "TimeToLiveSpecification": specification}
    assert call(url, "UpdateTimeToLive", enabled)[0] == 200
    now = int(time.time())
    for name, until in (("over", now - 1), ("soon", now + 1), ("later", now + 9 * 3600)):
        item = {"pk": {"S": name}, "until": {"N": str(until)}}
        assert call(url, "PutItem", {"TableName": "expiring", "Item": item})[0] == 200
    names = {"over", "soon", "later"}
    while len(names) > 1:
        assert time.time() < now + 60
        found = call(url, "Scan", {"TableName": "expiring"})[1]["Items"]
        names = {item["pk"]["S"] for item in found}
    assert names == {"later"}


def violations(url: str, operation: str, body: Body) -> list[str]:
    """Return where a request violates the model, in order."""
    message = call(url, operation, body)[1]["message"]
    return [part.split("'")[-2] for part in message.split(" failed to satisfy")[:-1]]


def test_violations_are_reported_in_the_order_of_the_service(url: str) -> None:
    created = {"TableName": "new", "ProvisionedThroughput": {}, "LocalSecondaryIndexes": [{}]}
    assert violations(url, "CreateTable", {**created, "GlobalSecondaryIndexes": [{}]}) == [
        *("provisionedThroughput.writeCapacityUnits", "provisionedThroughput.readCapacityUnits"),
        *("keySchema", "attributeDefinitions"),
        *(f"localSecondaryIndexes.1.member.{name}" for name in ("indexName", "keySchema")),
        "localSecondaryIndexes.1.member.projection",
        *(f"globalSecondaryIndexes.1.member.{name}" for name in ("indexName", "keySchema")),
        "globalSecondaryIndexes.1.member.projection",
    ]
    assert violations(url, "GetItem", {}) == ["key", "tableName"]
    listed = violations(url, "ListTables", {"Limit": 0, "ExclusiveStartTableName": "a;"})
    assert listed == ["exclusiveStartTableName", "exclusiveStartTableName", "limit"]
    missing = call(url, "UpdateTable", {})[1]["message"]
    assert missing == "The parameter 'TableName' is required but was not present in the request"
