"""`make test` has a short test for each foreign program whose long runs are in `make judge`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Words in the id of a short test, by program.
SHORT_TESTS = {
    "DynamoDB Local": "test_each_engine_has_its_known_features[local",
    "ministack": "test_each_engine_has_its_known_features[ministack",
    "schemathesis": "test_a_valid_request_gets_a_documented_response",
}
LONG_RUNS = {
    "DynamoDB Local": "test_dynamodb_tables.py::",
    "ministack": "[ministack",
    "schemathesis": "test_generated_requests_get_documented_responses",
}
FILES = (
    "tests/devices/test_openapi.py",
    "tests/store/test_dynamodb_tables.py",
    "tests/store/test_emulators.py",
)


def collected(selection: str) -> str:
    """Return the ids that pytest selects with a marker expression."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", selection, *FILES]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout


def test_every_foreign_program_has_a_short_test() -> None:
    ids = collected("not judge")
    assert [program for program, words in SHORT_TESTS.items() if words not in ids] == []


def test_every_foreign_program_has_long_runs() -> None:
    ids = collected("judge")
    assert [program for program, words in LONG_RUNS.items() if words not in ids] == []
