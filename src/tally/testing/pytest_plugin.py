"""Fixtures for pytest, which finds this module by its entry point.

`dynamodb_server` is one endpoint for the whole run, and `dynamodb` is the same endpoint with what a
test changed undone afterwards: a test that uses it starts with the data that session fixtures wrote
to `dynamodb_server`. Every run of pytest imports this module, so it imports the endpoint on use.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(scope="session")
def dynamodb_server() -> Iterator[Any]:
    """A `DynamoDBEndpoint` for the whole run, with the tables and items that fixtures create."""
    with import_module("tally.testing.endpoint").dynamodb_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def dynamodb(dynamodb_server: Any) -> Iterator[Any]:
    """The `DynamoDBEndpoint` of the run; the data and the clock are restored after the test."""
    saved = dynamodb_server.snapshot()
    yield dynamodb_server
    dynamodb_server.restore(saved)
    dynamodb_server.delete(saved)
