"""What DynamoDB answers, as the store's results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tally.store.api import (
    BatchGetResult,
    BatchWrite,
    BatchWriteResult,
    Capacity,
    GetResult,
    Page,
    TransactionGetResult,
    TransactionResult,
    WriteResult,
)
from tally.store.encode import item_from_wire
from tally.store.schema import Table
from tally.store.values import Item

_Answer = Mapping[str, Any]


def parse_get(answer: _Answer) -> GetResult:
    """What a GetItem found. An item of which the projection left nothing is still an item."""
    return GetResult(_found(answer), Capacity(read=_units(answer)))


def parse_write(answer: _Answer) -> WriteResult:
    """What a single write returned; no attributes at all and none left to return are one and the same."""
    return WriteResult(_item(answer.get("Attributes")), Capacity(write=_units(answer)))


def parse_page(answer: _Answer) -> Page:
    """A page of a Query or a Scan."""
    items = [item_from_wire(item) for item in answer["Items"]]
    return Page(
        items,
        _item(answer.get("LastEvaluatedKey")),
        answer["ScannedCount"],
        Capacity(read=_units(answer)),
    )


def parse_batch_get(answer: _Answer, name: str) -> BatchGetResult:
    """What a BatchGetItem found in its one table, and what it did not get to."""
    items = [item_from_wire(item) for item in answer["Responses"].get(name, ())]
    left = answer.get("UnprocessedKeys", {}).get(name, {}).get("Keys", ())
    return BatchGetResult(
        items, tuple(item_from_wire(key) for key in left), Capacity(read=_units(answer))
    )


def parse_batch_write(answer: _Answer, table: Table, name: str) -> BatchWriteResult:
    """What a BatchWriteItem did not get to in its one table."""
    left: Sequence[_Answer] = answer.get("UnprocessedItems", {}).get(name, ())
    unprocessed = BatchWrite(
        table,
        puts=tuple(
            item_from_wire(write["PutRequest"]["Item"]) for write in left if "PutRequest" in write
        ),
        deletes=tuple(
            item_from_wire(write["DeleteRequest"]["Key"])
            for write in left
            if "DeleteRequest" in write
        ),
    )
    return BatchWriteResult(unprocessed if left else None, Capacity(write=_units(answer)))


def parse_transaction(answer: _Answer) -> TransactionResult:
    """The cost of a transaction; one that had happened before, under the same token, costs reads."""
    capacity = Capacity()
    for part in _parts(answer):
        read = part.get("ReadCapacityUnits", 0.0)
        capacity += Capacity(
            read, part.get("WriteCapacityUnits", part.get("CapacityUnits", 0.0) - read)
        )
    return TransactionResult(capacity)


def parse_transaction_get(answer: _Answer) -> TransactionGetResult:
    """What a TransactGetItems found, in the order of the gets."""
    return TransactionGetResult(
        [_found(one) for one in answer["Responses"]], Capacity(read=_units(answer))
    )


def _found(answer: _Answer) -> Item | None:
    return item_from_wire(answer["Item"]) if "Item" in answer else None


def _item(wire: Mapping[str, Any] | None) -> Item | None:
    return item_from_wire(wire) if wire else None


def _units(answer: _Answer) -> float:
    return float(sum(part.get("CapacityUnits", 0.0) for part in _parts(answer)))


def _parts(answer: _Answer) -> Iterable[_Answer]:
    consumed = answer.get("ConsumedCapacity") or ()
    return (consumed,) if isinstance(consumed, Mapping) else consumed
