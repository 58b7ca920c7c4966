"""Everything the store can refuse, each with a type of its own.

Three families: an `InvalidRequest` is the caller's mistake and is found before anything is written;
a `RequestRejected` is the store's answer to a well-formed request (a failed condition, a cancelled
transaction, a missing table); an `StoreUnavailable` is the machine's or the service's trouble, and may
be tried again later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class StoreError(Exception):
    """The root of all that the store raises."""


class InvalidRequest(StoreError):
    """The request is wrong in itself; nothing was read or written."""


class InvalidValue(InvalidRequest):
    """A value is not one of the ten types, or breaks a rule of its type."""


class InvalidNumber(InvalidValue):
    """A number has more than 38 digits, is out of range, or is a float, which would not be exact."""


class InvalidKey(InvalidRequest):
    """A key attribute is missing, empty, too long, of the wrong type, or is not part of the key."""


class InvalidExpression(InvalidRequest):
    """A condition, update, projection or key condition cannot mean anything."""


class ItemTooLarge(InvalidRequest):
    """An item is larger than 400 KB."""


class TooManyItems(InvalidRequest):
    """A batch or a transaction holds more items than one request may."""


class RequestTooLarge(InvalidRequest):
    """The items of a batch or a transaction are together larger than one request may be."""


class DuplicateItem(InvalidRequest):
    """A batch or a transaction names one item twice."""


class UnknownIndex(InvalidRequest):
    """The table has no index of that name."""


class InvalidPageKey(InvalidRequest):
    """A page key was not made by this query: it has other attributes, or points outside of the query's range."""


class InvalidSchema(InvalidRequest):
    """A table's declaration contradicts itself or DynamoDB's rules."""


class AccessViolation(InvalidRequest):
    """An access that no pattern declares: another table or operation, an unannounced Scan, an endless page loop."""


class BoundExceeded(AccessViolation):
    """A call read or wrote more items than its access pattern's bound, or the bound that it gave itself."""


class InvalidLockFile(InvalidRequest):
    """A schema lock file cannot be read: it is damaged, or of a newer format."""


class RequestRejected(StoreError):
    """The request was understood, and the answer is no."""


class ConditionFailed(RequestRejected):
    """The condition of a write did not hold. `item` is what stood there, where the engine tells."""

    def __init__(self, message: str, item: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.item = item


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one item of a transaction did or did not stand in its way: code "None" means that it did not."""

    code: str
    message: str = ""
    item: Mapping[str, Any] | None = None

    @property
    def condition_failed(self) -> bool:
        """Whether this item's own condition was the obstacle."""
        return self.code == "ConditionalCheckFailed"


class TransactionCancelled(RequestRejected):
    """A transaction was not applied. `reasons` line up one to one with its items."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("transaction cancelled: " + ", ".join(reason.code for reason in reasons))
        self.reasons = tuple(reasons)

    def __reduce__(self) -> tuple[type["TransactionCancelled"], tuple[Sequence[Reason]]]:
        return type(self), (self.reasons,)  # it goes from one process to another


class TokenMismatch(RequestRejected):
    """A client token was used before for another transaction."""


class TableNotFound(RequestRejected):
    """There is no such table."""


class TableExists(RequestRejected):
    """There is already a table of that name."""


class TableDiffers(RequestRejected):
    """The stored table's key differs from the declared one, and a key cannot be changed."""


class StoreUnavailable(StoreError):
    """The store cannot answer now."""


class Throttled(StoreUnavailable):
    """The service asks to slow down, and kept asking for longer than we retried."""


class OutcomeUnknown(StoreUnavailable):
    """The connection broke after a write was sent and before it was answered: it may or may not have been applied."""


class StorageFull(StoreUnavailable):
    """The disk is full. What was acknowledged before is safe."""


class StorageUnwritable(StoreUnavailable):
    """The data directory, or the database in it, cannot be written or is not a database."""


class StorageTooNew(StoreUnavailable):
    """The data directory was written by a newer version of Tally."""
