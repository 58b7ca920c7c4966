"""What the service's errors mean: for the caller, and for the question whether a request may be sent again.

The one table from DynamoDB's codes to the store's errors is `_CODES`; a `ValidationException` is
read more closely by `_MESSAGES`. A `MappedError` says two things besides. `again`: the request was
certainly not carried out and may pass later. `unknown`: it may have been carried out and nobody can
tell, since the connection broke or the service failed midway.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from botocore.exceptions import ClientError, ParamValidationError

from tally.store.encode import item_from_wire
from tally.store.errors import (
    ConditionFailed,
    DuplicateItem,
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidPageKey,
    InvalidRequest,
    InvalidValue,
    ItemTooLarge,
    Reason,
    RequestRejected,
    RequestTooLarge,
    StoreError,
    StoreUnavailable,
    TableExists,
    TableNotFound,
    Throttled,
    TokenMismatch,
    TooManyItems,
    TransactionCancelled,
    UnknownIndex,
)
from tally.store.values import Item


class OperationNotSupported(StoreUnavailable):
    """The service does not know this operation; some emulators have no TTL."""


@dataclass(frozen=True, slots=True)
class MappedError:
    """One failed attempt."""

    error: StoreError
    again: bool = False
    unknown: bool = False


# What proves that no byte of the request reached the service: there was no connection to send it
# on. The client reports a reset in the middle of a request by the same class as a refused
# connection, so the cause underneath is what counts.
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

_SLOW_DOWN = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


def map_error(error: Exception, where: str) -> MappedError:
    """Judge what the client raised; `where` names the operation and the table in the message."""
    if isinstance(error, ClientError):
        return _answered(error, where)
    if isinstance(error, ParamValidationError):
        return MappedError(InvalidRequest(f"{where}: {error}"))
    cause = getattr(error, "kwargs", {}).get("error")
    unsent = isinstance(cause, _UNSENT)
    return MappedError(StoreUnavailable(f"{where}: {error}"), again=unsent, unknown=not unsent)


def _answered(error: ClientError, where: str) -> MappedError:
    response: Mapping[str, Any] = error.response
    code = response.get("Error", {}).get("Code", "")
    message = f"{where}: {response.get('Error', {}).get('Message', '') or code}"
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _CODES:
        return _CODES[code](message, response)
    if status >= 500:
        return MappedError(StoreUnavailable(message), unknown=True)
    if status == 413:
        return MappedError(RequestTooLarge(message))
    return MappedError(StoreUnavailable(f"{message} ({code})"))


def _plain(
    kind: Callable[[str], StoreError], *, again: bool = False, unknown: bool = False
) -> "_Judge":
    return lambda message, _response: MappedError(kind(message), again, unknown)


def _condition_failed(message: str, response: Mapping[str, Any]) -> MappedError:
    return MappedError(ConditionFailed(message, _item(response)))


def _cancelled(message: str, response: Mapping[str, Any]) -> MappedError:
    """A conflict or a throttle passes by itself, unless another reason stands beside it that does not."""
    reasons = [
        Reason(reason.get("Code") or "None", reason.get("Message") or "", _item(reason))
        for reason in response.get("CancellationReasons", ())
    ]
    obstacles = {reason.code for reason in reasons} - {"None"}
    if obstacles and obstacles <= set(_SLOW_DOWN[1:]):
        return MappedError(Throttled(message), again=True)
    return MappedError(
        TransactionCancelled(reasons), again=bool(obstacles) and obstacles <= set(_SLOW_DOWN)
    )


def _item(response: Mapping[str, Any]) -> Item | None:
    item = response.get("Item")
    return item_from_wire(item) if item else None


def _invalid(message: str, response: Mapping[str, Any]) -> MappedError:
    text = response["Error"].get("Message", "").lower()
    for fragment, kind in _MESSAGES:
        if fragment in text:
            return MappedError(kind(message))
    return MappedError(InvalidRequest(message))


_Judge = Callable[[str, Mapping[str, Any]], MappedError]

_CODES: dict[str, _Judge] = {
    "ConditionalCheckFailedException": _condition_failed,
    "TransactionCanceledException": _cancelled,
    "IdempotentParameterMismatchException": _plain(TokenMismatch),
    "ResourceNotFoundException": _plain(TableNotFound),
    "TableNotFoundException": _plain(TableNotFound),
    "ResourceInUseException": _plain(TableExists),
    "TableAlreadyExistsException": _plain(TableExists),
    "ItemCollectionSizeLimitExceededException": _plain(RequestRejected),
    "ValidationException": _invalid,
    "SerializationException": _plain(InvalidRequest),
    "UnknownOperationException": _plain(OperationNotSupported),
    "ProvisionedThroughputExceededException": _plain(Throttled, again=True),
    "RequestLimitExceeded": _plain(Throttled, again=True),
    "ThrottlingException": _plain(Throttled, again=True),
    "Throttling": _plain(Throttled, again=True),
    "LimitExceededException": _plain(Throttled, again=True),
    "TransactionConflictException": _plain(StoreUnavailable, again=True),
    "ReplicatedWriteConflictException": _plain(StoreUnavailable, again=True),
    "TransactionInProgressException": _plain(StoreUnavailable, unknown=True),
    "InternalServerError": _plain(StoreUnavailable, unknown=True),
    "InternalFailure": _plain(StoreUnavailable, unknown=True),
    "ServiceUnavailable": _plain(StoreUnavailable, unknown=True),
}

# The service has one code for all that is wrong with a request; its sentences are told apart by
# these words, the first that fits.
_MESSAGES: tuple[tuple[str, type[InvalidRequest]], ...] = (
    ("item size", ItemTooLarge),
    ("starting key", InvalidPageKey),
    ("exclusive start key", InvalidPageKey),
    ("exclusivestartkey", InvalidPageKey),
    ("specified index", UnknownIndex),
    ("input collection", InvalidValue),
    ("cannot include multiple operations on one item", DuplicateItem),
    ("contains duplicates", DuplicateItem),
    ("too many items", TooManyItems),
    ("length less than or equal to", TooManyItems),
    ("number overflow", InvalidNumber),
    ("number underflow", InvalidNumber),
    ("precision up to 38", InvalidNumber),
    ("significant digits", InvalidNumber),
    ("numeric value", InvalidNumber),
    ("index key", InvalidKey),
    ("indexkey", InvalidKey),
    ("missing the key", InvalidKey),
    ("key element", InvalidKey),
    ("type mismatch for key", InvalidKey),
    ("size of hashkey", InvalidKey),
    ("size of rangekey", InvalidKey),
    ("for a key attribute", InvalidKey),
    ("schema type", InvalidKey),
    ("number of conditions on the keys", InvalidKey),
    ("may not contain", InvalidValue),
    ("part of the key", InvalidExpression),
    ("expression", InvalidExpression),
    ("document path", InvalidExpression),
    ("attributevalue", InvalidValue),
    ("may not be empty", InvalidValue),
    ("nesting levels", InvalidValue),
)
