"""`make test` has a short test for each foreign program whose long runs are in `make judge`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Words in the id of a short test, by program.
SHORT_TESTS = {
    "DynamoDB Local": "test_each_engine_has_its_known_features[local",
    "ministack": "test_each_engine_has_its_known_features[ministack",
    "Dynoxide": "test_each_engine_has_its_known_features[dynoxide",
    "schemathesis": "test_a_valid_request_gets_a_documented_response",
    "openapi-python-client": "test_openapi_python_client_works\n",
    "openapi-typescript and openapi-fetch": "test_openapi_typescript_and_fetch_work\n",
    "aioapns": "test_aioapns_works",
    "node-apn": "test_node_apn_works",
    "stravalib": "test_stravalib_works",
}
LONG_RUNS = {
    "DynamoDB Local": "test_dynamodb_tables.py::",
    "ministack": "[ministack",
    "Dynoxide": "[dynoxide",
    "schemathesis": "test_generated_requests_get_documented_responses",
    "openapi-python-client": "test_openapi_python_client_works_with_all_backends",
    "openapi-typescript and openapi-fetch": "test_openapi_typescript_and_fetch_work_with_all",
    "aioapns": "test_aioapns_understands_every_error",
    "node-apn": "test_node_apn_understands_every_error",
    "stravalib": "test_stravalib_reads_every_page_within_the_rate_limits",
}
FILES = (
    "tests/clients/test_apns_clients.py",
    "tests/clients/test_clients.py",
    "tests/clients/test_strava_client.py",
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
