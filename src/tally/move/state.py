"""What a move has done, in the embedded store: one of its two stores always is.

The moving process alone writes the state, and only what is durable in the passive store is part of
it: a process that is killed repeats its last seconds, which changes nothing. Commands request a
switch with another value, so that they need not stop the process.
"""

import base64
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from tally.move.errors import MoveFailed
from tally.store.sqlite.codec import pack, unpack
from tally.store.values import Item, Key

SideName: TypeAlias = Literal["embedded", "dynamodb"]
EMBEDDED: Final = "embedded"
DYNAMODB: Final = "dynamodb"

_STATE: Final = "move"
_REQUESTED: Final = "move requested"
_NOTHING: Final = ""


class TableState(msgspec.Struct):
    """How far a table is.

    `next` is the key after which the copy continues. All changes up to `position` of the active
    store's stream are applied.
    """

    position: str
    is_copied: bool = False
    next: str | None = None
    copied: int = 0
    expected: int = 0
    applied: int = 0


class MoveState(msgspec.Struct):
    """A move: where it began, which store is active, and its tables by name."""

    origin: SideName
    active: SideName
    started_at: int
    tables: dict[str, TableState]
    saved_at: int = 0
    is_switching: bool = False
    failure: str = ""

    @property
    def passive(self) -> SideName:
        return other_side(self.active)

    @property
    def is_copied(self) -> bool:
        """Whether the copy of every table is complete."""
        return all(table.is_copied for table in self.tables.values())


class StateStore(Protocol):
    """Where the state is: the embedded engine."""

    async def read_state(self, name: str) -> str | None: ...
    async def write_state(self, name: str, value: str) -> None: ...


def other_side(side: SideName) -> SideName:
    return DYNAMODB if side == EMBEDDED else EMBEDDED


async def load_state(store: StateStore) -> MoveState | None:
    """Return the state of the move, or None if there is none."""
    text = await store.read_state(_STATE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=MoveState)
    except msgspec.DecodeError as error:
        raise MoveFailed(f"The state of the move is of another version of Tally: {error}") from None


async def save_state(store: StateStore, state: MoveState) -> None:
    await store.write_state(_STATE, msgspec.json.encode(state).decode())


async def forget_move(store: StateStore) -> None:
    await store.write_state(_REQUESTED, _NOTHING)
    await store.write_state(_STATE, _NOTHING)


async def request_switch(store: StateStore, to: SideName | None) -> None:
    """Ask the moving process to make a store the active one; None withdraws the request."""
    await store.write_state(_REQUESTED, to or _NOTHING)


async def requested_side(store: StateStore) -> SideName | None:
    found = await store.read_state(_REQUESTED)
    return msgspec.convert(found, SideName) if found else None


def encode_key(key: Key | None) -> str | None:
    """Encode the key of a page as text; keys contain binary values and exact numbers."""
    return None if key is None else base64.b64encode(pack(dict(key))).decode()


def decode_key(text: str | None) -> Item | None:
    if text is None:
        return None
    key: Item = unpack(base64.b64decode(text))
    return key
