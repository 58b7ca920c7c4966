"""The served store has DynamoDB Streams: for boto3, and for Tally's own reader of streams."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tally.kit.clock import ManualClock, SystemClock
from tally.store.api import Delete, Put
from tally.store.sqlite import open_sqlite
from tally.store.wire.service import ServedStore
from tests.store.emulators import served_engine
from tests.store.served import boto3_resource, served_store
from tests.store.streams import next_changes, streamed

VIEW = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
TABLE = streamed(name="served-stream")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("wire-streams")) as served:
        yield served


def streams_client(url: str) -> Any:
    return boto3.client(
        "dynamodbstreams",
        endpoint_url=url,
        region_name="local",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}),
    )


def create(url: str, name: str) -> Any:
    return boto3_resource(url).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=VIEW,
    )


def test_boto3_reads_records_from_every_kind_of_iterator(url: str) -> None:
    table, client = create(url, "changing"), streams_client(url)
    arn = table.latest_stream_arn
    table.put_item(Item={"pk": "a", "n": 1})
    table.put_item(Item={"pk": "a", "n": 2})
    [listed] = client.list_streams(TableName="changing")["Streams"]
    assert listed["StreamArn"] == arn
    described = client.describe_stream(StreamArn=arn)["StreamDescription"]
    assert (described["StreamStatus"], described["TableName"]) == ("ENABLED", "changing")
    [shard] = described["Shards"]
    place = {"StreamArn": arn, "ShardId": shard["ShardId"]}

    def read(kind: str, **more: Any) -> list[Any]:
        found = client.get_shard_iterator(**place, ShardIteratorType=kind, **more)
        records: list[Any] = []
        iterator = found["ShardIterator"]
        while page := client.get_records(ShardIterator=iterator, Limit=1):
            iterator = page["NextShardIterator"]
            if not page["Records"]:
                return records
            records += page["Records"]
        raise AssertionError

    latest = client.get_shard_iterator(**place, ShardIteratorType="LATEST")["ShardIterator"]
    table.delete_item(Key={"pk": "a"})
    records = read("TRIM_HORIZON")
    assert [record["eventName"] for record in records] == ["INSERT", "MODIFY", "REMOVE"]
    first, second = {"pk": {"S": "a"}, "n": {"N": "1"}}, {"pk": {"S": "a"}, "n": {"N": "2"}}
    assert [
        (record["dynamodb"].get("OldImage"), record["dynamodb"].get("NewImage"))
        for record in records
    ] == [(None, first), (first, second), (second, None)]
    number = records[1]["dynamodb"]["SequenceNumber"]
    assert read("AT_SEQUENCE_NUMBER", SequenceNumber=number) == records[1:]
    assert read("AFTER_SEQUENCE_NUMBER", SequenceNumber=number) == records[2:]
    assert client.get_records(ShardIterator=latest)["Records"] == records[2:]
    first_number = shard["SequenceNumberRange"]["StartingSequenceNumber"]
    assert read("AT_SEQUENCE_NUMBER", SequenceNumber=first_number) == records
    assert read("AFTER_SEQUENCE_NUMBER", SequenceNumber=first_number) == records


def test_an_unknown_stream_or_shard_is_not_found(url: str) -> None:
    table, client = create(url, "switched"), streams_client(url)
    arn = table.latest_stream_arn
    shard = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    request = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    for bad in (
        {**request, "ShardId": "shardId-" + "9" * 21},
        {**request, "StreamArn": arn + "0"},
    ):
        with pytest.raises(ClientError, match="ResourceNotFoundException"):
            client.get_shard_iterator(**bad)
    table.delete()
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.get_shard_iterator(**request)


def test_a_disabled_stream_can_be_read_to_its_end(url: str) -> None:
    table, client = create(url, "disabled"), streams_client(url)
    arn = table.latest_stream_arn
    table.put_item(Item={"pk": "a"})
    table.put_item(Item={"pk": "b"})
    shard = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    place = {"StreamArn": arn, "ShardId": shard}
    before = client.get_shard_iterator(**place, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    table.update(StreamSpecification={"StreamEnabled": False})
    table.put_item(Item={"pk": "unrecorded"})
    view = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    table.update(StreamSpecification=view)
    table.put_item(Item={"pk": "of the next stream"})
    described = client.describe_stream(StreamArn=arn)["StreamDescription"]
    assert (described["StreamStatus"], described["StreamViewType"]) == (
        "DISABLED",
        "NEW_AND_OLD_IMAGES",
    )
    page = client.get_records(ShardIterator=before, Limit=1)
    rest = client.get_records(ShardIterator=page["NextShardIterator"])
    records = [record["dynamodb"] for record in (*page["Records"], *rest["Records"])]
    assert [record["NewImage"]["pk"]["S"] for record in records] == ["a", "b"]
    assert "NextShardIterator" not in rest
    ending = described["Shards"][0]["SequenceNumberRange"]["EndingSequenceNumber"]
    assert ending > records[1]["SequenceNumber"]
    number = records[0]["SequenceNumber"]
    after = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
    for kind, count in ((after, 1), ({"ShardIteratorType": "LATEST"}, 0)):
        found = client.get_shard_iterator(**place, **kind)["ShardIterator"]
        assert len(client.get_records(ShardIterator=found)["Records"]) == count
    listed = [
        stream["StreamArn"] for stream in client.list_streams(TableName="disabled")["Streams"]
    ]
    assert listed == [arn, boto3_resource(url).Table("disabled").latest_stream_arn]


def test_streams_are_listed_in_pages_without_a_gap(url: str) -> None:
    """The order of their ARNs is not that of the tables' names."""
    for name in ("paged", "paged-1", "paged.2"):
        create(url, name)
    client, names = streams_client(url), []
    start: dict[str, str] = {}
    while True:
        page = client.list_streams(Limit=1, **start)
        names += [stream["TableName"] for stream in page["Streams"]]
        if "LastEvaluatedStreamArn" not in page:
            break
        start = {"ExclusiveStartStreamArn": page["LastEvaluatedStreamArn"]}
    assert {"paged", "paged-1", "paged.2"} <= set(names)


async def test_a_disabled_stream_is_forgotten_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_sqlite(tmp_path) as engine:
        store = ServedStore(engine, clock)

        async def call(target: str, **body: Any) -> Any:
            return json.loads((await store.respond(target, json.dumps(body).encode()))[1])

        await engine.create_table(TABLE)
        update = {"TableName": TABLE.name, "StreamSpecification": {"StreamEnabled": False}}
        await call("DynamoDB_20120810.UpdateTable", **update)
        list_streams = "DynamoDBStreams_20120810.ListStreams"
        await clock.advance(23 * 3600.0)
        assert len((await call(list_streams))["Streams"]) == 1
        await clock.advance(2 * 3600.0)
        assert (await call(list_streams))["Streams"] == []
        await store.close()


def test_bad_iterators_and_numbers_are_rejected(url: str) -> None:
    arn = create(url, "strict").latest_stream_arn
    client = streams_client(url)
    shard = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    request = {"StreamArn": arn, "ShardId": shard}
    kinds: list[dict[str, Any]] = [
        {"ShardIteratorType": "AT_SEQUENCE_NUMBER"},
        {"ShardIteratorType": "LATEST", "SequenceNumber": "1" * 21},
        {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "SequenceNumber": "9" * 40},
        {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "x" * 21},
        {"ShardIteratorType": "AT_TIMESTAMP"},
    ]
    for kind in kinds:
        with pytest.raises(ClientError, match="ValidationException"):
            client.get_shard_iterator(**request, **kind)
    for iterator in ("x", "|1|2", f"{arn}|²|x"):
        with pytest.raises(ClientError, match="ValidationException"):
            client.get_records(ShardIterator=iterator)
    with pytest.raises(ClientError, match="ExpiredIteratorException"):
        client.get_records(ShardIterator=f"{arn}|1|TRIM_HORIZON")
    latest = client.get_shard_iterator(**request, ShardIteratorType="LATEST")["ShardIterator"]
    with pytest.raises(ClientError, match="less than or equal to 1000"):
        client.get_records(ShardIterator=latest, Limit=1001)


async def test_trimmed_records_are_reported(tmp_path: Path) -> None:
    now = [1_000_000.0]
    async with open_sqlite(tmp_path, clock=lambda: now[0], stream_retention=10.0) as engine:
        store = ServedStore(engine, SystemClock())

        async def call(operation: str, **body: Any) -> Any:
            target = f"DynamoDBStreams_20120810.{operation}"
            return json.loads((await store.respond(target, json.dumps(body).encode()))[1])

        await engine.create_table(TABLE)
        await engine.put(Put(TABLE, {"id": "a", "at": "1"}))
        [stream] = (await call("ListStreams"))["Streams"]
        arn = stream["StreamArn"]
        described = (await call("DescribeStream", StreamArn=arn))["StreamDescription"]
        place = {"StreamArn": arn, "ShardId": described["Shards"][0]["ShardId"]}
        oldest = {**place, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = (await call("GetShardIterator", **oldest))["ShardIterator"]
        page = await call("GetRecords", ShardIterator=iterator)
        number = page["Records"][0]["dynamodb"]["SequenceNumber"]
        await engine.delete(Delete(TABLE, {"id": "a", "at": "1"}))
        now[0] += 100.0
        assert await engine.trim_changes()
        after = {**place, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
        for refused in (
            await call("GetShardIterator", **after),
            await call("GetRecords", ShardIterator=page["NextShardIterator"]),
        ):
            assert refused["__type"].endswith("#TrimmedDataAccessException")
        assert (await call("GetRecords", ShardIterator=iterator))["Records"] == []


async def test_tallys_own_reader_follows_a_served_stream(tmp_path: Path) -> None:
    """The whole suite of streams runs on the served store in `make judge`."""
    async with served_engine(tmp_path) as engine:
        await engine.create_table(TABLE)
        items = [{"id": "ann", "at": f"{number}", "n": number} for number in range(3)]
        for item in items:
            await engine.put(Put(TABLE, item))
        changes = await next_changes(engine, TABLE, 3)
        assert [change.new for change in changes] == items
        assert await next_changes(engine, TABLE, 2, changes[0].position) == changes[1:]
        end = await engine.stream_position(TABLE)
        await engine.put(Put(TABLE, {**items[0], "n": 9}))
        [change] = await next_changes(engine, TABLE, 1, end)
        assert (change.kind, change.old, change.new) == ("MODIFY", items[0], {**items[0], "n": 9})
