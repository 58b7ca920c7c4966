"""Hypothesis strategies for tables.

Any keys, indexes, projections, TTL and attributes, unusual names.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Attribute,
    GlobalIndex,
    Index,
    KeyPart,
    KeyType,
    LocalIndex,
    StreamView,
    Table,
    include,
)
from tally.store.values import Type

NAMES = (
    '"',
    "\\",
    "\x7f",
    "${a}",
    "%{b}",
    "$",
    "a.b",
    "name",
    "\n",
    "\u2028",
    "ß",
    "😀",
    "#",
    "'",
    "]",
    "id",
    "userId",
    "expires_at",
    "status",
    "A",
    "a",
)


def table_names() -> SearchStrategy[str]:
    """Names of tables and indexes."""
    return st.sampled_from(
        ["abc", "ABC", "a-b", "a_b", "a.b", "match-follows", "DisplayStateCache", "0.0", "---"]
    ) | st.text("aZ0_.-", min_size=3, max_size=6)


# Made once: to build a strategy takes longer than to draw from it.
_TABLE_NAMES = table_names()
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_SEEDS = st.integers(0, 2**32)
_UP_TO_3 = st.integers(0, 3)
_COINS = st.booleans()
_TYPES = st.sampled_from(get_args(Type))
_STREAMS = st.sampled_from([None, *get_args(StreamView)])
_VERSIONS = st.sampled_from(["0.0.1", "1.0.0", "1.2.3", "12.0.10"])


@st.composite
def tables(draw: Any) -> Table:
    """A valid table."""
    # Which name and type goes where is left to chance in one draw; one name that nobody thought of
    # is enough.
    rng = random.Random(draw(_SEEDS))
    names = rng.sample(sorted({*NAMES, draw(_TEXT)}), 10)
    parts = [KeyPart(name, rng.choice(get_args(KeyType))) for name in names[:6]]
    sort = parts[1] if draw(_COINS) else None
    described = names[6 : 7 + draw(_UP_TO_3)]
    ttl = [None, "expires at", described[0], described[-1]][draw(_UP_TO_3)]
    kinds: dict[str, Type] = {name: "N" if name == ttl else draw(_TYPES) for name in described}
    return Table(
        draw(_TABLE_NAMES),
        parts[0],
        sort,
        tuple(_indexes(draw, parts[2:], names, local=sort is not None)),
        ttl,
        tuple(Attribute(name, kind, draw(_COINS), "some words") for name, kind in kinds.items()),
        draw(_VERSIONS),
        draw(_STREAMS),
    )


def _indexes(
    draw: Any, parts: Sequence[KeyPart], names: Sequence[str], *, local: bool
) -> Iterator[Index | LocalIndex]:
    projections = [ALL, KEYS_ONLY, include(names[0]), include(*reversed(names))]
    for name in dict.fromkeys(draw(_TABLE_NAMES) for _ in range(draw(_UP_TO_3))):
        projection, part = projections[draw(_UP_TO_3)], parts[draw(_UP_TO_3)]
        if local and draw(_COINS):
            yield LocalIndex(name, part, projection)
        else:
            sort = parts[draw(_UP_TO_3)]
            yield GlobalIndex(name, part, None if sort == part else sort, projection)


def schemas() -> SearchStrategy[list[Table]]:
    """A few tables with distinct names."""
    return st.lists(tables(), max_size=2, unique_by=lambda table: table.name)
