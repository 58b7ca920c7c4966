"""Responds to the most frequent request at once: GetItem of a whole item by a key of strings.

Its body has one form, so it is decoded and validated in one step, and one SQL statement reads the
item and checks that the table is as it was. Everything else, including items that do not exist and
all that is wrong, takes the way of the other operations, which reports errors as the service does.
"""

from typing import Final

import msgspec

from tally.store.errors import StoreError
from tally.store.sqlite import SqliteEngine
from tally.store.wire.item_encoding import encode_item

GET_ITEM: Final = "DynamoDB_20120810.GetItem"


class _String(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    text: str = msgspec.field(name="S")


class _GetItem(msgspec.Struct, forbid_unknown_fields=True, rename="pascal", gc=False):
    table_name: str
    key: dict[str, _String]
    consistent_read: bool = False


class SimpleReads:
    """The simple reads of one engine."""

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._decode = msgspec.json.Decoder(_GetItem).decode

    def get_item(self, payload: bytes) -> bytes | None:
        """Return the body of the response, or None if the request is not simple."""
        try:
            body = self._decode(payload)
            key = {name: value.text for name, value in body.key.items()}
            item = self._engine.get_current(body.table_name, key)
        except (msgspec.MsgspecError, UnicodeDecodeError, StoreError):
            return None
        return None if item is None else b'{"Item":%b}' % encode_item(item)
