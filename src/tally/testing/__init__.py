"""A DynamoDB endpoint for tests of programs that use DynamoDB.

`endpoint.py` starts it in a thread of the test process, and `pytest_plugin.py` offers it as
fixtures. Only tests import this package. Every run of pytest imports it for the plugin, so it
imports the endpoint on use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tally.testing.endpoint import (
        DynamoDBEndpoint,
        EndpointSnapshot,
        MovableClock,
        dynamodb_endpoint,
    )

__all__ = ["DynamoDBEndpoint", "EndpointSnapshot", "MovableClock", "dynamodb_endpoint"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tally.testing.endpoint"), name)
