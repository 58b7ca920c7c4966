"""The declared tables are created on an engine, by CloudFormation and by Terraform."""

import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import get_session
from hypothesis import given

from tally.kit.clock import SystemClock
from tally.store.descriptions import parse_description
from tally.store.dynamodb import open_dynamodb
from tally.store.errors import InvalidSchema, TableDiffers
from tally.store.lockfile import normalize
from tally.store.provision import cloudformation, create_tables, terraform
from tally.store.schema import (
    KEYS_ONLY,
    Attribute,
    GlobalIndex,
    LocalIndex,
    N,
    S,
    Table,
    include,
    index_key,
)
from tally.store.sqlite import SqliteEngine, open_sqlite
from tests.store.emulators import MADE_UP, _server, _Start
from tests.store.example import CATALOGUE, FIXTURES, FOLLOWS
from tests.store.schemas import schemas, tables
from tests.store.tables import PLAYERS


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteEngine]:
    async with open_sqlite(tmp_path_factory.mktemp("provision")) as engine:
        yield engine


async def test_tables_are_created_once_and_then_updated(engine: SqliteEngine) -> None:
    declared = CATALOGUE.tables()
    assert {made.status for made in await create_tables(engine, declared)} == {"created"}
    assert await engine.list_tables() == [table.name for table in declared]
    assert {made.status for made in await create_tables(engine, declared)} == {"unchanged"}

    grown = replace(FOLLOWS, indexes=(GlobalIndex("userId-index", S("userId")),), ttl=None)
    (outcome,) = await create_tables(engine, [grown])
    assert (outcome.table, outcome.status) == ("example-follows", "updated")
    assert (await engine.describe_table("example-follows")).by_name.keys() == {"userId-index"}


async def test_attributes_and_versions_do_not_change_a_stored_table(engine: SqliteEngine) -> None:
    await create_tables(engine, [FIXTURES])
    other = replace(FIXTURES, version="2.0.0", attributes=(Attribute("more", "S"),))
    assert [made.status for made in await create_tables(engine, [other])] == ["unchanged"]


async def test_a_table_with_another_key_is_rejected(engine: SqliteEngine) -> None:
    await create_tables(engine, [FOLLOWS])
    with pytest.raises(TableDiffers, match="example-follows"):
        await create_tables(engine, [replace(FOLLOWS, sort=N("userId"))])


def resources(template: str) -> list[dict[str, Any]]:
    return list(json.loads(template)["Resources"].values())


def labels_differ(schema: list[Table]) -> bool:
    labels = {re.sub(r"[^A-Za-z0-9]", "", table.name).lower() for table in schema}
    return len(labels) == len(schema)


@given(schemas().filter(labels_differ))
def test_a_template_contains_keys_indexes_ttl_and_stream(schema: list[Table]) -> None:
    """Parsed back, the tables equal the declared ones."""
    found = []
    for resource in resources(cloudformation(schema, prefix="prod-")):
        properties = resource["Properties"]
        ttl = properties.get("TimeToLiveSpecification", {}).get("AttributeName")
        if "StreamSpecification" in properties:
            assert "StreamEnabled" not in properties["StreamSpecification"]
            properties["StreamSpecification"]["StreamEnabled"] = True
        found.append(
            parse_description(properties, properties["TableName"].removeprefix("prod-"), ttl)
        )
    expected = [replace(normalize(table), attributes=(), version="1.0.0") for table in schema]
    assert found == sorted(expected, key=lambda table: table.name)


def test_a_template_enables_recovery_and_deletion_protection() -> None:
    for resource in resources(cloudformation(CATALOGUE.tables())):
        properties = resource["Properties"]
        assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["PointInTimeRecoverySpecification"] == {
            "PointInTimeRecoveryEnabled": True
        }
        assert properties["DeletionProtectionEnabled"] is True


@given(tables())
def test_the_output_does_not_depend_on_the_order_of_tables(table: Table) -> None:
    others = [table, PLAYERS]
    assert cloudformation(others) == cloudformation(
        [normalize(other) for other in reversed(others)]
    )
    assert terraform(others) == terraform([normalize(other) for other in reversed(others)])


def test_two_tables_that_would_share_a_label_are_rejected() -> None:
    """A numbered label would change when tables are added or removed, and recreate the table."""
    twins = [Table("match-follows", S("id")), Table("match_follows", S("id"))]
    for write in (cloudformation, terraform):
        with pytest.raises(
            InvalidSchema, match="match-follows and match_follows would share the label"
        ):
            write(twins)


def test_a_label_depends_on_the_name_alone() -> None:
    names = ["match-follows", "DisplayStateCache", "2026.scores", "-a-"]
    template = json.loads(cloudformation([Table(name, S("id")) for name in names]))
    assert set(template["Resources"]) == {
        "MatchFollowsTable",
        "DisplayStateCacheTable",
        "2026ScoresTable",
        "ATable",
    }
    text = terraform([Table(name, S("id")) for name in names])
    found = re.findall(r'resource "aws_dynamodb_table" "(.*)" {', text)
    assert set(found) == {"match_follows", "DisplayStateCache", "table_2026_scores", "table__a_"}


TERRAFORM = """\
resource "aws_dynamodb_table" "example" {
  name                        = "prod-example"
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "id"
  range_key                   = "at"
  deletion_protection_enabled = true
  stream_enabled              = true
  stream_view_type            = "KEYS_ONLY"

  attribute {
    name = "id"
    type = "S"
  }

  attribute {
    name = "at"
    type = "N"
  }

  attribute {
    name = "owner"
    type = "S"
  }

  global_secondary_index {
    name               = "by-owner"
    hash_key           = "owner"
    range_key          = "at"
    projection_type    = "INCLUDE"
    non_key_attributes = ["note", "tags"]
  }

  local_secondary_index {
    name            = "local"
    range_key       = "owner"
    projection_type = "KEYS_ONLY"
  }

  ttl {
    attribute_name = "until"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}
"""


def test_terraform_gets_one_resource_for_each_table() -> None:
    """Formatted like `terraform fmt`."""
    table = Table(
        "example",
        partition=S("id"),
        sort=N("at"),
        indexes=(
            GlobalIndex("by-owner", S("owner"), N("at"), include("tags", "note")),
            LocalIndex("local", sort=S("owner"), projection=KEYS_ONLY),
        ),
        ttl="until",
        stream="KEYS_ONLY",
    )
    assert terraform([table], prefix="prod-") == TERRAFORM
    assert terraform([]) == ""


STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\U([0-9a-f]{8})|\\(.)|(\$|%)\3(?={)", re.DOTALL)


def read_string(text: str) -> str:
    """Parse a quoted Terraform string; raise an error where a template would start."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$\{|(?<!%)(?:%%)*%\{", text)

    def plain(found: re.Match[str]) -> str:
        code, letter, sign = found.groups()
        return (
            chr(int(code, 16))
            if code
            else {"n": "\n", "r": "\r", "t": "\t"}.get(letter, letter)
            if letter
            else sign
        )

    return ESCAPE.sub(plain, text)


@given(schemas().filter(labels_differ))
def test_terraform_reads_every_name_unchanged(schema: list[Table]) -> None:
    """Including quotes, line breaks, emoji and template markers."""
    text = terraform(schema)
    assert text.isprintable() or set(text) - {"\n"} == {
        letter for letter in text if letter.isprintable()
    }
    strings = {read_string(found) for found in STRING.findall(text)}
    for table in schema:
        parts = [
            *table.key,
            *(part for index in table.by_name.values() for part in index_key(index)),
        ]
        included = [name for index in table.by_name.values() for name in index.projection.names]
        assert {table.name, *table.by_name, *(part.name for part in parts), *included} <= strings
        assert table.ttl is None or table.ttl in strings


@contextlib.contextmanager
def cloudformation_service() -> Iterator[str]:
    """Run a ministack with CloudFormation and DynamoDB; yields its URL."""
    with tempfile.TemporaryDirectory(prefix="tally-cloudformation-") as folder:
        environment = {
            "BIND_HOST": "127.0.0.1",
            "SERVICES": "dynamodb,cloudformation",
            "SFTP_ENABLED": "0",
            "IOT_MTLS_ENABLED": "0",
            "LOG_LEVEL": "ERROR",
            "TMPDIR": folder,
            "DOCKER_HOST": f"unix://{folder}/no-docker.sock",
        }

        def start(port: int) -> _Start:
            return _Start(
                [sys.executable, "-m", "ministack"], {**environment, "GATEWAY_PORT": str(port)}
            )

        with _server(start, Path(folder)) as url:
            yield url


async def deploy(url: str, template: str) -> str:
    """Deploy a stack and return its final status."""
    clock = SystemClock()
    async with get_session().create_client(
        "cloudformation",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=MADE_UP.access_key,
        aws_secret_access_key=MADE_UP.secret_key,
    ) as client:
        await client.create_stack(StackName="tally", TemplateBody=template)
        while True:
            (stack,) = (await client.describe_stacks(StackName="tally"))["Stacks"]
            if not stack["StackStatus"].endswith("IN_PROGRESS"):
                return str(stack["StackStatus"])
            await clock.sleep(0.05)


async def test_a_deployed_stack_has_the_declared_tables() -> None:
    """Deployed by an emulator of CloudFormation, which ignores the TTL."""
    declared = [*CATALOGUE.tables(), PLAYERS]
    with cloudformation_service() as url:
        assert await deploy(url, cloudformation(declared, "prod-")) == "CREATE_COMPLETE"
        async with open_dynamodb(endpoint=url, credentials=MADE_UP, table_prefix="prod-") as engine:
            assert await engine.list_tables() == [table.name for table in declared]
            for table in declared:
                expected = replace(normalize(table), attributes=(), ttl=None)
                assert normalize(await engine.describe_table(table.name)) == expected
            outcomes = {made.table: made.status for made in await create_tables(engine, declared)}
            assert outcomes == {
                table.name: "updated" if table.ttl else "unchanged" for table in declared
            }
