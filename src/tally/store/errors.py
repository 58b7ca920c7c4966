"""Every error of the store.

There are three families. `InvalidRequest`: the caller's mistake, detected before anything is
written. `RequestRejected`: the request is valid but the store rejects it (failed condition,
cancelled transaction, missing table). `StoreUnavailable`: the machine or the service fails; retry
later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class StoreError(Exception):
    """Base class of all errors of the store."""


class InvalidRequest(StoreError):
    """The request is invalid; nothing was read or written."""


class InvalidValue(InvalidRequest):
    """A value is not of one of the ten types, or violates a rule of its type."""


class InvalidNumber(InvalidValue):
    """A number has more than 38 digits, is out of range, or is a float, which is not exact."""


class InvalidKey(InvalidRequest):
    """A key attribute is missing, empty, too long, of the wrong type, or not part of the key."""


class InvalidExpression(InvalidRequest):
    """A condition, update, projection or key condition is invalid."""


class ItemTooLarge(InvalidRequest):
    """An item is larger than 400 KB."""


class TooManyItems(InvalidRequest):
    """A batch or a transaction has more items than one request allows."""


class RequestTooLarge(InvalidRequest):
    """The items of a batch or a transaction exceed the size limit of one request."""


class DuplicateItem(InvalidRequest):
    """A batch or a transaction names the same item twice."""


class UnknownIndex(InvalidRequest):
    """The table has no index with this name."""


class InvalidPageKey(InvalidRequest):
    """A page key has the wrong attributes, or is outside the query's range."""


class InvalidSchema(InvalidRequest):
    """A table declaration is inconsistent or violates DynamoDB's rules."""


class AccessViolation(InvalidRequest):
    """An access that no pattern declares.

    Wrong table or operation, undeclared Scan, unbounded paging.
    """


class BoundExceeded(AccessViolation):
    """A call read or wrote more items than the bound of its access pattern, or of the call."""


class InvalidLockFile(InvalidRequest):
    """A schema lock file is damaged or has a newer format."""


class RequestRejected(StoreError):
    """The request is valid and the store rejected it."""


class ConditionFailed(RequestRejected):
    """The condition of a write was false. `item` is the existing item, if the engine returns it."""

    def __init__(self, message: str, item: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """The result of one item of a cancelled transaction.

    The code "None" means that it did not fail.
    """

    code: str
    message: str = ""
    item: Mapping[str, Any] | None = None

    @property
    def condition_failed(self) -> bool:
        """Whether this item's condition was false."""
        return self.code == "ConditionalCheckFailed"


class TransactionCancelled(RequestRejected):
    """A transaction was not applied. `reasons` correspond one to one to its items."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("transaction cancelled: " + ", ".join(reason.code for reason in reasons))
        self.reasons = tuple(reasons)

    def __reduce__(self) -> tuple[type["TransactionCancelled"], tuple[Sequence[Reason]]]:
        return type(self), (self.reasons,)  # the writer process sends it pickled


class TokenMismatch(RequestRejected):
    """The client token was used for a different transaction."""


class TableNotFound(RequestRejected):
    """The table does not exist."""


class TableExists(RequestRejected):
    """The table already exists."""


class TableDiffers(RequestRejected):
    """The stored table has a different key; a key cannot be changed."""


class StreamNotFound(RequestRejected):
    """The table has no stream."""


class PositionExpired(RequestRejected):
    """Changes after the position were trimmed: the consumer has missed some."""


class PositionUnknown(RequestRejected):
    """The position is of another stream, database or engine."""


class StoreUnavailable(StoreError):
    """The engine cannot serve the request now."""


class Throttled(StoreUnavailable):
    """The service kept throttling requests until the retry policy gave up."""


class OutcomeUnknown(StoreUnavailable):
    """The connection broke before the response to a write arrived.

    It may or may not have been applied.
    """


class StorageFull(StoreUnavailable):
    """The disk is full. Acknowledged writes are safe."""


class StorageUnwritable(StoreUnavailable):
    """The data directory or its database is not writable or not a database."""


class StorageTooNew(StoreUnavailable):
    """A newer version of Tally wrote the data directory."""


class StorageDamaged(StorageUnwritable):
    """The database is damaged: a checksum, a page, an item or the write-ahead log is invalid.

    Retrying does not help; an operator must restore a backup.
    """


class WritesPaused(StoreUnavailable):
    """The store does not accept writes, because its data moves or has moved to another one."""


class IndexBackfilling(StoreUnavailable):
    """The index is new and does not contain all items yet; a later request may succeed."""
