"""A DynamoDB endpoint for tests of programs that use DynamoDB.

`endpoint.py` starts it in a thread of the test process, and `pytest_plugin.py` offers it as
fixtures. Only tests import this package.
"""

from tally.testing.endpoint import (
    DynamoDBEndpoint,
    EndpointSnapshot,
    MovableClock,
    dynamodb_endpoint,
)

__all__ = ["DynamoDBEndpoint", "EndpointSnapshot", "MovableClock", "dynamodb_endpoint"]
