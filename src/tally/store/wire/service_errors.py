"""The errors that the served store sends, and the translation of the store's own errors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tally.store.encode import item_to_wire
from tally.store.errors import (
    ConditionFailed,
    DuplicateItem,
    IndexBackfilling,
    InvalidRequest,
    ItemTooLarge,
    Reason,
    RequestTooLarge,
    StoreError,
    TableExists,
    TableNotFound,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
)
from tally.store.parse import ExpressionError

_DYNAMODB: Final = "com.amazonaws.dynamodb.v20120810#"
_CORAL: Final = "com.amazon.coral.service#"
MISMATCH: Final = "KeySchemaMismatch"  # a reason whose message already has the service's wording
DUPLICATE_ITEM: Final = "DuplicateItem"  # the code of an INSERT of an existing item
_INVALID_VALUES: Final = "One or more parameter values were invalid: "
_NOT_FOUND: Final = "Requested resource not found"


# The service writes the message of these with a capital letter.
_CAPITALIZED: Final = frozenset(
    {_CORAL + "SerializationException", _CORAL + "AccessDeniedException"}
)


class ServiceError(Exception):
    """An error response: the status, the type, the message and further fields."""

    def __init__(
        self,
        kind: str,
        message: str | None,
        status: int = 400,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"__type": kind}
        if message is not None:
            self.body["Message" if kind in _CAPITALIZED else "message"] = message
        if fields:
            self.body |= fields


def invalid(message: str) -> ServiceError:
    """Return a ValidationException."""
    return ServiceError("com.amazon.coral.validate#ValidationException", message)


def not_serializable(message: str | None) -> ServiceError:
    """Return a SerializationException: a body of the wrong structure."""
    return ServiceError(_CORAL + "SerializationException", message)


_ENVELOPE: Final = "1 validation error detected: "
_ENVELOPED: Final = (
    *("Invalid UpdateExpression: ", "Invalid ConditionExpression: "),
    *("ExpressionAttributeValues contains invalid value: One", "Can not use both expression"),
    "ExpressionAttributeValues contains invalid value: Input",
    "ExpressionAttributeValues can only be specified",
    *("Input collection contains duplicates", f"{_INVALID_VALUES}Input collection ["),
    *(f"{_INVALID_VALUES}An ", f"{_INVALID_VALUES}Binary sets", f"{_INVALID_VALUES}Null attribute"),
    *(f"{_INVALID_VALUES}Value ", f"{_INVALID_VALUES}Exists and ComparisonOperator"),
)


def in_envelope(operation: str, error: ServiceError) -> ServiceError:
    """Return the error of a request as PutItem and UpdateItem report it.

    The service rewrote the validation of these two; errors in their parameters have a prefix that
    other operations use only for constraints.
    """
    message = str(error)
    is_enveloped = operation in ("PutItem", "UpdateItem") and message.startswith(_ENVELOPED)
    if not is_enveloped or message.endswith("The expression can not be empty;"):
        return error
    return ServiceError(error.body["__type"], _ENVELOPE + message, error.status)


def coral_error(name: str, message: str | None = None, status: int = 400) -> ServiceError:
    """Return an error of the front end, before an operation runs."""
    return ServiceError(_CORAL + name, message, status)


def dynamodb_error(name: str, message: str, **fields: Any) -> ServiceError:
    """Return an error of an operation."""
    return ServiceError(_DYNAMODB + name, message, fields=fields)


def table_not_found(name: str) -> ServiceError:
    """Return the error of the control plane, which names the table."""
    message = f"{_NOT_FOUND}: Table: {name} not found"
    return dynamodb_error("ResourceNotFoundException", message)


_OVERFLOW: Final = (
    "Number overflow. Attempting to store a number with magnitude larger than supported range"
)
_UNDERFLOW: Final = (
    "Number underflow. Attempting to store a number with magnitude smaller than supported range"
)
_MISSING: Final = "The provided expression refers to an attribute that does not exist in the item"
_PATH: Final = "The document path provided in the update expression is invalid for update"
_TYPE: Final = "An operand in the update expression has an incorrect data type"
_DIGITS: Final = "Attempting to store more than 38 significant digits in a Number"
_INDEX_KEY_TYPE: Final = (
    _INVALID_VALUES + r"Type mismatch for Index Key \2 Expected: \3 Actual: \4 IndexName: \1"
)
_EMPTY_INDEX_KEY: Final = (
    "One or more parameter values are not valid. A value specified for a secondary index key is not"
    " supported. The AttributeValue for a key attribute cannot contain an empty string value."
    r" IndexName: \1, IndexKey: \2"
)
_LONG_INDEX_KEY: Final = (
    _INVALID_VALUES
    + r"Size limit exceeded for Index Key \2 Actual Size: \3 bytes Max Size: \4 bytes IndexName: \1"
)
_LARGE_TRANSACTION: Final = "The aggregate size of the items in the transaction exceeded 4 MB"
# What the engine finds out with the item at hand. The first matching pattern decides.
_EVALUATION_ERRORS: Final = (
    (r"which does not exist in the item$", _MISSING),
    (r"the path of the update", _PATH),
    (r"^(add to|discard from|list_append requires|[+-] requires)", _TYPE),
    (r"has more than 38 digits", _DIGITS),
    (r"magnitude of a number must be at most", _OVERFLOW),
    (r"magnitude of a number must be at least", _UNDERFLOW),
    (r"at most 38 significant digits", _DIGITS),
    (r"index (\S+): the key attribute (.+) is of type (\w+), not (\w+)$", _INDEX_KEY_TYPE),
    (r"index (\S+): the key attribute (.+) is empty$", _EMPTY_INDEX_KEY),
    (
        r"index (\S+): the key attribute (.+) has (\d+) bytes; the limit is (\d+)",
        _LONG_INDEX_KEY,
    ),
    (r"an attribute name must have .*, not 0$", "Empty attribute name"),
    (
        r"an attribute name must have 1 to \d+ bytes, not",
        "Attribute name is too large, must be less than 65536 bytes",
    ),
    (r"values may nest at most", "Nesting Levels have exceeded supported limits"),
)
_EVALUATION: Final = tuple((re.compile(pattern), text) for pattern, text in _EVALUATION_ERRORS)


def translate(error: StoreError, *, with_item: bool = False) -> ServiceError:
    """Return the service's error for an error of the store."""
    if isinstance(error, ConditionFailed):
        fields = {"Item": item_to_wire(error.item)} if with_item and error.item else {}
        return dynamodb_error(
            "ConditionalCheckFailedException", "The conditional request failed", **fields
        )
    if isinstance(error, InvalidRequest):
        return invalid(validation_message(error))
    if isinstance(error, TableNotFound):
        return dynamodb_error("ResourceNotFoundException", _NOT_FOUND)
    if isinstance(error, TableExists):
        return dynamodb_error("ResourceInUseException", "Table already exists")
    if isinstance(error, TokenMismatch):
        return dynamodb_error("IdempotentParameterMismatchException", str(error))
    if isinstance(error, IndexBackfilling):
        return invalid("Cannot read from backfilling global secondary index")
    if isinstance(error, Throttled):
        return dynamodb_error("ProvisionedThroughputExceededException", str(error))
    return ServiceError(_DYNAMODB + "InternalServerError", "The store is unavailable", 500)


def validation_message(error: StoreError) -> str:
    """Return the service's wording of an invalid request."""
    text = str(error)
    if isinstance(error, ExpressionError):
        return text
    if isinstance(error, ItemTooLarge):
        return "Item size to update has exceeded the maximum allowed size"
    if isinstance(error, DuplicateItem):
        return "Transaction request cannot include multiple operations on one item"
    if isinstance(error, RequestTooLarge):
        return _LARGE_TRANSACTION
    for pattern, message in _EVALUATION:
        match = pattern.search(text)
        if match is not None:
            return match.expand(message)
    return f"{_INVALID_VALUES}{text}"


def cancelled(error: TransactionCancelled, with_items: list[bool]) -> ServiceError:
    """Return the error of a cancelled transaction, with a reason for each item."""
    reasons = [
        _reason(reason, with_item=with_item)
        for reason, with_item in zip(error.reasons, with_items, strict=True)
    ]
    codes = ", ".join(reason["Code"] for reason in reasons)
    return ServiceError(
        _DYNAMODB + "TransactionCanceledException",
        None,
        fields={
            "Message": "Transaction cancelled, please refer cancellation reasons for specific"
            f" reasons [{codes}]",
            "CancellationReasons": reasons,
        },
    )


def _reason(reason: Reason, *, with_item: bool) -> dict[str, Any]:
    if reason.code == "None":
        return {"Code": "None"}
    if reason.condition_failed:
        item = {"Item": item_to_wire(reason.item)} if with_item and reason.item else {}
        return {"Code": reason.code, "Message": "The conditional request failed", **item}
    if reason.code == DUPLICATE_ITEM:
        return {"Code": reason.code, "Message": reason.message}
    if reason.code == MISMATCH:
        return {"Code": "ValidationError", "Message": reason.message}
    message = validation_message(InvalidRequest(reason.message))
    return {"Code": reason.code, "Message": message}
