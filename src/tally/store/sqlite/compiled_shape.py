"""Compiles a shape into functions that validate, measure and restore items.

They are most of the work of writing and reading many items. A function with the names as constants
takes a third to a half of the time of loops over the names, so each is generated as source when it
is first needed, as `collections.namedtuple` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from tally.store.sqlite.keys import RowKey
from tally.store.values import (
    CHECKED_INTEGER_LIMIT,
    CONTAINER_BYTES,
    ELEMENT_BYTES,
    Item,
    check_size,
    measure_name,
    measure_value,
)

# Returns the values to pack and the item's size, or None if the item has another shape.
Reader: TypeAlias = Callable[[Mapping[str, Any]], tuple[list[Any], int] | None]
# Returns the item of a row by the unpacked values, of which the first is the shape's number.
Restorer: TypeAlias = Callable[[list[Any], RowKey], Item]


class Shape(Struct, frozen=True):
    """The attributes of an item in order, its maps' names, and where strings repeat the key.

    A slice is the attribute's name, the part of the key (0: partition, 1: sort), and its bounds.
    """

    attributes: tuple[str, ...]
    maps: tuple[tuple[str, tuple[str, ...]], ...] = ()
    slices: tuple[tuple[str, int, int, int], ...] = ()


class CompiledShape:
    """A shape with its number and what packing and unpacking need.

    `key` has the names and positions of the string keys.
    """

    def __init__(self, number: int, shape: Shape, key: Sequence[tuple[str, int]]) -> None:
        self.number = number
        self.slices = shape.slices
        self.maps = dict(shape.maps)
        self._attributes = shape.attributes
        self._key = dict(key)
        self.omitted = {*self._key, *(name for name, *_ in shape.slices)}
        self._names = tuple(name for name in shape.attributes if name not in self.omitted)
        self.read: Reader = self._compile_reader_once

    def _compile_reader_once(self, item: Mapping[str, Any]) -> tuple[list[Any], int] | None:
        """Compile the reader for the first item; it validates items that have the attributes."""
        namespace: dict[str, Any] = {"check_size": check_size, "measure": measure_value}
        self.read = _compile("read", self._reader_source(), namespace)
        return self.read(item)

    def _reader_source(self) -> Iterator[str]:
        """Yield the lines of the function, which measures as `measure_item` does."""
        size = sum(map(measure_name, self._attributes))
        values = [str(self.number)]
        yield "def read(item):"
        key_parts = {*self._key.values()}
        if not self._key.keys() <= {*self._attributes} or any(
            part not in key_parts for _, part, *_ in self.slices
        ):
            yield "    return None"  # the table had another key
            return
        for name, position in self._key.items():
            yield f"    key_{position} = item[{name!r}]"
            yield f"    if type(key_{position}) is not str: return None"
        for name, part, start, stop in self.slices:
            yield f"    if item[{name!r}] != key_{part}[{start}:{stop}]: return None"
        yield "    size = 0"
        for number, name in enumerate(self._attributes):
            value = f"v{number}"
            yield f"    {value} = item[{name!r}]"
            if name in self.maps:
                inner = self.maps[name]
                size += CONTAINER_BYTES + sum(ELEMENT_BYTES + measure_name(one) for one in inner)
                yield f"    if type({value}) is not dict: return None"
                yield f"    if tuple({value}) != {inner!r}: return None"
                yield f"    for one in {value}.values():"
                yield from _measuring_source("one", name, 1)
                values.append(f"[*{value}.values()]")
            else:
                yield from _measuring_source(value, name, 0)
                values += [] if name in self.omitted else [value]
        yield f"    size += {size}"
        yield "    check_size(size)"
        yield f"    return [{', '.join(values)}], size"

    def compile_restorer(self) -> Restorer:
        """Return a function that restores items, with their attributes in the shape's order."""
        restore: Restorer = _compile("restore", self._restorer_source(), {})
        return restore

    def _restorer_source(self) -> Iterator[str]:
        """Yield the lines of the function; values of another length or type raise an error."""
        targets, values = ["_number"], {}
        for number, name in enumerate(self._names):
            inner = [f"v{number}_{position}" for position in range(len(self.maps.get(name, ())))]
            targets.append(f"[{', '.join(inner)}]" if inner else f"v{number}")
            values[name] = _map_source(self.maps[name], inner) if inner else f"v{number}"
        for name, part, start, stop in self.slices:
            values[name] = f"key_{part}[{start}:{stop}]"
        for name, position in self._key.items():
            values[name] = f"key_{position}"
        yield "def restore(values, key):"
        yield f"    [{', '.join(targets)}] = values"
        for position in sorted({*self._key.values(), *(part for _, part, *_ in self.slices)}):
            yield f"    key_{position} = key[{position}].decode()"
        yield f"    return {_map_source(self._attributes, [values[n] for n in self._attributes])}"


def _map_source(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = zip(names, values, strict=True)
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in pairs) + "}"


def _measuring_source(value: str, name: str, depth: int) -> Iterator[str]:
    """Yield the lines that add the size of a value: mostly without the call of `measure_value`."""
    indent = "    " * (depth + 1)
    yield f"{indent}kind = type({value})"
    yield f"{indent}if kind is str and {value}.isascii(): size += len({value})"
    yield f"{indent}elif kind is int and 0 < {value} < {CHECKED_INTEGER_LIMIT} and {value} % 100:"
    yield f"{indent}    size += (len(str({value})) + 3) >> 1"
    yield f"{indent}else: size += measure({value}, {name!r}, {depth})"


def _compile(name: str, source: Iterator[str], namespace: dict[str, Any]) -> Any:
    exec("\n".join(source), namespace)  # noqa: S102 - names are literals in it
    return namespace[name]
