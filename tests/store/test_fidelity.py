"""docs/fidelity.md cites a source for every limit and names tests that exist."""

import ast
import re
from pathlib import Path

from tally.store import api, expressions, schema, validate_expressions, values
from tests.store.emulators import DYNOXIDE, JAR

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
DOCUMENTATION = "https://docs.aws.amazon.com/amazondynamodb/latest/"
EMULATOR = re.compile(r"(DynamoDB Local|ministack|Dynoxide) \d+\.\d+\.\d+, \d{4}-\d{2}-\d{2}")


def rows(title: str) -> list[list[str]]:
    """The rows of the table in a section."""
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    table = re.findall(r"^\|.*\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]]


def assertions() -> list[tuple[str, str, str]]:
    """Every assertion with its source and its tests."""
    return [(row[0], row[-2], row[-1]) for row in (*rows("Limits"), *rows("Behaviour"))]


def test_every_assertion_has_a_source() -> None:
    """A page of the documentation, or emulators with their version and a date."""
    unsourced = [
        assertion
        for assertion, source, _ in assertions()
        if not re.search(rf"\]\({re.escape(DOCUMENTATION)}[\w/.#-]+\)", source)
        and not EMULATOR.search(source)
    ]
    assert unsourced == []


def test_every_assertion_names_existing_tests() -> None:
    existing = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for assertion, _, cell in assertions():
        named = set(re.findall(r"`(\w+)`", cell))
        assert named, f"no test: {assertion}"
        assert named <= existing, f"missing: {named - existing}"


def test_every_limit_in_the_code_is_listed() -> None:
    limits = {
        name
        for module in (api, expressions, schema, validate_expressions, values)
        for name in vars(module)
        if name.startswith("MAX_")
    }
    assert {row[1].strip("`") for row in rows("Limits")} == limits


def test_the_versions_of_the_emulators_are_those_of_the_tests() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (ministack,) = re.findall(r"^ministack==(\S+)", lock, re.MULTILINE)
    versions = {
        "DynamoDB Local": JAR.package.rpartition("@")[2],
        "ministack": ministack,
        "Dynoxide": DYNOXIDE.package.rpartition("@")[2],
    }
    listed = {row[0].partition(",")[0]: row[1] for row in rows("Emulators")}
    assert [name for name, version in versions.items() if version not in listed[name]] == []
    cited = re.findall(r"(DynamoDB Local|ministack|Dynoxide) (\d+\.\d+\.\d+),", PAGE)
    assert [cite for cite in cited if versions[cite[0]] != cite[1]] == []
