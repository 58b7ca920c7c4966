"""Each error of the service is mapped to one of the store's errors."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ParamValidationError

from tally.store.dynamodb.error_mapping import OperationNotSupported, map_error
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


def client_error(
    code: str, message: str = "it said so", status: int = 400, **fields: Any
) -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **fields,
    }
    return ClientError(response, "PutItem")


@pytest.mark.parametrize(
    ("code", "kind", "again"),
    [
        ("ConditionalCheckFailedException", ConditionFailed, False),
        ("IdempotentParameterMismatchException", TokenMismatch, False),
        ("ResourceNotFoundException", TableNotFound, False),
        ("ResourceInUseException", TableExists, False),
        ("ItemCollectionSizeLimitExceededException", RequestRejected, False),
        ("ValidationException", InvalidRequest, False),
        ("SerializationException", InvalidRequest, False),
        ("UnknownOperationException", OperationNotSupported, False),
        ("ProvisionedThroughputExceededException", Throttled, True),
        ("RequestLimitExceeded", Throttled, True),
        ("ThrottlingException", Throttled, True),
        ("LimitExceededException", Throttled, True),
        ("TransactionConflictException", StoreUnavailable, True),
        ("ReplicatedWriteConflictException", StoreUnavailable, True),
    ],
)
def test_each_code_maps_to_one_error_type(code: str, kind: type[StoreError], again: bool) -> None:
    fault = map_error(client_error(code), "PutItem on readings")

    assert type(fault.error) is kind
    assert str(fault.error) == "PutItem on readings: it said so"
    assert (fault.retryable, fault.outcome_unknown) == (again, False)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InternalServerError", 500),
        ("ServiceUnavailable", 503),
        ("TransactionInProgressException", 400),
        ("SomethingNew", 500),
    ],
)
def test_a_failure_in_the_middle_leaves_the_outcome_unknown(code: str, status: int) -> None:
    fault = map_error(client_error(code, status=status), "PutItem")

    assert type(fault.error) is StoreUnavailable
    assert (fault.retryable, fault.outcome_unknown) == (False, True)


def test_an_unknown_code_is_unavailable_and_named() -> None:
    fault = map_error(
        client_error(
            "ExpiredTokenException", "The security token included in the request is expired"
        ),
        "GetItem",
    )

    assert type(fault.error) is StoreUnavailable
    assert "ExpiredTokenException" in str(fault.error)
    assert (fault.retryable, fault.outcome_unknown) == (False, False)


def test_a_request_that_is_too_large_has_its_own_error() -> None:
    assert (
        type(map_error(client_error("RequestEntityTooLarge", status=413), "BatchWriteItem").error)
        is RequestTooLarge
    )


def test_missing_credentials_are_unavailable() -> None:
    assert type(map_error(NoCredentialsError(), "GetItem").error) is StoreUnavailable


def test_a_request_that_the_client_will_not_send_is_invalid() -> None:
    assert (
        type(map_error(ParamValidationError(report="Unknown parameter"), "GetItem").error)
        is InvalidRequest
    )


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Item size has exceeded the maximum allowed size", ItemTooLarge),
        ("Item size to update has exceeded the maximum allowed size", ItemTooLarge),
        ("The provided starting key is invalid", InvalidPageKey),
        ("The provided starting key does not match the range key predicate", InvalidPageKey),
        ("Exclusive Start Key must have same size as table's key schema", InvalidPageKey),
        ("The table does not have the specified index: by-day", UnknownIndex),
        ("Cannot read from backfilling global secondary index: by-day", IndexBackfilling),
        ("Transaction request cannot include multiple operations on one item", DuplicateItem),
        ("Provided list of item keys contains duplicates", DuplicateItem),
        ("Too many items requested for the BatchWriteItem call", TooManyItems),
        ("Member must have length less than or equal to 10", TooManyItems),
        (
            (
                "Number overflow. Attempting to store a number with magnitude larger than supported"
                " range"
            ),
            InvalidNumber,
        ),
        ("Attempting to store more than 38 significant digits in a Number", InvalidNumber),
        ("DynamoDB only supports precision up to 38 digits", InvalidNumber),
        ("The parameter cannot be converted to a numeric value: seven", InvalidNumber),
        (
            (
                "One or more parameter values were invalid: Type mismatch for Index Key g Expected:"
                " S Actual: N IndexName: gsi"
            ),
            InvalidKey,
        ),
        (
            (
                "One or more parameter values were invalid: Type mismatch for key id expected: S"
                " actual: N"
            ),
            InvalidKey,
        ),
        ("One or more parameter values were invalid: Missing the key id in the item", InvalidKey),
        ("The provided key element does not match the schema", InvalidKey),
        (
            (
                "The update expression attempted to update a secondary index key to a value that is"
                " not supported"
            ),
            InvalidKey,
        ),
        (
            "The AttributeValue for a key attribute cannot contain an empty string value. Key: id",
            InvalidKey,
        ),
        ("Size of hashkey has exceeded the maximum size limit of2048 bytes", InvalidKey),
        ("The aggregate size of the items in the transaction exceeded 4 MB", RequestTooLarge),
        (
            "The document path provided in the update expression is invalid for update",
            InvalidExpression,
        ),
        ("An operand in the update expression has an incorrect data type", InvalidExpression),
        (
            "The provided expression refers to an attribute that does not exist in the item",
            InvalidExpression,
        ),
        (
            "Invalid ConditionExpression: Expression size has exceeded the maximum allowed size",
            InvalidExpression,
        ),
        (
            (
                "One or more parameter values were invalid: An AttributeValue may not contain an"
                " empty string"
            ),
            InvalidValue,
        ),
        (
            "One or more parameter values were invalid: An string set  may not be empty",
            InvalidValue,
        ),
        (
            "Nesting Levels have exceeded supported limits: Attributes have nested depth of 33",
            InvalidValue,
        ),
        (
            (
                "ExpressionAttributeValues contains invalid value: An AttributeValue may not"
                " contain an empty string for key :v0"
            ),
            InvalidValue,
        ),
        (
            (
                "One or more parameter values were invalid: Input collection [a, a] contains"
                " duplicates."
            ),
            InvalidValue,
        ),
        ("Cannot update attribute id. This attribute is part of the key", InvalidExpression),
        ("Something else is wrong", InvalidRequest),
    ],
)
def test_a_validation_error_is_read_by_its_message(
    message: str, kind: type[InvalidRequest]
) -> None:
    fault = map_error(client_error("ValidationException", message), "UpdateItem on readings")

    assert type(fault.error) is kind
    assert message in str(fault.error)
    assert (fault.retryable, fault.outcome_unknown) == (False, False)


def test_a_table_named_like_an_error_message_is_not_confused_with_it() -> None:
    fault = map_error(
        client_error("ValidationException", "Something else is wrong"), "PutItem on expression-log"
    )

    assert type(fault.error) is InvalidRequest


def test_a_failed_condition_contains_the_existing_item() -> None:
    error = client_error(
        "ConditionalCheckFailedException", Item={"id": {"S": "one"}, "count": {"N": "3"}}
    )

    fault = map_error(error, "PutItem")

    assert isinstance(fault.error, ConditionFailed)
    assert fault.error.item == {"id": "one", "count": 3}


def test_a_failed_condition_without_an_item_has_none() -> None:
    fault = map_error(client_error("ConditionalCheckFailedException"), "PutItem")

    assert isinstance(fault.error, ConditionFailed)
    assert fault.error.item is None


def test_the_reasons_of_a_cancelled_transaction_line_up_with_its_items() -> None:
    reasons = [
        {"Code": "None"},
        {
            "Code": "ConditionalCheckFailed",
            "Message": "The conditional request failed",
            "Item": {"id": {"S": "two"}},
        },
        {"Code": "ValidationError", "Message": "An operand has an incorrect data type"},
    ]

    fault = map_error(
        client_error("TransactionCanceledException", CancellationReasons=reasons),
        "TransactWriteItems",
    )

    assert isinstance(fault.error, TransactionCancelled)
    none, failed, invalid = fault.error.reasons
    assert (none.code, none.item) == ("None", None)
    assert (failed.condition_failed, failed.item) == (True, {"id": "two"})
    assert (invalid.code, invalid.message) == (
        "ValidationError",
        "An operand has an incorrect data type",
    )
    assert not fault.retryable


@pytest.mark.parametrize(
    ("codes", "again"),
    [
        (("TransactionConflict", "None"), True),
        (("TransactionConflict", "ThrottlingError"), True),
        (("TransactionConflict", "ConditionalCheckFailed"), False),
        (("ItemCollectionSizeLimitExceeded", "None"), False),
        ((), False),
    ],
)
def test_a_cancelled_transaction_may_pass_later_if_every_obstacle_may(
    codes: tuple[str, ...], again: bool
) -> None:
    reasons = [{"Code": code} for code in codes]

    fault = map_error(
        client_error("TransactionCanceledException", CancellationReasons=reasons),
        "TransactWriteItems",
    )

    assert isinstance(fault.error, TransactionCancelled)
    assert fault.retryable is again
