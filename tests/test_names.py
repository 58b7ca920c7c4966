"""Names follow the house style: one concept has one name, and retired names stay retired."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.project_files import tracked_files

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tally"

# Roles that repeat by design: the same thing for each backend, engine, simulator or command.
ROLES = {
    "AdminHandlers",
    "Handlers",
    "Query",  # DynamoDB's names: the request, and its declaration in an access pattern
    "Scan",
    "watch",
}

# Names that were replaced by the field's terms. Each is matched as a whole word.
RETIRED_NAMES = (
    "Alike",
    "Announcer",
    "Boundary",
    "CacheAway",
    "Desk",
    "ErrorWire",
    "FIRST_WAIT",
    "ModelShelf",
    "Pulse",
    "RequestScope",
    "Surroundings",
    "Told",
    "Together",
    "assembly",
    "lanes",
    "openers",
    "patience",
    "scribe",
    "scribing",
    "sees to",
    "seen to",
    "sheets",
    "told",
    "vitals",
    "whoever",
    r"LEAST_\w+",
    r"MOST_\w+",
)
RETIRED = re.compile(rf"\b({'|'.join(RETIRED_NAMES)})\b")
# Test helpers are named after what they start or build, not after places.
RETIRED_MODULES = {
    "arena",
    "club",
    "ground",
    "held",
    "inuse",
    "mortal",
    "pitch",
    "put_back",
    "reluctant",
    "sealing",
    "stadium",
    "theatre",
    "village",
    "watching",
}
# A field of stored items keeps its name, and an applied migration is checked by its hash.
EXEMPT = {
    Path("src/tally/cricket/model/pipeline.py"): {"told"},
    Path("src/tally/scoreboard/repository/migrations/0001_tables.sql"): {"whoever"},
    Path("tests/cricket/test_stored_formats.py"): {"told"},
}
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SCANNED = {".md", ".py", ".sql", ".toml", ".yaml"}


def public_names() -> dict[str, list[str]]:
    """Return where each public class and module-level function is defined."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = getattr(node, "name", "_")
            if isinstance(node, DEFINITIONS) and not name.startswith("_"):
                places[name].append(str(path.relative_to(SOURCE)))
    return places


def retired_names(text: str) -> set[str]:
    return {match[0] for match in RETIRED.finditer(text)}


def test_a_public_name_has_one_meaning() -> None:
    """A class or function name is defined once, unless it is a role that repeats by design."""
    repeated = {
        name: places
        for name, places in public_names().items()
        if len(places) > 1 and name not in ROLES
    }
    assert repeated == {}


def test_every_listed_role_repeats() -> None:
    """The list of roles holds no name that is unique anyway."""
    places = public_names()
    assert [role for role in sorted(ROLES) if len(places.get(role, ())) < 2] == []


def test_no_retired_name_is_used() -> None:
    found = {}
    for path in (file.relative_to(ROOT) for file in tracked_files()):
        if path.suffix in SCANNED and path != Path("tests/test_names.py"):
            names = retired_names((ROOT / path).read_text(encoding="utf-8"))
            names -= EXEMPT.get(path, set())
            if names:
                found[str(path)] = sorted(names)
    assert found == {}


def test_no_module_has_a_retired_name() -> None:
    assert [str(path) for path in tracked_files() if path.stem in RETIRED_MODULES] == []


@pytest.mark.parametrize("text", ["told = 1", "class Surroundings:", "MOST_ROWS = 3", "it sees to"])
def test_the_pattern_matches_a_retired_name(text: str) -> None:
    assert retired_names(text)
