"""Rejects paths of one projection or update that contain or contradict each other."""

from collections.abc import Sequence

from tally.store.expressions import Path
from tally.store.parse.tokens import ExpressionError


def check_paths(paths: Sequence[Path]) -> None:
    """Reject paths that overlap, or that use one value as a map and as a list."""
    if len(paths) < 2:
        return
    for position, second in enumerate(paths):
        for first in paths[:position]:
            relation = _relation(first.parts, second.parts)
            if relation is not None:
                raise ExpressionError(
                    f"Two document paths {relation} with each other; must remove or rewrite one of"
                    f" these paths; path one: {show_path(first)}, path two: {show_path(second)}"
                )


def _relation(first: tuple[str | int, ...], second: tuple[str | int, ...]) -> str | None:
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        shared += 1
    if shared in (len(first), len(second)):
        return "overlap"
    if shared and isinstance(first[shared], int) != isinstance(second[shared], int):
        return "conflict"
    return None


def show_path(path: Path) -> str:
    """Return a path as error messages show it: `[a, [0], b]`."""
    parts = [f"[{part}]" if isinstance(part, int) else part for part in path.parts]
    return f"[{', '.join(parts)}]"
