"""Made-up tables for hypothesis: any keys, indexes, projections, TTL and attributes, with names that no one would choose."""

from collections.abc import Sequence
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tally.store.schema import ALL, KEYS_ONLY, Attribute, Global, Index, KeyPart, KeyType, Local, Projection, Table, include
from tally.store.values import Type

NAMES = (
    *('"', "\\", "\x7f", "${a}", "%{b}", "$", "a.b", "name", "\n", "\u2028", "ß", "😀", "#", "'", "]"),
    *("id", "userId", "expires_at", "status", "A", "a"),
)


def table_names() -> SearchStrategy[str]:
    """Names of tables and indexes."""
    return st.text("abcXYZ019_.-", min_size=3, max_size=12)


@st.composite
def tables(draw: Any) -> Table:
    """A table that its declaration allows."""
    # Nearly any name is allowed; one that nobody thought of is enough.
    made_up = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
    names: list[str] = draw(st.lists(st.sampled_from(sorted({*NAMES, made_up})), min_size=8, max_size=12, unique=True))
    parts = [KeyPart(name, draw(st.sampled_from(get_args(KeyType)))) for name in names[:6]]
    partition, sort, others = parts[0], draw(st.sampled_from([None, parts[1]])), parts[2:]
    indexes = draw(_indexes(others, names, local=sort is not None))
    attributes = draw(st.lists(st.sampled_from(names[6:]), unique=True))
    ttl = draw(st.sampled_from([None, "expires at", *attributes]))
    return Table(
        draw(table_names()),
        partition,
        sort,
        tuple(indexes),
        ttl,
        tuple(draw(_attribute(name, numeric=name == ttl)) for name in attributes),
        ".".join(str(draw(st.integers(0, 20))) for _ in range(3)),
    )


def _attribute(name: str, *, numeric: bool) -> SearchStrategy[Attribute]:
    kinds = st.just("N") if numeric else st.sampled_from(get_args(Type))
    return st.builds(Attribute, st.just(name), kinds, st.booleans(), st.text(max_size=5))


@st.composite
def _indexes(draw: Any, parts: Sequence[KeyPart], names: Sequence[str], *, local: bool) -> list[Index | Local]:
    found: list[Index | Local] = []
    for name in draw(st.lists(table_names(), max_size=4, unique=True)):
        projection = draw(_projections(names))
        chosen = draw(st.lists(st.sampled_from(parts), min_size=1, max_size=2, unique=True))
        if local and draw(st.booleans()):
            found.append(Local(name, chosen[0], projection))
        else:
            found.append(Global(name, chosen[0], chosen[1] if len(chosen) > 1 else None, projection))
    return found


def _projections(names: Sequence[str]) -> SearchStrategy[Projection]:
    included = st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)
    return st.sampled_from([ALL, KEYS_ONLY]) | included.map(lambda chosen: include(*chosen))


def schemas() -> SearchStrategy[list[Table]]:
    """A few tables of different names."""
    return st.lists(tables(), max_size=3, unique_by=lambda table: table.name)
