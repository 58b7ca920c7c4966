"""A scan over DynamoDB's protocol does not delay other requests, and items keep their types."""

import asyncio
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given

from tally.store import Put, S, Table
from tally.store.api import BatchWrite
from tally.store.encode import item_to_wire
from tally.store.sqlite import open_sqlite
from tally.store.wire.item_encoding import encode_item
from tests.store.served import boto3_resource, dynamodb_command
from tests.store.strategies import items

TABLE = Table("many", partition=S("pk"))
BATCHES = 1_200


async def fill(folder: Path) -> None:
    """Write small items, of which one page of a scan has more than 20,000."""
    async with open_sqlite(folder) as engine:
        await engine.create_table(TABLE)
        await engine.put(Put(TABLE, {"pk": "one"}))
        for start in range(0, BATCHES, 100):
            writes = [
                engine.batch_write(
                    BatchWrite(TABLE, tuple({"pk": f"{batch}-{n}", "n": n} for n in range(25)), ())
                )
                for batch in range(start, start + 100)
            ]
            await asyncio.gather(*writes)


async def test_reads_complete_while_a_page_is_scanned(tmp_path: Path) -> None:
    """Without turns, a page would let at most one read pass before and one after it."""
    await fill(tmp_path)
    with dynamodb_command(tmp_path) as (url, _):
        client = boto3_resource(url).meta.client
        done = threading.Event()
        pages: list[int] = []

        def scan() -> None:
            try:
                paginator = client.get_paginator("scan")
                pages.extend(page["Count"] for page in paginator.paginate(TableName=TABLE.name))
            finally:
                done.set()

        scanning = threading.Thread(target=scan)
        scanning.start()
        reads = 0
        reader = boto3_resource(url).Table(TABLE.name)
        while not done.is_set():
            assert reader.get_item(Key={"pk": "one"})["Item"] == {"pk": "one"}
            reads += 1
        scanning.join()
    assert sum(pages) == BATCHES * 25 + 1
    assert reads > 2 * len(pages)


@given(items())
def test_an_item_is_written_as_by_the_encoder_of_the_dynamodb_engine(item: Any) -> None:
    written = msgspec.json.decode(encode_item(item))
    expected = msgspec.json.decode(msgspec.json.encode(item_to_wire(item)))
    assert written == expected


def test_every_type_is_written() -> None:
    item = {"q": '"\\\n\x00é', "d": Decimal("1E-5"), "b": b"\xff", "t": True, "z": None}
    item |= {"l": [1, {"m": {"x"}}], "bs": {b"a"}, "ns": {Decimal("1.50")}, "big": 10**37}
    written = msgspec.json.decode(encode_item(item))
    assert written == msgspec.json.decode(msgspec.json.encode(item_to_wire(item)))
