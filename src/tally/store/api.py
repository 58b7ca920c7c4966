"""The operations as data, their results, and what an engine is.

An operation names its table by declaration, so every engine can check it before anything is sent or
written. Engines answer with the consumed capacity, reported by the service or computed by
DynamoDB's rules.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct

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
MAX_BATCH_WRITE_BYTES = 16 * 1024 * 1024
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024

Returns: TypeAlias = Literal["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"]


class Get(Struct, frozen=True):
    """One item by its key."""

    table: Table
    key: Key
    projection: tuple[Path, ...] = ()
    consistent: bool = False


class Put(Struct, frozen=True, gc=False):
    """An item, in place of whatever stood there."""

    table: Table
    item: Item
    condition: Condition | None = None
    returns: Returns = "NONE"


class Update(Struct, frozen=True):
    """Steps that change an item, or make it where there is none and the condition lets it be."""

    table: Table
    key: Key
    actions: tuple[Action, ...]
    condition: Condition | None = None
    returns: Returns = "NONE"


class Delete(Struct, frozen=True):
    """No item at this key; deleting nothing is no error."""

    table: Table
    key: Key
    condition: Condition | None = None
    returns: Returns = "NONE"


class Check(Struct, frozen=True):
    """A condition that must hold for the rest of a transaction to happen."""

    table: Table
    key: Key
    condition: Condition


class Query(Struct, frozen=True):
    """A range of one partition, in the order of the sort key.

    `limit` counts items before the filter.
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


class Scan(Struct, frozen=True):
    """A page of a whole table or index, in no promised order."""

    table: Table
    index: str | None = None
    filter: Condition | None = None
    projection: tuple[Path, ...] = ()
    limit: int | None = None
    start: Key | None = None
    consistent: bool = False


class BatchGet(Struct, frozen=True):
    """Up to 100 items of one table by their keys."""

    table: Table
    keys: tuple[Key, ...]
    projection: tuple[Path, ...] = ()
    consistent: bool = False


class BatchWrite(Struct, frozen=True):
    """Up to 25 puts and deletes in one table, each on its own: a batch is not a transaction."""

    table: Table
    puts: tuple[Item, ...] = ()
    deletes: tuple[Key, ...] = ()


class Transaction(Struct, frozen=True, gc=False):
    """Up to 100 writes and checks that happen together or not at all; a token makes a retry within ten minutes harmless."""

    writes: tuple["Write", ...]
    token: str | None = None


class _Made(Sequence[T]):
    """A sequence whose elements are made when they are asked for."""

    @overload
    def __getitem__(self, position: int) -> T: ...
    @overload
    def __getitem__(self, position: slice) -> list[T]: ...
    def __getitem__(self, position: int | slice) -> T | list[T]:
        if isinstance(position, slice):
            return [self._made(each) for each in range(*position.indices(len(self)))]
        return self._made(position)

    @abstractmethod
    def _made(self, position: int) -> T:
        """The element at one place."""


class ColumnarItems(_Made[Item]):
    """Items with the same attributes, told by attribute: what each of them has under a name, in their order.

    It saves an engine that can check and encode an attribute of many items at once from taking
    items apart that a caller has just put together.
    """

    def __init__(self, values: Mapping[str, Sequence[Any]]) -> None:
        if len({*map(len, values.values())}) != 1:
            raise InvalidRequest(
                "columns have the same number of values, and there is at least one"
            )
        self.values = values

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def _made(self, position: int) -> Item:
        return {name: values[position] for name, values in self.values.items()}


class BatchPut(Struct, frozen=True):
    """A put into the same table in each of many transactions: what all the items have in common, and what each has besides."""

    table: Table
    items: Sequence[Item]
    common: Item = {}
    condition: Condition | None = None


class TransactionBatch(_Made[Transaction]):
    """As many transactions as each of the puts has items: the first is of everyone's first item, and so on.

    It saves an engine that can write table by table from looking for what a caller knows, and says
    once what is the same in all.
    """

    def __init__(self, *puts: BatchPut) -> None:
        if len({len(each.items) for each in puts}) != 1:
            raise InvalidRequest("transactions that are alike have the same puts, at least one")
        self.puts = puts

    def __len__(self) -> int:
        return len(self.puts[0].items)

    def _made(self, position: int) -> Transaction:
        return Transaction(
            tuple(
                Put(each.table, {**each.common, **each.items[position]}, each.condition)
                for each in self.puts
            )
        )


class TransactionGet(Struct, frozen=True):
    """Up to 100 items as they stood together at one moment."""

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
    """Read and write units, as DynamoDB bills them."""

    read: float = 0.0
    write: float = 0.0

    def __add__(self, other: "Capacity") -> "Capacity":
        return Capacity(self.read + other.read, self.write + other.write)


class GetResult(Struct, frozen=True):
    item: Item | None
    capacity: Capacity


class WriteResult(Struct, frozen=True):
    """`item` is what `returns` asked for, or None."""

    item: Item | None
    capacity: Capacity


class Page(Struct, frozen=True):
    """Items in order, how many were looked at before the filter, and the key to go on from, None at the end."""

    items: list[Item]
    next: Item | None
    scanned: int
    capacity: Capacity


class BatchGetResult(Struct, frozen=True):
    """What was found, in no promised order, and the keys that this request did not get to."""

    items: list[Item]
    unprocessed: tuple[Key, ...]
    capacity: Capacity


class BatchWriteResult(Struct, frozen=True):
    """What this request did not get to."""

    unprocessed: BatchWrite | None
    capacity: Capacity


class TransactionResult(Struct, frozen=True):
    capacity: Capacity


class TransactionGetResult(Struct, frozen=True):
    """One entry for each get, in its order; None where there is no item."""

    items: list[Item | None]
    capacity: Capacity


class Engine(Protocol):
    """What stands behind the store.

    All operations check their request first, and raise only what `errors.py` lists.
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
        """Many transactions at once, each on its own: what became of each, in their order.

        All are checked before the first.
        """

    async def create_table(self, table: Table) -> None:
        """Make the table, with its indexes and TTL, and return when it can be used.

        TableExists if it is there.
        """

    async def ensure_table(self, table: Table) -> None:
        """Make the table, or add and drop indexes and set the TTL until it is as declared; TableDiffers if the key does."""

    async def drop_table(self, name: str) -> None:
        """Remove the table and all in it. TableNotFound if it is not there."""

    async def describe_table(self, name: str) -> Table:
        """The table as the engine knows it (without the attributes that are a contract only)."""

    async def list_tables(self) -> list[str]:
        """The names of all tables, sorted."""

    async def sweep(self, table: Table, now: float, limit: int) -> int:
        """Delete up to `limit` items whose time to live has passed, and say how many; 0 where a service does it itself."""

    async def ping(self) -> None:
        """Raise Unavailable where the engine cannot answer."""

    async def close(self) -> None:
        """Finish what was begun and let go of everything."""


def operation_name(operation: Any) -> str:
    """DynamoDB's name of an operation, as the access patterns speak of it."""
    return _NAMES[type(operation)]


_NAMES: dict[type, str] = {
    Get: "GetItem",
    Put: "PutItem",
    Update: "UpdateItem",
    Delete: "DeleteItem",
    Query: "Query",
    Scan: "Scan",
    BatchGet: "BatchGetItem",
    BatchWrite: "BatchWriteItem",
    Transaction: "TransactWriteItems",
    TransactionGet: "TransactGetItems",
}
