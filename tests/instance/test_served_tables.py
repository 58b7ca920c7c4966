"""`tally up` and `tally serve` serve Tally's own tables: signed, read-only, and off by default."""

import re
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tally.instance.served_tables import serving_tables
from tally.kit.clock import ManualClock
from tally.settings import read_settings
from tally.store.sqlite import open_sqlite
from tests.test_up import demo


def client(url: str, secret: str) -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="local",
        aws_access_key_id="tally",
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_the_demo_prints_a_command_that_lists_its_tables(tmp_path: Path) -> None:
    """The secret is in a file and not in the output, and no client can write."""
    with demo(tmp_path, "--no-sim", TALLY_BACKENDS="devices") as running:
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
        assert "Items" in served.scan(TableName="operators" if "operators" in names else names[0])
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


async def test_tally_serve_has_no_such_port_by_default(tmp_path: Path) -> None:
    settings = read_settings({"TALLY_DATA_DIR": str(tmp_path)})
    clock = ManualClock(datetime.now(UTC))
    async with open_sqlite(tmp_path) as engine, serving_tables(engine, settings, clock) as tables:
        assert tables is None
        assert not (tmp_path / "dynamodb.key").exists()
