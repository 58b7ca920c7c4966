"""Sends requests to a service without our validation, so that its own verdict counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from tally.store import dynamodb, validate
from tally.store.api import (
    BatchGet,
    BatchWrite,
    Delete,
    Engine,
    Get,
    Operation,
    Put,
    Query,
    Scan,
    Transaction,
    TransactionGet,
    Update,
)
from tally.store.errors import InvalidRequest, RequestRejected

UNCHECKED = SimpleNamespace(
    **{name: lambda _operation: None for name in dir(validate) if name.startswith("check_")}
)
METHODS = {
    Get: "get",
    Put: "put",
    Update: "update",
    Delete: "delete",
    Query: "query",
    Scan: "scan",
    BatchGet: "batch_get",
    BatchWrite: "batch_write",
    Transaction: "transact",
    TransactionGet: "transact_get",
}


@contextmanager
def no_validation() -> Iterator[None]:
    """Disable the validation of every DynamoDB engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamodb.engine, "validate", UNCHECKED)
        yield


async def run_operation(engine: Engine, operation: Operation) -> object:
    """Run an operation with the method of its type."""
    return await getattr(engine, METHODS[type(operation)])(operation)


async def verdict(engine: Engine, operation: Operation) -> tuple[str, str]:
    """Whether an engine accepts a request, and its reason otherwise.

    A rejection counts only if it comes from the engine itself, not from our encoder.
    """
    try:
        await run_operation(engine, operation)
    except RequestRejected as error:
        return "accepted", str(error)
    except InvalidRequest as error:
        if engine.name != "sqlite" and not isinstance(error.__cause__, ClientError):
            raise AssertionError(f"the request was not sent: {error}") from error
        return "rejected", str(error)
    return "accepted", ""
