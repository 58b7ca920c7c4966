"""Maps the service's errors to the store's, and decides whether a request may be retried.

`_CODES` maps DynamoDB's error codes; `_MESSAGES` distinguishes the causes of a
`ValidationException`. A `MappedError` adds two facts. `retryable`: the request was certainly not
applied and may succeed later. `outcome_unknown`: the request may have been applied, because the
connection broke or the service failed midway.
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
    IndexBackfilling,
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidPageKey,
    InvalidRequest,
    InvalidValue,
    ItemTooLarge,
    PositionExpired,
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
    """The service does not implement this operation; some emulators have no TTL."""


class IteratorExpired(StoreUnavailable):
    """A shard iterator is older than 15 minutes; another one continues."""


@dataclass(frozen=True, slots=True)
class MappedError:
    """The error of one failed attempt."""

    error: StoreError
    retryable: bool = False
    outcome_unknown: bool = False


# Proof that the service received nothing: the connection failed. The client reports a reset during
# a request with the same class as a rejected connection, so only the underlying cause is reliable.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

_TRANSIENT_REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


def map_error(error: Exception, context: str) -> MappedError:
    """Map an exception of the client.

    `context` names the operation and the table in the message.
    """
    if isinstance(error, ClientError):
        return _map_response(error, context)
    if isinstance(error, ParamValidationError):
        return MappedError(InvalidRequest(f"{context}: {error}"))
    cause = getattr(error, "kwargs", {}).get("error")
    not_sent = isinstance(cause, _NOT_SENT)
    return MappedError(
        StoreUnavailable(f"{context}: {error}"), retryable=not_sent, outcome_unknown=not not_sent
    )


def _map_response(error: ClientError, context: str) -> MappedError:
    response: Mapping[str, Any] = error.response
    code = response.get("Error", {}).get("Code", "")
    message = f"{context}: {response.get('Error', {}).get('Message', '') or code}"
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _CODES:
        return _CODES[code](message, response)
    if status >= 500:
        return MappedError(StoreUnavailable(message), outcome_unknown=True)
    if status == 413:
        return MappedError(RequestTooLarge(message))
    return MappedError(StoreUnavailable(f"{message} ({code})"))


def _simple(
    kind: Callable[[str], StoreError], *, retryable: bool = False, outcome_unknown: bool = False
) -> "_Mapper":
    return lambda message, _response: MappedError(kind(message), retryable, outcome_unknown)


def _condition_failed(message: str, response: Mapping[str, Any]) -> MappedError:
    return MappedError(ConditionFailed(message, _item(response)))


def _transaction_cancelled(message: str, response: Mapping[str, Any]) -> MappedError:
    """Retry conflicts and throttling, unless another reason is permanent."""
    reasons = [
        Reason(reason.get("Code") or "None", reason.get("Message") or "", _item(reason))
        for reason in response.get("CancellationReasons", ())
    ]
    failures = {reason.code for reason in reasons} - {"None"}
    if failures and failures <= set(_TRANSIENT_REASONS[1:]):
        return MappedError(Throttled(message), retryable=True)
    return MappedError(
        TransactionCancelled(reasons),
        retryable=bool(failures) and failures <= set(_TRANSIENT_REASONS),
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


_Mapper = Callable[[str, Mapping[str, Any]], MappedError]

_CODES: dict[str, _Mapper] = {
    "ConditionalCheckFailedException": _condition_failed,
    "TransactionCanceledException": _transaction_cancelled,
    "IdempotentParameterMismatchException": _simple(TokenMismatch),
    "ResourceNotFoundException": _simple(TableNotFound),
    "TableNotFoundException": _simple(TableNotFound),
    "ResourceInUseException": _simple(TableExists),
    "TableAlreadyExistsException": _simple(TableExists),
    "ItemCollectionSizeLimitExceededException": _simple(RequestRejected),
    "ValidationException": _invalid,
    "SerializationException": _simple(InvalidRequest),
    "UnknownOperationException": _simple(OperationNotSupported),
    "ProvisionedThroughputExceededException": _simple(Throttled, retryable=True),
    "RequestLimitExceeded": _simple(Throttled, retryable=True),
    "ThrottlingException": _simple(Throttled, retryable=True),
    "Throttling": _simple(Throttled, retryable=True),
    "LimitExceededException": _simple(Throttled, retryable=True),
    "ExpiredIteratorException": _simple(IteratorExpired),
    "TrimmedDataAccessException": _simple(PositionExpired),
    "TransactionConflictException": _simple(StoreUnavailable, retryable=True),
    "ReplicatedWriteConflictException": _simple(StoreUnavailable, retryable=True),
    "TransactionInProgressException": _simple(StoreUnavailable, outcome_unknown=True),
    "InternalServerError": _simple(StoreUnavailable, outcome_unknown=True),
    "InternalFailure": _simple(StoreUnavailable, outcome_unknown=True),
    "ServiceUnavailable": _simple(StoreUnavailable, outcome_unknown=True),
}

# The service uses one code for all invalid requests. The first matching fragment decides.
_MESSAGES: tuple[tuple[str, type[StoreError]], ...] = (
    ("size of the items in the transaction", RequestTooLarge),
    ("item size", ItemTooLarge),
    ("starting key", InvalidPageKey),
    ("exclusive start key", InvalidPageKey),
    ("exclusivestartkey", InvalidPageKey),
    ("specified index", UnknownIndex),
    ("backfilling global secondary index", IndexBackfilling),
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
