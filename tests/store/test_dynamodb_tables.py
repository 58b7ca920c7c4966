"""Tables on a DynamoDB service.

Each step is awaited, indexes change one at a time, TTL is optional.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tally.store.api import Engine, Put, Query
from tally.store.dynamodb import Credentials, DynamoDBRetryPolicy, open_dynamodb
from tally.store.dynamodb.error_mapping import OperationNotSupported
from tally.store.errors import (
    InvalidRequest,
    StoreUnavailable,
    TableDiffers,
    TableExists,
    TableNotFound,
    Throttled,
)
from tally.store.expressions import F
from tally.store.schema import (
    KEYS_ONLY,
    GlobalIndex,
    Index,
    LocalIndex,
    N,
    S,
    StreamView,
    Table,
    include,
)
from tests.store.emulators import engines
from tests.store.fake_dynamodb import (
    FakeDynamoDB,
    InstantClock,
    fake_dynamodb,
    refusal,
    response,
)

on_emulators = pytest.mark.parametrize(
    "opened", engines("local", "ministack", "dynoxide")[1:], indirect=True
)

BY_CITY = GlobalIndex(
    "by-city", partition=S("city"), sort=N("at"), projection=include("note", "mood")
)
BY_DAY = GlobalIndex("by-day", partition=N("day"), projection=KEYS_ONLY)


def fresh_table(**fields: Any) -> Table:
    return Table(f"tables-{uuid.uuid4()}", S("id"), **{"sort": S("name"), **fields})


def indexes_of(table: Table) -> set[Index]:
    """The indexes and their included attributes, in any order."""
    return {
        replace(
            index, projection=replace(index.projection, names=tuple(sorted(index.projection.names)))
        )
        for index in table.by_name.values()
    }


def assert_same(found: Table, declared: Table) -> None:
    assert (found.name, found.key, found.ttl) == (declared.name, declared.key, declared.ttl)
    assert indexes_of(found) == indexes_of(declared)


@on_emulators
async def test_a_table_is_described_as_it_was_declared(opened: Engine) -> None:
    table = fresh_table(
        indexes=(BY_CITY, BY_DAY, LocalIndex("by-age", N("age"), KEYS_ONLY)), ttl="expires"
    )

    await opened.create_table(table)

    assert_same(await opened.describe_table(table.name), table)
    assert table.name in await opened.list_tables()


@on_emulators
async def test_an_existing_table_is_not_created_again(opened: Engine) -> None:
    table = fresh_table()
    await opened.create_table(table)

    with pytest.raises(TableExists, match=table.name):
        await opened.create_table(table)


@on_emulators
async def test_a_dropped_table_does_not_exist(opened: Engine) -> None:
    table = fresh_table()
    await opened.create_table(table)

    await opened.drop_table(table.name)

    assert table.name not in await opened.list_tables()
    with pytest.raises(TableNotFound, match=table.name):
        await opened.describe_table(table.name)
    with pytest.raises(TableNotFound, match=table.name):
        await opened.drop_table(table.name)
    with pytest.raises(TableNotFound, match=table.name):
        await opened.put(Put(table, {"id": "1", "name": "2"}))


@on_emulators
async def test_ensuring_creates_a_table_once(opened: Engine) -> None:
    table = fresh_table(indexes=(BY_CITY,), ttl="expires")

    await opened.ensure_table(table)
    await opened.put(Put(table, {"id": "1", "name": "2"}))
    await opened.ensure_table(table)

    assert_same(await opened.describe_table(table.name), table)
    assert (await opened.query(Query(table, F("id") == "1", consistent=True))).scanned == 1


@on_emulators
async def test_ensuring_drops_adds_and_replaces_indexes_and_fills_the_new_ones(
    opened: Engine,
) -> None:
    before = fresh_table(indexes=(BY_CITY, BY_DAY))
    after = replace(
        before,
        indexes=(
            GlobalIndex("by-city", partition=S("city")),
            GlobalIndex("by-mood", partition=S("mood")),
            GlobalIndex("by-rank", N("rank")),
        ),
    )
    await opened.create_table(before)
    await opened.put(Put(before, {"id": "1", "name": "2", "city": "Ulm", "mood": "good"}))

    await opened.ensure_table(after)

    assert_same(await opened.describe_table(after.name), after)
    page = await opened.query(Query(after, F("mood") == "good", index="by-mood"))
    assert [item["city"] for item in page.items] == ["Ulm"]


@on_emulators
async def test_ensuring_turns_the_stream_on_and_off(opened: Engine) -> None:
    """Another view is another stream: DynamoDB must turn the old one off first."""
    table = fresh_table()
    await opened.create_table(replace(table, stream="KEYS_ONLY"))
    views: tuple[StreamView | None, ...] = ("KEYS_ONLY", "NEW_IMAGE", None, "OLD_IMAGE")
    for view in views:
        await opened.ensure_table(replace(table, stream=view))
        assert (await opened.describe_table(table.name)).stream == view


async def test_ensuring_sets_moves_and_ends_the_ttl(opened: Engine) -> None:
    table = fresh_table()
    await opened.create_table(table)

    for ttl in ("expires", "until", None):
        await opened.ensure_table(replace(table, ttl=ttl))
        assert (await opened.describe_table(table.name)).ttl == ttl


@on_emulators
@pytest.mark.parametrize(
    "changed",
    [
        {"partition": N("id"), "indexes": ()},
        {"partition": S("other"), "indexes": ()},
        {"sort": None, "indexes": ()},
        {"sort": N("name")},
        {"indexes": ()},
        {"indexes": (LocalIndex("by-age", N("age"), KEYS_ONLY),)},
        {"indexes": (LocalIndex("by-age", S("age")),)},
        {"indexes": (LocalIndex("by-age", N("age")), LocalIndex("by-rank", N("rank")))},
        {"indexes": (GlobalIndex("by-age", S("id"), N("age")),)},
    ],
    ids=str,
)
async def test_a_key_or_local_index_that_differs_cannot_be_ensured(
    opened: Engine, changed: dict[str, Any]
) -> None:
    table = fresh_table(indexes=(LocalIndex("by-age", N("age")),))
    await opened.create_table(table)

    with pytest.raises(TableDiffers, match=table.name):
        await opened.ensure_table(replace(table, **changed))

    assert_same(await opened.describe_table(table.name), table)


@on_emulators
async def test_several_programs_may_ensure_one_table_concurrently(opened: Engine) -> None:
    before = fresh_table(indexes=(BY_CITY,))
    after = replace(before, indexes=(BY_DAY,), ttl="expires")

    await asyncio.gather(*(opened.ensure_table(before) for _ in range(4)))
    await asyncio.gather(*(opened.ensure_table(after) for _ in range(4)))

    assert_same(await opened.describe_table(after.name), after)


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[FakeDynamoDB]:
    clock = InstantClock()
    async with (
        fake_dynamodb() as service,
        open_dynamodb(
            endpoint=service.url,
            credentials=Credentials("tally", "secret"),
            table_prefix="test-",
            retry_policy=DynamoDBRetryPolicy(attempts=3, clock=clock),
        ) as engine,
    ):
        yield FakeDynamoDB(service, clock, engine)


@pytest.fixture
def fake(shared: FakeDynamoDB) -> FakeDynamoDB:
    shared.reset_state()
    return shared


PLAIN = Table("plain", S("id"), indexes=(GlobalIndex("by-city", S("city")),))


def description(status: str = "ACTIVE", **indexes: str) -> dict[str, Any]:
    return {
        "TableName": "test-plain",
        "TableStatus": status,
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
        "AttributeDefinitions": [
            {"AttributeName": "id", "AttributeType": "S"},
            {"AttributeName": "city", "AttributeType": "S"},
        ],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": name.replace("_", "-"),
                "IndexStatus": state,
                "KeySchema": [{"AttributeName": "city", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
            for name, state in indexes.items()
        ],
    }


def described(status: str = "ACTIVE", **indexes: str) -> Any:
    return response({"Table": description(status, **indexes)})


NO_TTL = response({"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}})


async def test_a_table_is_usable_when_it_and_its_indexes_are_active(fake: FakeDynamoDB) -> None:
    fake.service.replies += [
        response({}),
        described("CREATING", by_city="CREATING"),
        described(by_city="CREATING"),
        described(by_city="ACTIVE"),
        described(by_city="ACTIVE"),
        NO_TTL,
    ]

    await fake.engine.create_table(PLAIN)

    operations = [sent.operation for sent in fake.service.sent]
    assert operations == ["CreateTable", *["DescribeTable"] * 4, "DescribeTimeToLive"]
    assert len(fake.clock.pauses) == 2
    assert fake.service.sent[0].body["BillingMode"] == "PAY_PER_REQUEST"


async def test_a_table_that_never_becomes_active_is_an_error(fake: FakeDynamoDB) -> None:
    fake.service.replies.extend([response({}), *[described(by_city="CREATING")] * 1000])

    with pytest.raises(StoreUnavailable, match="plain: the status of index by-city is CREATING"):
        await fake.engine.create_table(PLAIN)

    assert 590 < fake.clock.monotonic() <= 600


async def test_dropping_waits_until_the_table_no_longer_exists(fake: FakeDynamoDB) -> None:
    fake.service.replies += [
        response({}),
        described("DELETING"),
        described("DELETING"),
        refusal("ResourceNotFoundException"),
    ]

    await fake.engine.drop_table("plain")

    assert [sent.operation for sent in fake.service.sent] == [
        "DeleteTable",
        *["DescribeTable"] * 3,
    ]


async def test_a_table_in_use_is_dropped_when_it_is_active_again(fake: FakeDynamoDB) -> None:
    missing = refusal("ResourceNotFoundException")
    fake.service.replies += [
        refusal("ResourceInUseException"),
        described("UPDATING"),
        described(),
        described(),
        response({}),
        missing,
    ]

    await fake.engine.drop_table("plain")

    assert [sent.operation for sent in fake.service.sent].count("DeleteTable") == 2


async def test_ensuring_waits_while_another_program_changes_the_table(fake: FakeDynamoDB) -> None:
    fake.service.replies += [
        described(),
        described(),
        refusal("ResourceInUseException"),
        described("UPDATING"),
        described(by_city="ACTIVE"),
        described(by_city="ACTIVE"),
        NO_TTL,
    ]

    await fake.engine.ensure_table(PLAIN)

    assert [sent.operation for sent in fake.service.sent].count("UpdateTable") == 1


async def test_an_index_is_added_with_its_own_attributes_alone(fake: FakeDynamoDB) -> None:
    done = described(by_city="ACTIVE")
    fake.service.replies += [described(), described(), response({}), done, done, NO_TTL]

    await fake.engine.ensure_table(PLAIN)

    update = next(sent.body for sent in fake.service.sent if sent.operation == "UpdateTable")
    assert update["AttributeDefinitions"] == [{"AttributeName": "city", "AttributeType": "S"}]
    assert [change["Create"]["IndexName"] for change in update["GlobalSecondaryIndexUpdates"]] == [
        "by-city"
    ]


async def test_a_table_that_other_programs_keep_changing_is_an_error(fake: FakeDynamoDB) -> None:
    fake.service.replies.extend(
        [
            described(),
            described(),
            *[refusal("ResourceInUseException"), described(), described()] * 100,
        ]
    )

    with pytest.raises(StoreUnavailable, match="other programs keep changing"):
        await fake.engine.ensure_table(PLAIN)


async def test_a_service_without_ttl_is_supported(fake: FakeDynamoDB) -> None:
    done = described(by_city="ACTIVE")
    unknown = refusal("UnknownOperationException", "An unknown operation was requested.")
    fake.service.replies += [response({}), done, done, unknown, unknown, done, unknown]

    await fake.engine.create_table(replace(PLAIN, ttl="expires"))

    assert (await fake.engine.describe_table("plain")).ttl is None


async def test_a_ttl_that_was_changed_within_the_hour_is_unavailable(fake: FakeDynamoDB) -> None:
    done = described(by_city="ACTIVE")
    enabled = response(
        {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "until"}}
    )
    message = "Time to live has been modified multiple times within a fixed interval"
    fake.service.replies += [
        done,
        done,
        enabled,
        response({}),
        refusal("ValidationException", message),
        NO_TTL,
    ]

    with pytest.raises(StoreUnavailable, match="once per hour"):
        await fake.engine.ensure_table(replace(PLAIN, ttl="expires"))


async def test_a_ttl_that_another_program_set_concurrently_is_accepted(fake: FakeDynamoDB) -> None:
    done = described(by_city="ACTIVE")
    enabled = response(
        {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLING", "AttributeName": "expires"}}
    )
    fake.service.replies += [
        done,
        done,
        NO_TTL,
        refusal("ValidationException", "TimeToLive is already enabled"),
        enabled,
    ]

    await fake.engine.ensure_table(replace(PLAIN, ttl="expires"))

    assert [sent.operation for sent in fake.service.sent].count("UpdateTimeToLive") == 1


async def test_an_index_that_another_program_created_concurrently_is_accepted(
    fake: FakeDynamoDB,
) -> None:
    done = described(by_city="ACTIVE")
    taken = refusal("ValidationException", "Attempting to create an index which already exists")
    fake.service.replies += [described(), described(), taken, done, done, NO_TTL]

    await fake.engine.ensure_table(PLAIN)

    assert [sent.operation for sent in fake.service.sent].count("UpdateTable") == 1


async def test_an_index_that_the_service_rejects_is_an_error(fake: FakeDynamoDB) -> None:
    fake.service.replies += [
        described(),
        described(),
        refusal("ValidationException", "No such luck"),
        described(),
        described(),
    ]

    with pytest.raises(InvalidRequest, match="No such luck"):
        await fake.engine.ensure_table(PLAIN)


async def test_too_many_concurrent_changes_are_throttled(fake: FakeDynamoDB) -> None:
    fake.service.replies.extend(
        [refusal("LimitExceededException", "Subscriber limit exceeded")] * 3
    )

    with pytest.raises(Throttled, match="CreateTable on test-plain"):
        await fake.engine.create_table(PLAIN)


async def test_table_names_are_read_from_all_pages_and_filtered_by_prefix(
    fake: FakeDynamoDB,
) -> None:
    fake.service.replies += [
        response({"TableNames": ["aaa", "test-zebra"], "LastEvaluatedTableName": "test-zebra"}),
        response({"TableNames": ["test-apple", "tester"]}),
    ]

    assert await fake.engine.list_tables() == ["apple", "zebra"]
    assert fake.service.sent[1].body == {"ExclusiveStartTableName": "test-zebra"}


async def test_a_service_without_operations_on_streams_gets_a_clear_error(
    fake: FakeDynamoDB,
) -> None:
    description = {"LatestStreamArn": "arn", "StreamSpecification": {"StreamEnabled": True}}
    fake.service.replies += [response({"Table": description}), refusal("UnknownOperationException")]
    with pytest.raises(OperationNotSupported, match="DescribeStream on table plain"):
        await anext(fake.engine.changes(PLAIN, None))
