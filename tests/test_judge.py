"""`make test` has a short test for each foreign program whose long runs are in `make judge`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EMULATOR_FEATURES = "tests/store/test_emulators.py::test_each_engine_has_its_known_features"
SHORT_TESTS = {
    "DynamoDB Local": f"{EMULATOR_FEATURES}[local-expected1]",
    "ministack": f"{EMULATOR_FEATURES}[ministack-expected2]",
    "schemathesis": "tests/devices/test_openapi.py::test_a_valid_request_gets_a_documented_response",
}
LONG_RUNS = {
    "DynamoDB Local": "tests/store/test_operations_items.py",
    "ministack": "tests/store/test_operations_items.py",
    "schemathesis": "tests/devices/test_openapi.py",
}


def collected(selection: str, target: str) -> int:
    """Return the number of tests that pytest selects with a marker expression."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", selection, target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum("::" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("program", SHORT_TESTS)
def test_a_foreign_program_has_a_short_test_and_long_runs(program: str) -> None:
    assert collected("not judge", SHORT_TESTS[program]) >= 1
    assert collected("judge", LONG_RUNS[program]) >= 1
