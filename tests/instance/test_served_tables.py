"""`tally up` and `tally serve` serve Tally's own tables: signed, read-only, and off by default."""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

import tally
from tally.instance.served_tables import CREDENTIAL_TABLES, serving_tables
from tally.kit.clock import ManualClock, SystemClock
from tally.settings import read_settings
from tally.store.api import Put
from tally.store.schema import S, Table
from tally.store.sqlite import open_sqlite
from tests.test_up import demo

KEY = {"pk": {"S": "a"}}


def client(url: str, secret: str, service: str = "dynamodb") -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="local",
        aws_access_key_id="tally",
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_the_demo_prints_a_command_that_lists_its_tables(tmp_path: Path) -> None:
    """The secret is in a file and not in the output, and no client can write."""
    folder = tmp_path / "my [red] data"  # of which a terminal must not make a colour
    folder.mkdir()
    with demo(folder, "--no-sim", TALLY_BACKENDS="devices") as running:
        secret = (running.data / "dynamodb.key").read_text(encoding="utf-8").strip()
        assert secret not in running.output
        printed = re.search(
            r"To read the tables: (AWS.* (http://\S+))$", running.output, re.MULTILINE
        )
        assert printed is not None
        command, url = printed.groups()
        served = client(url, secret)
        names = served.list_tables()["TableNames"]
        assert "devices" in names
        assert "Items" in served.scan(TableName="tally-operator-audit")
        assert not {*names} & {*CREDENTIAL_TABLES}
        with pytest.raises(ClientError, match=r"AccessDenied.*read-only"):
            served.delete_table(TableName="devices")
        with pytest.raises(ClientError, match="InvalidSignature"):
            client(url, "wrong").list_tables()
        assert "devices" in run_command(command, running.data.parent)
        running.stop(signal.SIGTERM)


def run_command(command: str, folder: Path) -> str:
    """Run the printed command as a person does; `aws` is the AWS CLI, if it is installed."""
    if shutil.which("aws") is None:
        # The variables of the command are evaluated by a shell, and another client uses them.
        variables, _, url = command.partition(" aws dynamodb list-tables --endpoint-url ")
        program = "import boto3; print(boto3.client('dynamodb', endpoint_url='URL').list_tables())"
        program = program.replace("URL", url)
        command = f'{variables} {sys.executable} -c "{program}"'
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


async def test_no_operation_finds_a_table_of_credentials(tmp_path: Path) -> None:
    """Neither by its name nor by its ARN; the other tables are found."""
    engine_clock, settings = SystemClock(), read_settings({"TALLY_DATA_DIR": str(tmp_path)})
    async with (
        open_sqlite(tmp_path) as engine,
        serving_tables(engine, settings, engine_clock, on_free_port=True) as tables,
    ):
        assert tables is not None
        for name in (*CREDENTIAL_TABLES, "other"):
            table = Table(name, partition=S("pk"), stream="NEW_AND_OLD_IMAGES")
            await engine.create_table(table)
            await engine.put(Put(table, {"pk": "a"}))
        secret = tables.key_file.read_text(encoding="utf-8").strip()
        await asyncio.to_thread(expect_hidden, tables.url, secret)


def expect_hidden(url: str, secret: str) -> None:
    served, streams = client(url, secret), client(url, secret, "dynamodbstreams")
    assert served.list_tables()["TableNames"] == ["other"]
    assert [found["TableName"] for found in streams.list_streams()["Streams"]] == ["other"]
    assert served.get_item(TableName="other", Key=KEY)["Item"] == KEY
    arn = served.describe_table(TableName="other")["Table"]["TableArn"]
    for name in CREDENTIAL_TABLES:
        expect_not_found(served, name)
        expect_not_found(served, arn.replace("other", name))
        assert streams.list_streams(TableName=name)["Streams"] == []


def expect_not_found(served: Any, table: str) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("get_item", {"TableName": table, "Key": KEY}),
        ("scan", {"TableName": table}),
        ("describe_table", {"TableName": table}),
        ("describe_time_to_live", {"TableName": table}),
        ("batch_get_item", {"RequestItems": {table: {"Keys": [KEY]}}}),
        ("transact_get_items", {"TransactItems": [{"Get": {"TableName": table, "Key": KEY}}]}),
    ]
    for operation, parameters in requests:
        with pytest.raises(ClientError, match="ResourceNotFound"):
            getattr(served, operation)(**parameters)


def test_tables_with_hashes_and_secrets_are_hidden() -> None:
    """A new table whose attributes look like credentials must be hidden, or be named here."""
    text = (Path(tally.__file__).parent / "schema.lock").read_text(encoding="utf-8")
    found = {
        name
        for name, table in tomllib.loads(text)["tables"].items()
        if any(
            re.search("hash|secret|password", attribute, re.IGNORECASE)
            for attribute in table["attributes"]
        )
    }
    assert found - {*CREDENTIAL_TABLES} == {"CommitCollectAudit", "cricket-state-hashes"}
    assert {*CREDENTIAL_TABLES} <= {*tomllib.loads(text)["tables"]}


async def test_tally_serve_has_no_such_port_by_default(tmp_path: Path) -> None:
    settings = read_settings({"TALLY_DATA_DIR": str(tmp_path)})
    clock = ManualClock(datetime.now(UTC))
    async with open_sqlite(tmp_path) as engine, serving_tables(engine, settings, clock) as tables:
        assert tables is None
        assert not (tmp_path / "dynamodb.key").exists()
