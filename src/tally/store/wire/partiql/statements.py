"""The statements of PartiQL as data."""

from typing import TypeAlias

from msgspec import Struct

from tally.store.api import Returns
from tally.store.expressions import Action, Condition, Path
from tally.store.values import Item


class SelectStatement(Struct, frozen=True):
    """Read items; no `columns` means all attributes. `order` is a key attribute."""

    table: str
    index: str | None
    columns: tuple[Path, ...]
    where: Condition | None
    order: str | None = None
    forward: bool = True


class InsertStatement(Struct, frozen=True):
    """Write an item that does not exist yet."""

    table: str
    item: Item


class UpdateStatement(Struct, frozen=True):
    """Change an item that exists."""

    table: str
    actions: tuple[Action, ...]
    where: Condition | None
    returns: Returns = "NONE"


class DeleteStatement(Struct, frozen=True):
    """Delete an item; `returning` is the text of the clause."""

    table: str
    where: Condition | None
    returns: Returns = "NONE"


class ExistsStatement(Struct, frozen=True):
    """A condition of a transaction on the item that a SELECT names."""

    table: str
    where: Condition | None


WriteStatement: TypeAlias = InsertStatement | UpdateStatement | DeleteStatement | ExistsStatement
Statement: TypeAlias = SelectStatement | WriteStatement
