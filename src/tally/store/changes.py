"""Changes of a table, as a stream returns them: DynamoDB's stream records on every engine.

    async for change in store.changes(FOLLOWS, after=position):
        await publish(change.kind, change.key, change.new)
        position = change.position

A position is an opaque string. It names the last change that was read, and remains valid after a
restart and in other processes. `START` is the position before the oldest record that is kept.

`read_changes` reads the changes of one partition up to now, for a client that missed some:

    page = await store.read_changes(FOLLOWS, match_id, after=position)
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tally.store.schema import StreamView
from tally.store.values import Item

ChangeKind: TypeAlias = Literal["INSERT", "MODIFY", "REMOVE"]

# DynamoDB's name for the oldest record that is kept.
START: Final = "TRIM_HORIZON"


class Change(Struct, frozen=True):
    """One change of an item.

    `old` and `new` are the item before and after it, if the view of the table's stream includes
    them. `at` is the time of the change in epoch seconds. `is_expiry` marks items that the store
    deleted because their time to live had passed. `sequence` increases with every change of a
    partition; the numbers of different partitions are not comparable.
    """

    kind: ChangeKind
    key: Item
    position: str
    at: float
    old: Item | None = None
    new: Item | None = None
    is_expiry: bool = False
    sequence: int = 0

    @property
    def id(self) -> str:
        """Identifies the change in its stream, whichever reader finds it.

        A position may differ between readers: on DynamoDB it contains how far they read the other
        shards.
        """
        return self.position.partition("~")[0]


class EndedStream(Struct, frozen=True):
    """A stream that a table had; its records remain until they are trimmed.

    `origin` is a number before all of its sequence numbers.
    """

    origin: int
    view: StreamView


class ChangePage(Struct, frozen=True):
    """Changes of a partition.

    `position` and `sequence` are the end of the page: no earlier change of the partition is missing
    from it. `is_complete` is false if the page ends at the limit.
    """

    changes: tuple[Change, ...]
    position: str
    sequence: int
    is_complete: bool = True
