"""Descriptions of tables: settings that have no effect here, and how they are changed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.store.served import call, served_store
from tests.store.wire_requests import Body, index, table

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
