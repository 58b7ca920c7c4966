"""The page on Live Activities names the test behind each arrow of their life; those tests are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "live-activities.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    """Under this name, in this file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_arrow_of_the_diagram_has_a_row_with_a_test() -> None:
    """Numbered in the diagram, explained and proved in the table."""
    arrows = set(re.findall(r"-->.*\((\d+)\)", PAGE))
    rows = set(re.findall(r"^\| (\d+) \|.*`tests/", PAGE, re.MULTILINE))
    assert arrows == rows == {str(number) for number in range(1, 14)}
