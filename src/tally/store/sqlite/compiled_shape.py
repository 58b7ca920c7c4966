"""Compiles a shape into functions that read an item's values and restore the item.

Restoring is most of the work of reading many items. A function with the names as constants takes a
third of the time of a loop over the names, so it is generated as source when the first item of a
shape is read, as `collections.namedtuple` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from msgspec import Struct

from tally.store.sqlite.keys import RowKey
from tally.store.values import Item

KeyTexts: TypeAlias = tuple[str, str]
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
        self._read_values = _values_reader(self._names)
        self._map_positions = [(self._names.index(name), inner) for name, inner in shape.maps]

    def values(self, item: Mapping[str, Any], texts: KeyTexts) -> list[Any] | None:
        """Return the number and the values to pack, or None if the item has another shape."""
        for name, part, start, stop in self.slices:
            if item[name] != texts[part][start:stop]:
                return None
        values = [self.number, *self._read_values(item)]
        for position, inner in self._map_positions:
            value = values[position + 1]
            if type(value) is not dict or tuple(value) != inner:
                return None
            values[position + 1] = [*value.values()]
        return values

    def compile_restorer(self) -> Restorer:
        """Return a function that restores items, with their attributes in the shape's order."""
        namespace: dict[str, Any] = {}
        exec("\n".join(self._restorer_source()), namespace)  # noqa: S102 - names are literals in it
        restorer: Restorer = namespace["restore"]
        return restorer

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


def _values_reader(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    if len(names) > 1:  # with one name, it returns the value itself
        return itemgetter(*names)
    return lambda item: [item[name] for name in names]
