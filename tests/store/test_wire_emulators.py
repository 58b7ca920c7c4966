"""The served store answers raw requests with the status and error type of the emulators."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.emulators import dynamodb_local, dynoxide, ministack
from tests.store.served import call, served_store
from tests.store.wire_requests import Body, requests, setup

EMULATORS = {"local": dynamodb_local, "dynoxide": dynoxide, "ministack": ministack}
SIGNED_AT = {"X-Amz-Date": "20260101T000000Z"}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        started = {name: stack.enter_context(start()) for name, start in EMULATORS.items()}
        served = served_store(tmp_path_factory.mktemp("emulators"))
        yield {"served": stack.enter_context(served), **started}


def verdict(url: str, operation: str, body: Body) -> tuple[int, str]:
    """Return the status and the type of the error."""
    status, response = call(url, operation, body, **SIGNED_AT)
    return status, "" if status == 200 else str(response.get("__type")).rpartition("#")[2]


@pytest.mark.judge
def test_each_request_has_the_verdict_of_an_emulator(urls: dict[str, str]) -> None:
    """Emulators disagree with each other; an answer that none of them gives is a difference."""
    for url in urls.values():
        for operation, body in setup():
            assert verdict(url, operation, body) == (200, "")
    differences = []
    for operation, body in requests():
        verdicts = {name: verdict(url, operation, body) for name, url in urls.items()}
        if verdicts.pop("served") not in verdicts.values():
            differences.append((operation, body, verdicts))
    assert differences == []


def test_no_request_causes_a_server_error(tmp_path: Path) -> None:
    with served_store(tmp_path) as url:
        for operation, body in setup():
            assert verdict(url, operation, body) == (200, "")
        statuses = Counter(verdict(url, operation, body)[0] for operation, body in requests())
    assert set(statuses) == {200, 400}
    assert min(statuses.values()) > 100
