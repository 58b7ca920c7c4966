"""The endpoint for tests: a movable clock, snapshots, and the fixtures of the pytest plugin."""

import re
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import boto3
import pytest

from tally.testing import DynamoDBEndpoint, dynamodb_endpoint

PAGE = Path(__file__).parent.parent.parent / "docs" / "dynamodb.md"


@pytest.fixture
def client(dynamodb: DynamoDBEndpoint) -> Any:
    return boto3.client("dynamodb", **dynamodb.boto3_arguments)


def create_table(client: Any, name: str) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.update_time_to_live(
        TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "until"}
    )


def put(client: Any, key: str, **values: Any) -> None:
    client.put_item(TableName="sessions", Item={"pk": {"S": key}, **values})


def keys(client: Any) -> set[str]:
    return {item["pk"]["S"] for item in client.scan(TableName="sessions")["Items"]}


def test_items_expire_when_the_clock_moves(dynamodb: DynamoDBEndpoint, client: Any) -> None:
    create_table(client, "sessions")
    put(client, "short", until={"N": str(int(time.time()) + 3600)})
    put(client, "long", until={"N": str(int(time.time()) + 7200)})
    dynamodb.advance(3700)
    assert keys(client) == {"long"}


def test_a_snapshot_restores_items_tables_and_the_clock(
    dynamodb: DynamoDBEndpoint, client: Any
) -> None:
    create_table(client, "sessions")
    put(client, "first", until={"N": str(int(time.time()) + 3600)})
    saved = dynamodb.snapshot()
    for _ in range(2):
        put(client, "second")
        create_table(client, "more")
        dynamodb.advance(4000)
        assert keys(client) == {"second"}
        dynamodb.restore(saved)
        assert keys(client) == {"first"}
        assert client.list_tables()["TableNames"] == ["sessions"]
    assert abs(dynamodb.clock.time_ns() - time.time_ns()) < 60e9


@pytest.mark.parametrize("attempt", [1, 2])
def test_the_fixture_undoes_what_a_test_wrote(client: Any, attempt: int) -> None:
    assert client.list_tables()["TableNames"] == []
    create_table(client, "sessions")


def test_the_fixture_frees_its_snapshots(tmp_path: Path) -> None:
    """They are in memory, and a run may have thousands of tests."""
    result = run_pytest(
        tmp_path,
        """
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_many(dynamodb, number):
            snapshots = dynamodb.snapshot().folder.parent
            assert len([*snapshots.iterdir()]) == 2 + number  # one of the fixture, others of tests
        """,
    )
    assert "3 passed" in result.stdout


def test_a_run_without_the_fixtures_does_not_import_the_store(tmp_path: Path) -> None:
    """The plugin is imported wherever the package is installed."""
    result = run_pytest(
        tmp_path,
        """
        import sys

        def test_imports():
            assert "tally.testing.pytest_plugin" in sys.modules
            assert not [name for name in sys.modules if name.startswith("tally.store")]
        """,
    )
    assert "1 passed" in result.stdout


def test_endpoints_are_independent() -> None:
    with dynamodb_endpoint() as one, dynamodb_endpoint() as other:
        create_table(boto3.client("dynamodb", **one.boto3_arguments), "sessions")
        assert boto3.client("dynamodb", **other.boto3_arguments).list_tables()["TableNames"] == []


def test_the_example_of_the_page_runs_in_a_project_of_its_own(tmp_path: Path) -> None:
    """The plugin is found by its entry point, and the tests of the page pass."""
    section = PAGE.read_text(encoding="utf-8").partition("## Tests")[2]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert "2 passed" in run_pytest(tmp_path, example).stdout


def run_pytest(folder: Path, program: str) -> "subprocess.CompletedProcess[str]":
    """Run tests of another project, which must pass."""
    settings = (
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"  # pytest-asyncio demands it
    )
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")
    (folder / "test_program.py").write_text(dedent(program), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result
