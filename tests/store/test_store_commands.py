"""`tally patterns` and `tally schema`: output and exit codes."""

import json
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from tally.store.access import GetItem, Query, access, param
from tally.store.api import Engine
from tally.store.catalogue import Catalogue
from tally.store.commands import StoreCommands
from tally.store.expressions import F
from tally.store.lockfile import parse_lock, read_lock, render_lock
from tally.store.meters import Meters
from tally.store.report import PatternList, pattern_rows
from tally.store.schema import Attribute, GlobalIndex, S, Table
from tally.store.sqlite import open_sqlite
from tests.store.example import CATALOGUE

THINGS = Table(
    "things",
    partition=S("id"),
    indexes=(GlobalIndex("by-owner", S("owner")),),
    attributes=(Attribute("owner", "S"), Attribute("size", "N")),
)


def catalogue_of(table: Table) -> Catalogue:
    """One repository with one table; one pattern reads its index, if there is one."""

    class Things:
        tables: ClassVar = (table,)

        @access(
            "Get thing", GetItem(key={name: param(name) for name in table.key_names}), table=table
        )
        async def get(self) -> None: ...

        if table.indexes:

            @access(
                "Things of an owner",
                Query(
                    where=F(table.index("by-owner").partition.name) == param("owner"),
                    index="by-owner",
                ),
                table=table,
            )
            async def of_owner(self) -> None: ...

    return Catalogue({"shop": (Things,)})


class Tally:
    """The command line in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.catalogue = CATALOGUE
        commands = StoreCommands(lambda: self.catalogue, self._open, lambda: "stage-", ("example",))
        self.cli = typer.Typer()
        self.cli.add_typer(commands.patterns(), name="patterns")
        self.cli.add_typer(commands.schema(), name="schema")

    def _open(self) -> AbstractAsyncContextManager[Engine]:
        return open_sqlite(self.folder / "data")

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(self.cli, arguments, catch_exceptions=False)

    def declare(self, table: Table | None) -> None:
        self.catalogue = Catalogue() if table is None else catalogue_of(table)

    @property
    def lock(self) -> Path:
        return self.folder / "schema.lock"


@pytest.fixture
def tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.chdir(tmp_path)
    return Tally(tmp_path)


def test_a_new_schema_is_locked_and_then_up_to_date(tally: Tally) -> None:
    missing = tally("schema", "check")
    assert missing.exit_code == 3
    assert (
        "schema.lock does not match the code. Run `tally schema lock --file schema.lock`"
        in missing.stderr
    )
    locked = tally("schema", "lock")
    assert locked.exit_code == 0
    assert "example-fixtures: new table [safe]" in locked.stdout
    assert "schema.lock: 4 tables locked." in locked.stdout
    assert tally.lock.read_text(encoding="utf-8") == render_lock(CATALOGUE.tables())
    assert (tally("schema", "check").exit_code, tally("schema", "check").stdout) == (
        0,
        "schema.lock is up to date: 4 tables.\n",
    )
    assert (tally("schema", "diff").exit_code, tally("schema", "diff").stdout) == (
        0,
        "No changes.\n",
    )


def test_a_program_without_tables_has_a_lock_without_tables(tally: Tally) -> None:
    tally.declare(None)
    assert tally("schema", "check").exit_code == 3
    assert tally("schema", "lock").exit_code == 0
    assert parse_lock(tally.lock.read_text(encoding="utf-8")) == []
    assert tally("schema", "check").exit_code == 0


SAFE = replace(THINGS, attributes=(*THINGS.attributes, Attribute("colour", "S")))
MIGRATION = replace(THINGS, attributes=(Attribute("owner", "S"), Attribute("size", "S")))
IMPOSSIBLE = replace(THINGS, partition=S("key"))


@pytest.mark.parametrize(
    ("declared", "code", "line"),
    [
        (THINGS, 0, "No changes."),
        (SAFE, 3, "things: new optional attribute colour [safe]"),
        (MIGRATION, 4, "things: type of attribute size changed from N to S [needs a migration]"),
        (
            replace(MIGRATION, version="2.0.0"),
            4,
            "to S [needs a migration, new major version]",
        ),
        (IMPOSSIBLE, 5, "things: primary key changed from id (S) to key (S) [impossible]"),
        (None, 4, "things: table removed [needs a migration]"),
    ],
)
def test_the_exit_code_of_a_diff_is_that_of_the_worst_change(
    tally: Tally, declared: Table | None, code: int, line: str
) -> None:
    tally.declare(THINGS)
    assert tally("schema", "lock").exit_code == 0
    tally.declare(declared)
    diff = tally("schema", "diff")
    assert (diff.exit_code, line in diff.stdout) == (code, True)
    assert tally("schema", "check").exit_code == code


def test_a_safe_change_is_locked(tally: Tally) -> None:
    tally.declare(THINGS)
    tally("schema", "lock")
    tally.declare(SAFE)
    assert tally("schema", "lock").exit_code == 0
    assert tally("schema", "check").exit_code == 0


def test_a_migration_is_locked_only_with_a_new_major_version(tally: Tally) -> None:
    tally.declare(THINGS)
    tally("schema", "lock")
    before = tally.lock.read_bytes()
    for version in ("1.0.0", "1.1.0"):
        tally.declare(replace(MIGRATION, version=version))
        result = tally("schema", "lock")
        assert result.exit_code == 4
        assert "migrate the data, then increase the table's major version" in result.stdout
        assert "Nothing was locked." in result.stderr
        assert "Fix the listed changes first." in tally("schema", "check").stderr
    assert tally.lock.read_bytes() == before
    tally.declare(replace(MIGRATION, version="2.0.0"))
    assert "Run `tally schema lock" in tally("schema", "check").stderr
    assert tally("schema", "lock").exit_code == 0
    assert [table.version for table in read_lock(tally.lock)] == ["2.0.0"]


def test_an_impossible_change_is_not_locked(tally: Tally) -> None:
    tally.declare(THINGS)
    tally("schema", "lock")
    before = tally.lock.read_bytes()
    tally.declare(replace(IMPOSSIBLE, version="2.0.0"))
    result = tally("schema", "lock")
    assert result.exit_code == 5
    assert "declare a new table, copy the items, switch over, then remove this one" in result.stdout
    assert tally.lock.read_bytes() == before


def test_a_removed_table_must_be_dropped_by_name(tally: Tally) -> None:
    tally.declare(THINGS)
    tally("schema", "lock")
    tally.declare(None)
    assert tally("schema", "lock").exit_code == 4
    assert tally("schema", "lock", "--drop", "nothing").exit_code == 2
    assert [table.name for table in read_lock(tally.lock)] == ["things"]
    assert tally("schema", "lock", "--drop", "things").exit_code == 0
    assert read_lock(tally.lock) == []


def test_removing_an_index_in_use_is_impossible(tally: Tally) -> None:
    """The pattern's table has the index, the declared table does not."""
    tally.declare(THINGS)
    tally("schema", "lock")
    tally.catalogue.backends["shop"][0].tables = (replace(THINGS, indexes=()),)  # type: ignore[attr-defined]
    result = tally("schema", "lock")
    assert result.exit_code == 5
    assert "still used by Things.of_owner" in result.stdout
    tally.declare(replace(THINGS, indexes=()))
    assert tally("schema", "lock").exit_code == 0


def test_a_diff_accepts_any_lock_and_prints_json(tally: Tally) -> None:
    tally.declare(THINGS)
    tally("schema", "lock", "--file", "other.lock")
    tally.declare(SAFE)
    diff = tally("schema", "diff", "--against", "other.lock", "--json")
    assert diff.exit_code == 3
    assert json.loads(diff.stdout) == [
        {
            "table": "things",
            "change": "new optional attribute colour",
            "class": "safe",
            "advice": "",
            "accepted": False,
        }
    ]
    assert not tally.lock.exists()


def test_an_edited_lock_is_not_up_to_date(tally: Tally) -> None:
    tally("schema", "lock")
    tally.lock.write_text(tally.lock.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    assert tally("schema", "check").exit_code == 3
    assert tally("schema", "diff").exit_code == 0


def test_a_damaged_lock_is_an_error_and_is_not_overwritten(tally: Tally) -> None:
    tally.lock.write_text("format = 99", encoding="utf-8")
    for command in ("lock", "check", "diff"):
        result = tally("schema", command)
        assert result.exit_code == 1
        assert "format 99, and this version of Tally knows 1 at most" in result.stderr
    assert tally.lock.read_text(encoding="utf-8") == "format = 99"


def test_an_invalid_version_is_an_error(tally: Tally) -> None:
    tally.declare(replace(THINGS, version="two"))
    result = tally("schema", "lock")
    assert (result.exit_code, "three numbers such as 1.0.0" in result.stderr) == (1, True)


def test_create_creates_the_tables_on_the_configured_engine(tally: Tally) -> None:
    assert tally("schema", "create").stdout.splitlines() == [
        f"{table.name}: created" for table in CATALOGUE.tables()
    ]
    assert tally("schema", "create").stdout.splitlines() == [
        f"{table.name}: unchanged" for table in CATALOGUE.tables()
    ]


def test_create_reports_errors(tally: Tally) -> None:
    tally.declare(THINGS)
    assert tally("schema", "create").exit_code == 0
    tally.declare(IMPOSSIBLE)
    result = tally("schema", "create")
    assert (result.exit_code, "things" in result.stderr) == (1, True)


def test_exports_use_the_configured_or_the_given_prefix(
    tally: Tally,
) -> None:
    template = json.loads(tally("schema", "cloudformation").stdout)
    assert (
        template["Resources"]["ExampleLocksTable"]["Properties"]["TableName"]
        == "stage-example-locks"
    )
    template = json.loads(tally("schema", "cloudformation", "--prefix", "prod-").stdout)
    assert (
        template["Resources"]["ExampleLocksTable"]["Properties"]["TableName"]
        == "prod-example-locks"
    )
    assert (
        'name                        = "stage-example-locks"' in tally("schema", "terraform").stdout
    )
    assert (
        'name                        = "example-locks"'
        in tally("schema", "terraform", "--prefix", "").stdout
    )


def test_terraform_keeps_the_logs_of_each_service_for_30_days(tally: Tally) -> None:
    group = """resource "aws_cloudwatch_log_group" "example" {
  name              = "/ecs/stage-example"
  retention_in_days = 30
}
"""
    assert tally("schema", "terraform").stdout.endswith("\n" + group)


def test_diff_compares_the_declared_tables_with_those_of_the_service(tally: Tally) -> None:
    tally.declare(THINGS)
    missing = tally("schema", "diff", "--service")
    assert (missing.exit_code, missing.stdout) == (3, "things: new table [safe]\n")
    assert tally("schema", "create").exit_code == 0
    assert tally("schema", "diff", "--service").stdout == "No changes.\n"
    tally.declare(replace(THINGS, indexes=(), ttl="expiresAt"))
    changed = tally("schema", "diff", "--service")
    assert changed.exit_code == 3
    assert "things: global index by-owner removed [safe]" in changed.stdout
    assert "things: TTL enabled on expiresAt [safe]" in changed.stdout
    tally.declare(IMPOSSIBLE)
    assert tally("schema", "diff", "--service").exit_code == 5


def test_iam_prints_the_policy_of_one_backend(tally: Tally) -> None:
    policy = json.loads(tally("schema", "iam", "--backend", "example").stdout)
    assert policy["Version"] == "2012-10-17"
    assert "stage-example-locks" in json.dumps(policy)
    unknown = tally("schema", "iam", "--backend", "nothing")
    assert (unknown.exit_code, "Unknown backend nothing" in unknown.stderr) == (2, True)


def test_patterns_are_printed_one_a_line(tally: Tally) -> None:
    lines = tally("patterns").stdout.splitlines()
    assert len(lines) == len(CATALOGUE.entries())
    assert lines[0].split("\t")[:5] == [
        "example",
        "example-fixtures",
        "Get fixture by ID",
        "both",
        "GetItem",
    ]
    assert tally("patterns", "example").stdout.splitlines() == lines


def test_patterns_are_printed_as_json_and_as_markdown(tally: Tally) -> None:
    """Options may precede or follow the backend."""
    rows = json.loads(tally("patterns", "example", "--json").stdout)
    assert rows == json.loads(tally("patterns", "--json", "example").stdout)
    assert [row["pattern"] for row in rows] == [entry.pattern.name for entry in CATALOGUE.entries()]
    assert tally("patterns", "--markdown").stdout.startswith("# Access patterns\n")
    tally.declare(None)
    assert json.loads(tally("patterns", "--json").stdout) == []
    assert "There are no backends." in tally("patterns", "--markdown").stdout


def test_an_unknown_backend_is_reported(tally: Tally) -> None:
    result = tally("patterns", "cricket")
    assert (result.exit_code, result.stderr) == (
        2,
        "Unknown backend cricket; available: example\n",
    )


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Run a server with this response at /patterns; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/patterns" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_metrics_of_a_running_server_are_shown(tally: Tally) -> None:
    meters = Meters()
    meters.of(CATALOGUE.entries()[0].pattern).whole.record_call(0.002)
    with answering(200, msgspec.json.encode(PatternList(pattern_rows(CATALOGUE, meters)))) as url:
        rows = json.loads(tally("patterns", "--json", "--url", url).stdout)
        assert [row["calls"] for row in rows[:2]] == [1, 0]
        assert tally("patterns", "--markdown", "--url", url + "/").stdout.count("| Calls |") == 3
        assert json.loads(tally("patterns", "other", "--json", "--url", url).stdout) == []


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"[]"), (200, b"<html>"), (200, b'{"items": [{"pattern": 1}]}')]
)
def test_a_response_without_patterns_is_an_error(tally: Tally, status: int, body: bytes) -> None:
    with answering(status, body) as url:
        result = tally("patterns", "--url", url)
    assert (
        result.exit_code,
        "/patterns did not return access patterns" in result.stderr,
    ) == (1, True)


def test_an_unreachable_server_is_an_error(tally: Tally) -> None:
    with answering(200, b"[]") as url:
        pass
    result = tally("patterns", "--url", url)
    assert (result.exit_code, "did not return access patterns" in result.stderr) == (
        1,
        True,
    )
    assert tally("patterns", "--url", "nonsense").exit_code == 1
