"""Functions and files of the source stay below size limits."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "tally"


def function_lengths() -> dict[str, int]:
    lengths = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
                lengths[where] = (node.end_lineno or node.lineno) - node.lineno + 1
    return lengths


def test_no_function_is_longer_than_60_lines() -> None:
    assert {where: lines for where, lines in function_lengths().items() if lines > 60} == {}


def test_19_of_20_functions_have_at_most_40_lines() -> None:
    lengths = function_lengths()
    long = {where: lines for where, lines in lengths.items() if lines > 40}
    assert len(long) <= len(lengths) / 20, long


def test_no_file_has_more_than_500_lines_and_19_of_20_at_most_300() -> None:
    lengths = {
        str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCE.rglob("*.py")
    }
    long = {name: lines for name, lines in lengths.items() if lines > 300}
    assert len(long) <= len(lengths) / 20, long
    assert all(lines <= 500 for lines in long.values()), long
