"""Decides what of the tables the console does not show.

Tables of credentials do not exist for the data pages, as for DynamoDB clients. In other tables,
attributes that `kit.masking` would mask in a log are masked as a whole.
"""

from collections.abc import Mapping
from typing import Any, Final

from tally.instance.served_tables import CREDENTIAL_TABLES
from tally.kit.jsonable import to_jsonable
from tally.kit.masking import mask
from tally.settings import MASK
from tally.store.schema import Table

# Audit trails: nobody changes them here, so that nobody can hide what they did.
READ_ONLY_TABLES: Final = frozenset({"CommitCollectAudit", "tally-operator-audit"})


def is_hidden(table: Table) -> bool:
    """Return whether the items of a table are credentials."""
    return table.name in CREDENTIAL_TABLES


def is_editable(table: Table) -> bool:
    return not is_hidden(table) and table.name not in READ_ONLY_TABLES


def plain(value: Any) -> Any:
    """Return a stored value in JSON types, with the size of binary values."""
    return to_jsonable(value, binary=lambda content: f"<{len(content)} bytes>")


def is_masked(name: str, value: Any) -> bool:
    """Return whether an attribute may contain a secret."""
    shown = {name: plain(value)}
    return bool(mask(shown) != shown)


def masked_names(item: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, value in item.items() if is_masked(name, value))


def visible(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item in JSON types, with masked attributes."""
    hidden = masked_names(item)
    return {name: MASK if name in hidden else plain(value) for name, value in item.items()}
