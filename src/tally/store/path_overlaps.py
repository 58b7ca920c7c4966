"""Finds paths of one projection or update that contain or contradict each other."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from tally.store.expressions import Path


class Overlap(NamedTuple):
    """Two paths of which one contains the other, or that use a value as a map and as a list."""

    first: Path
    second: Path
    is_containment: bool


class _Node:
    """A part that paths share; the first of them created the node."""

    __slots__ = ("children", "first", "is_end")

    def __init__(self, first: Path) -> None:
        self.first = first
        self.is_end = False
        self.children: dict[Any, _Node] = {}


def find_overlap(paths: Sequence[Path]) -> Overlap | None:
    """Return the first overlap; a request may have many thousand paths."""
    attributes: dict[Any, _Node] = {}
    for path in paths:
        children = attributes
        node: _Node | None = None
        for part in path.parts:
            child = children.get(part)
            if child is None:
                if node is not None and _contradict(part, children):
                    return Overlap(node.first, path, is_containment=False)
                child = children[part] = _Node(path)
            elif child.is_end:
                return Overlap(child.first, path, is_containment=True)
            node, children = child, child.children
        if node is not None:
            if children:
                return Overlap(node.first, path, is_containment=True)
            node.is_end = True
    return None


def _contradict(part: str | int, children: dict[Any, _Node]) -> bool:
    """Whether a value would be a map for one path and a list for another."""
    return any(isinstance(part, int) != isinstance(other, int) for other in islice(children, 1))
