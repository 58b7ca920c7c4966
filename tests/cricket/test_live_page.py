"""The Live Activities page names an existing test for each transition of the lifecycle."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "live-activities.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_each_test_named_on_the_page_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_transition_of_the_diagram_has_a_row_with_a_test() -> None:
    transitions = set(re.findall(r"-->.*\((\d+)\)", PAGE))
    rows = set(re.findall(r"^\| (\d+) \|.*`tests/", PAGE, re.MULTILINE))
    assert transitions == rows == {str(number) for number in range(1, 16)}
