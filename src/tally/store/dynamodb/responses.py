"""Parses DynamoDB's responses."""

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

_Response = Mapping[str, Any]


def parse_get(response: _Response) -> GetResult:
    """Parse a GetItem response. An item without projected attributes is empty, not missing."""
    return GetResult(_optional_item(response), Capacity(read=_units(response)))


def parse_write(response: _Response) -> WriteResult:
    """Parse the response of a single write; empty attributes count as none."""
    return WriteResult(_item(response.get("Attributes")), Capacity(write=_units(response)))


def parse_page(response: _Response) -> Page:
    """Parse a page of a Query or a Scan; a count has no items."""
    items = [item_from_wire(item) for item in response.get("Items", ())]
    return Page(
        items,
        _item(response.get("LastEvaluatedKey")),
        response["ScannedCount"],
        Capacity(read=_units(response)),
        response["Count"],
    )


def parse_batch_get(response: _Response, name: str) -> BatchGetResult:
    """Parse a BatchGetItem response for one table."""
    items = [item_from_wire(item) for item in response["Responses"].get(name, ())]
    unprocessed_writes = response.get("UnprocessedKeys", {}).get(name, {}).get("Keys", ())
    return BatchGetResult(
        items,
        tuple(item_from_wire(key) for key in unprocessed_writes),
        Capacity(read=_units(response)),
    )


def parse_batch_write(response: _Response, table: Table, name: str) -> BatchWriteResult:
    """Parse a BatchWriteItem response for one table."""
    unprocessed_writes: Sequence[_Response] = response.get("UnprocessedItems", {}).get(name, ())
    unprocessed = BatchWrite(
        table,
        puts=tuple(
            item_from_wire(write["PutRequest"]["Item"])
            for write in unprocessed_writes
            if "PutRequest" in write
        ),
        deletes=tuple(
            item_from_wire(write["DeleteRequest"]["Key"])
            for write in unprocessed_writes
            if "DeleteRequest" in write
        ),
    )
    return BatchWriteResult(
        unprocessed if unprocessed_writes else None, Capacity(write=_units(response))
    )


def parse_transaction(response: _Response) -> TransactionResult:
    """Parse the cost of a transaction; a repeated token consumes read capacity."""
    capacity = Capacity()
    for part in _capacities(response):
        read = part.get("ReadCapacityUnits", 0.0)
        capacity += Capacity(
            read, part.get("WriteCapacityUnits", part.get("CapacityUnits", 0.0) - read)
        )
    return TransactionResult(capacity)


def parse_transaction_get(response: _Response) -> TransactionGetResult:
    """Parse a TransactGetItems response, in the order of the gets."""
    return TransactionGetResult(
        [_optional_item(entry) for entry in response["Responses"]], Capacity(read=_units(response))
    )


def _optional_item(response: _Response) -> Item | None:
    return item_from_wire(response["Item"]) if "Item" in response else None


def _item(wire: Mapping[str, Any] | None) -> Item | None:
    return item_from_wire(wire) if wire else None


def _units(response: _Response) -> float:
    return float(sum(part.get("CapacityUnits", 0.0) for part in _capacities(response)))


def _capacities(response: _Response) -> Iterable[_Response]:
    consumed = response.get("ConsumedCapacity") or ()
    return (consumed,) if isinstance(consumed, Mapping) else consumed
