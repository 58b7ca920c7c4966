"""The examples in docs/store.md run, and generated files are up to date."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tally.app import CATALOGUE
from tally.cli.schema import LOCK_FILE
from tally.store.api import Engine
from tally.store.catalogue import find_problems
from tally.store.commands import StoreCommands
from tally.store.lockfile import render_lock
from tally.store.meters import Meters
from tally.store.report import pattern_rows, patterns_markdown
from tally.store.sqlite import open_sqlite

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "store.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


async def run_python(source: str, names: dict[str, Any]) -> None:
    """Run a block with top-level `await`."""
    code = compile(source, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, names)  # noqa: S307 - our own page
    if inspect.iscoroutine(running):
        await running


def commands(source: str) -> Iterator[tuple[list[str], str]]:
    """Yield each command of a block and its expected output."""
    for part in source.split("$ tally ")[1:]:
        command, _, output = part.partition("\n")
        yield command.split(), output


def same(printed: str, expected: str) -> bool:
    """Compare the output; a line of dots matches any lines."""
    pattern = re.escape(expected).replace(re.escape("...\n"), "(?:.*\n)*")
    return re.fullmatch(pattern, printed) is not None


async def test_the_examples_in_the_docs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    ran = {"python": 0, "console": 0}

    def open_engine() -> AbstractAsyncContextManager[Engine]:
        return open_sqlite(tmp_path / "made")

    store_commands = StoreCommands(lambda: names["catalogue"], open_engine)
    cli = typer.Typer()
    cli.add_typer(store_commands.patterns(), name="patterns")
    cli.add_typer(store_commands.schema(), name="schema")
    async with open_sqlite(tmp_path / "data") as engine:
        names["engine"] = engine
        for language, source in blocks():
            ran[language] += 1
            if language == "python":
                await run_python(source, names)
                continue
            for command, expected in commands(source):
                result = await asyncio.to_thread(
                    CliRunner().invoke, cli, command, catch_exceptions=False
                )
                assert same(result.output, expected), (
                    f"tally {' '.join(command)} printed:\n{result.output}"
                )
    assert ran["python"] >= 9
    assert ran["console"] >= 5


def test_the_access_patterns_page_is_up_to_date() -> None:
    """To update it, run `tally patterns --markdown > docs/access-patterns.md`."""
    page = (ROOT / "docs" / "access-patterns.md").read_text(encoding="utf-8")
    assert page == patterns_markdown(pattern_rows(CATALOGUE, Meters()))


def test_the_schema_lock_is_up_to_date() -> None:
    """To update it, run `tally schema lock`."""
    assert (LOCK_FILE).read_text(encoding="utf-8") == render_lock(CATALOGUE.tables())


def test_the_repositories_have_no_problems() -> None:
    assert find_problems(CATALOGUE) == []
