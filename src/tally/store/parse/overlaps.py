"""Rejects paths of one projection or update that contain or contradict each other."""

from collections.abc import Sequence

from tally.store.expressions import Path
from tally.store.parse.tokens import ExpressionError
from tally.store.path_overlaps import find_overlap


def check_paths(paths: Sequence[Path]) -> None:
    """Reject paths that overlap, or that use one value as a map and as a list."""
    overlap = find_overlap(paths)
    if overlap is not None:
        relation = "overlap" if overlap.is_containment else "conflict"
        raise ExpressionError(
            f"Two document paths {relation} with each other; must remove or rewrite one of these"
            f" paths; path one: {show_path(overlap.first)}, path two: {show_path(overlap.second)}"
        )


def show_path(path: Path) -> str:
    """Return a path as error messages show it: `[a, [0], b]`."""
    parts = [f"[{part}]" if isinstance(part, int) else part for part in path.parts]
    return f"[{', '.join(parts)}]"
