"""The segments of a parallel scan: a hash of the partition key assigns each item to one.

All items of a partition are in one segment, and the assignment depends on nothing but the key and
the number of segments, so pages stay complete and disjoint while others write.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

from tally.store.api import Query, Scan
from tally.store.errors import InvalidPageKey
from tally.store.schema import KeyPart
from tally.store.sqlite.keys import encode_part


def segment_test(
    partition: KeyPart, operation: Query | Scan
) -> Callable[[Mapping[str, Any]], bool] | None:
    """Return a function that tells whether an item is in the segment; None without a segment.

    A page key of another segment is rejected, because it would skip items.
    """
    segment = operation.segment if isinstance(operation, Scan) else None
    if segment is None:
        return None
    name, number, total = partition.name, segment.number, segment.total

    def is_in_segment(item: Mapping[str, Any]) -> bool:
        return zlib.crc32(encode_part(partition, item[name])) % total == number

    if operation.start is not None and not is_in_segment(operation.start):
        raise InvalidPageKey(f"the page key belongs to another segment than {number} of {total}")
    return is_in_segment
