"""The operations as data, their results, and the engine interface.

An operation refers to its table by declaration, so every engine can validate it before sending or
writing anything. With `is_parsed`, its expressions come from a request in DynamoDB's protocol: the
parser has checked their limits, and those of the encoded form do not apply. Results carry the
consumed capacity, as the service reports it or as DynamoDB's rules compute it.
"""

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct

from tally.store.changes import Change, ChangePage
from tally.store.errors import InvalidRequest, StoreError
from tally.store.expressions import Action, Condition, Path
from tally.store.schema import Table
from tally.store.values import Item, Key

T = TypeVar("T")

MAX_BATCH_GET = 100
MAX_BATCH_WRITE = 25
MAX_TRANSACTION = 100
MAX_PAGE_BYTES = 1024 * 1024
MAX_BATCH_GET_BYTES = 16 * 1024 * 1024
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024
MAX_SEGMENTS = 1_000_000
MAX_LIMIT = 2**31 - 1

Returns: TypeAlias = Literal["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"]


class Get(Struct, frozen=True):
    """Read one item by its key."""

    table: Table
    key: Key
    projection: tuple[Path, ...] = ()
    consistent: bool = False


class Put(Struct, frozen=True, gc=False):
    """Write an item, replacing an existing one."""

    table: Table
    item: Item
    condition: Condition | None = None
    returns: Returns = "NONE"
    is_parsed: bool = False


class Update(Struct, frozen=True):
    """Change an item, or create it if it does not exist and the condition allows it."""

    table: Table
    key: Key
    actions: tuple[Action, ...]
    condition: Condition | None = None
    returns: Returns = "NONE"
    is_parsed: bool = False


class Delete(Struct, frozen=True):
    """Delete the item at a key; deleting a missing item is not an error."""

    table: Table
    key: Key
    condition: Condition | None = None
    returns: Returns = "NONE"
    is_parsed: bool = False


class Check(Struct, frozen=True):
    """A condition that must be true for the transaction to be applied."""

    table: Table
    key: Key
    condition: Condition
    is_parsed: bool = False


class Query(Struct, frozen=True):
    """Read a range of one partition in sort-key order. `limit` counts items before the filter.

    The fields are DynamoDB's request parameters. With `count_only` the page has no items, only
    their number. With `whole_items` a local index returns all attributes of its items.
    """

    table: Table
    where: Condition
    index: str | None = None
    filter: Condition | None = None
    projection: tuple[Path, ...] = ()
    forward: bool = True
    limit: int | None = None
    start: Key | None = None
    consistent: bool = False
    count_only: bool = False
    whole_items: bool = False
    is_parsed: bool = False


class ScanSegment(Struct, frozen=True):
    """One of `total` disjoint parts of a table or index, which together are the whole.

    Workers that scan one segment each form a parallel scan. Numbers start at 0.
    """

    number: int
    total: int


class Scan(Struct, frozen=True):
    """Read a page of a table, an index or a segment of them, in no particular order."""

    table: Table
    index: str | None = None
    filter: Condition | None = None
    projection: tuple[Path, ...] = ()
    limit: int | None = None
    start: Key | None = None
    consistent: bool = False
    count_only: bool = False
    segment: ScanSegment | None = None
    whole_items: bool = False
    is_parsed: bool = False


class BatchGet(Struct, frozen=True):
    """Read up to 100 items of one table by their keys."""

    table: Table
    keys: tuple[Key, ...]
    projection: tuple[Path, ...] = ()
    consistent: bool = False


class BatchWrite(Struct, frozen=True):
    """Up to 25 puts and deletes in one table. A batch is not a transaction."""

    table: Table
    puts: tuple[Item, ...] = ()
    deletes: tuple[Key, ...] = ()


class Transaction(Struct, frozen=True, gc=False):
    """Up to 100 writes and checks, applied atomically.

    With a token, repeating the transaction within ten minutes has no effect.
    """

    writes: tuple["Write", ...]
    token: str | None = None


class _LazySequence(Sequence[T]):
    """A sequence that creates its elements on access."""

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> list[T]: ...
    def __getitem__(self, position: int | slice) -> T | list[T]:
        if isinstance(position, slice):
            return [self._element(index) for index in range(*position.indices(len(self)))]
        return self._element(position)

    @abstractmethod
    def _element(self, position: int) -> T:
        """Create one element."""


class ColumnarItems(_LazySequence[Item]):
    """Items with the same attributes, given as one sequence of values per attribute.

    An engine can validate and encode a whole column in one step; row-wise items would have to be
    split into columns first.
    """

    def __init__(self, values: Mapping[str, Sequence[Any]]) -> None:
        lengths = {*map(len, values.values())}
        if len(lengths) != 1:
            raise InvalidRequest(
                "ColumnarItems needs at least one column, and columns of equal length"
            )
        self.values = values
        (self._length,) = lengths

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        names = [*self.values]
        for values in zip(*self.values.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    def _element(self, position: int) -> Item:
        return {name: values[position] for name, values in self.values.items()}


class BatchPut(Struct, frozen=True):
    """One put per transaction of a TransactionBatch.

    `common` holds the attributes that all items share, `items` the attributes of each.
    """

    table: Table
    items: Sequence[Item]
    common: Item = {}
    condition: Condition | None = None


class TransactionBatch(_LazySequence[Transaction]):
    """Transactions of the same shape: transaction *n* puts item *n* of each `BatchPut`.

    The shape is given once, so an engine can write table by table without analysing each
    transaction.
    """

    def __init__(self, *puts: BatchPut) -> None:
        lengths = {len(put.items) for put in puts}
        if len(lengths) != 1:
            raise InvalidRequest(
                "TransactionBatch needs at least one BatchPut, and equally many items in each"
            )
        self.puts = puts
        (self._length,) = lengths

    def __len__(self) -> int:
        return self._length

    def _element(self, position: int) -> Transaction:
        return Transaction(
            tuple(
                Put(put.table, {**put.common, **put.items[position]}, put.condition)
                for put in self.puts
            )
        )


class ReadChanges(Struct, frozen=True):
    """Read the changes of a table after a position."""

    table: Table
    after: str | None = None


class TransactionGet(Struct, frozen=True):
    """Read up to 100 items in one consistent snapshot."""

    gets: tuple[Get, ...]


Write: TypeAlias = Put | Update | Delete | Check
Operation: TypeAlias = (
    Get
    | Put
    | Update
    | Delete
    | Query
    | Scan
    | BatchGet
    | BatchWrite
    | Transaction
    | TransactionGet
)


class Capacity(Struct, frozen=True):
    """Read and write capacity units, as DynamoDB bills them."""

    read: float = 0.0
    write: float = 0.0

    def __add__(self, other: "Capacity") -> "Capacity":
        return Capacity(self.read + other.read, self.write + other.write)


class GetResult(Struct, frozen=True):
    """The item, or None if it does not exist."""

    item: Item | None
    capacity: Capacity


# The write units of each index that a write changed; the engine may leave them out.
IndexUnits: TypeAlias = tuple[tuple[str, float], ...]


class WriteResult(Struct, frozen=True):
    """`item` is what `returns` requested, or None; `index_units` are part of the capacity."""

    item: Item | None
    capacity: Capacity
    index_units: IndexUnits = ()


class Page(Struct, frozen=True):
    """Items in order.

    `scanned` counts the items read before the filter, `count` those that passed it; `next` is the
    key of the next page, or None.
    """

    items: list[Item]
    next: Item | None
    scanned: int
    capacity: Capacity
    count: int


class BatchGetResult(Struct, frozen=True):
    """The existing items in no particular order, and the keys that were not processed."""

    items: list[Item]
    unprocessed: tuple[Key, ...]
    capacity: Capacity


class BatchWriteResult(Struct, frozen=True):
    """The writes that were not processed, or None."""

    unprocessed: BatchWrite | None
    capacity: Capacity
    index_units: IndexUnits = ()


class TransactionResult(Struct, frozen=True):
    """The cost of an applied transaction, and that of each write if the engine knows it."""

    capacity: Capacity
    parts: tuple[WriteResult, ...] = ()


class TransactionGetResult(Struct, frozen=True):
    """One entry per get, in order; None for a missing item.

    `parts` are the read units of each get, if the engine knows them.
    """

    items: list[Item | None]
    capacity: Capacity
    parts: tuple[float, ...] = ()


class Engine(Protocol):
    """The interface of a storage engine.

    Every operation validates its request first and raises only errors of `errors.py`.
    """

    name: str

    async def get(self, operation: Get) -> GetResult: ...
    async def put(self, operation: Put) -> WriteResult: ...
    async def update(self, operation: Update) -> WriteResult: ...
    async def delete(self, operation: Delete) -> WriteResult: ...
    async def query(self, operation: Query) -> Page: ...
    async def scan(self, operation: Scan) -> Page: ...
    async def batch_get(self, operation: BatchGet) -> BatchGetResult: ...
    async def batch_write(self, operation: BatchWrite) -> BatchWriteResult: ...
    async def transact(self, operation: Transaction) -> TransactionResult: ...
    async def transact_get(self, operation: TransactionGet) -> TransactionGetResult: ...

    async def transact_each(
        self, operations: Sequence[Transaction]
    ) -> list[TransactionResult | StoreError]:
        """Run independent transactions; return one result or error for each, in order.

        All are validated before the first is run.
        """

    async def create_table(self, table: Table) -> None:
        """Create the table with its indexes and TTL, and wait until it is usable.

        Raise TableExists if it exists.
        """

    async def ensure_table(self, table: Table) -> None:
        """Create the table, or change its indexes and TTL to match the declaration.

        Raise TableDiffers if the key differs.
        """

    async def drop_table(self, name: str) -> None:
        """Delete the table with all items; raise TableNotFound if it does not exist."""

    async def describe_table(self, name: str) -> Table:
        """Return the stored table, without the attributes, which only the declaration knows."""

    async def building_indexes(self, name: str) -> list[str]:
        """Return the indexes of a table that are not complete yet, sorted."""

    async def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted."""

    async def sweep(self, table: Table, now: float, limit: int) -> int:
        """Delete up to `limit` expired items and return their number.

        Return 0 if the service deletes expired items itself.
        """

    def changes(self, table: Table, after: str | None) -> AsyncGenerator[Change, None]:
        """Yield the changes after a position as they happen; None starts with the next change.

        Raise StreamNotFound, PositionExpired or PositionUnknown.
        """

    async def stream_position(self, table: Table) -> str:
        """Return the position after the last change so far; raise StreamNotFound."""

    async def read_changes(
        self, table: Table, partition: Any, after: str | None, limit: int
    ) -> ChangePage:
        """Return up to `limit` changes of a partition after a position, without waiting.

        After None, return an empty page at the end of the stream. Raise like `changes`.
        """

    async def has_changes(self, table: Table, after: str, until: str) -> bool | None:
        """Whether the log has changes of the table between two positions.

        Return None if the service cannot tell. Raise StreamNotFound, PositionExpired or
        PositionUnknown.
        """

    async def ping(self) -> None:
        """Raise StoreUnavailable if the engine does not respond."""

    async def close(self) -> None:
        """Complete pending operations and release all resources."""


def operation_name(operation: Any) -> str:
    """Return DynamoDB's name of an operation, as access patterns use it."""
    return _NAMES[type(operation)]


_NAMES: dict[type, str] = {
    Get: "GetItem",
    Put: "PutItem",
    Update: "UpdateItem",
    Delete: "DeleteItem",
    Check: "ConditionCheck",
    Query: "Query",
    Scan: "Scan",
    BatchGet: "BatchGetItem",
    BatchWrite: "BatchWriteItem",
    Transaction: "TransactWriteItems",
    TransactionBatch: "TransactWriteItems",
    TransactionGet: "TransactGetItems",
    ReadChanges: "GetRecords",
}
