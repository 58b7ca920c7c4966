"""Where an emulator is not as today's DynamoDB, and cannot be made so. `docs/differences.md` has one row for each of these.

A test that meets a difference must fail there, so that a difference which has been mended is noticed as well. Where
`features.py` can ask for it, the answer decides, on any service; otherwise the name of the engine does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different, on which engines of `conftest.py`, and which tests fail for it: all their cases or some."""

    engines: tuple[str, ...]
    what: str
    why: str
    tests: Mapping[str, tuple[str, ...]]
    feature: str | None = field(default=None)


DIFFERENCES: tuple[Difference, ...] = ()


def expected_to_fail(test: str, case: str, engine: str) -> str | None:
    """Why this case of this test must fail on this engine, or None if it must pass."""
    for difference in DIFFERENCES:
        cases = difference.tests.get(test)
        if engine in difference.engines and cases is not None and (not cases or case in cases):
            return difference.what
    return None
