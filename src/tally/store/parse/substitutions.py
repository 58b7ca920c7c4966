"""The names and values that a request defines for its expressions.

One `Substitutions` serves all expressions of a request, because each name and value has to be used
by one of them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tally.store.expressions import Action, Condition, Literal, Path, make_path
from tally.store.parse.conditions import build_condition
from tally.store.parse.grammar import (
    DocumentPath,
    ValuePlaceholder,
    parse_condition,
    parse_projection,
)
from tally.store.parse.key_conditions import check_key_condition, order_operands
from tally.store.parse.overlaps import check_paths
from tally.store.parse.reserved_words import RESERVED_WORDS
from tally.store.parse.tokens import ExpressionError
from tally.store.parse.update_grammar import parse_update
from tally.store.parse.updates import build_actions

T = TypeVar("T")
_NAME_KEY: Final = re.compile(r"#[A-Za-z0-9_]+")
_VALUE_KEY: Final = re.compile(r":[A-Za-z0-9_]+")
MAX_DEFINITION_BYTES: Final = 255


class Substitutions:
    """Replaces the placeholders of expressions, and notes which definitions were used."""

    __slots__ = ("_names", "_unused_names", "_unused_values", "_values")

    def __init__(
        self, names: Mapping[str, str] | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        self._names = names or {}
        self._values = values or {}
        self._unused_names = set(self._names)
        self._unused_values = set(self._values)

    def condition(self, parameter: str, text: str) -> Condition:
        """Parse a condition or filter; `parameter` is the name of the request's field."""
        return _with_prefix(parameter, lambda: build_condition(parse_condition(text), self))

    def key_condition(self, text: str) -> Condition:
        """Parse a key condition; the key attribute is the left operand of each comparison."""
        parameter = "KeyConditionExpression"
        tree = _with_prefix(parameter, lambda: parse_condition(text))
        check_key_condition(tree)
        tree = order_operands(tree)
        return _with_prefix(parameter, lambda: build_condition(tree, self))

    def update(self, text: str) -> tuple[Action, ...]:
        """Parse an update."""
        return _with_prefix("UpdateExpression", lambda: build_actions(parse_update(text), self))

    def projection(self, text: str) -> tuple[Path, ...]:
        """Parse a projection."""

        def build() -> tuple[Path, ...]:
            paths = tuple(self.path(path) for path in parse_projection(text))
            check_paths(paths)
            return paths

        return _with_prefix("ProjectionExpression", build)

    def path(self, path: DocumentPath) -> Path:
        """Return a path with its names in place of the aliases."""
        return make_path(
            *[part if isinstance(part, int) else self._name(part) for part in path.parts]
        )

    def value(self, placeholder: ValuePlaceholder) -> Literal:
        """Return the value of a placeholder."""
        name = placeholder.name
        if name not in self._values:
            raise ExpressionError(
                "An expression attribute value used in expression is not defined;"
                f" attribute value: {name}"
            )
        self._unused_values.discard(name)
        return Literal(self._values[name])

    def check_all_used(self) -> None:
        """Reject names and values that no expression used."""
        for parameter, unused in (
            ("ExpressionAttributeNames", self._unused_names),
            ("ExpressionAttributeValues", self._unused_values),
        ):
            if unused:
                keys = ", ".join(sorted(unused))
                raise ExpressionError(
                    f"Value provided in {parameter} unused in expressions: keys: {{{keys}}}"
                )

    def _name(self, part: str) -> str:
        if not part.startswith("#"):
            if part.upper() in RESERVED_WORDS:
                raise ExpressionError(
                    f"Attribute name is a reserved keyword; reserved keyword: {part}"
                )
            return part
        if part not in self._names:
            raise ExpressionError(
                "An expression attribute name used in the document path is not defined;"
                f" attribute name: {part}"
            )
        self._unused_names.discard(part)
        return self._names[part]


def check_definitions(names: Mapping[str, str] | None, values: Mapping[str, object] | None) -> None:
    """Reject empty definitions and keys that are not placeholders."""
    for parameter, defined, pattern in (
        ("ExpressionAttributeNames", names, _NAME_KEY),
        ("ExpressionAttributeValues", values, _VALUE_KEY),
    ):
        if defined is None:
            continue
        if not defined:
            raise ExpressionError(f"{parameter} must not be empty")
        for key in defined:
            if len(key) > MAX_DEFINITION_BYTES:
                raise ExpressionError(
                    f"{parameter} contains invalid key: The expression attribute map contains a key"
                    " that is too long;"
                )
            if not pattern.fullmatch(key):
                raise ExpressionError(
                    f'{parameter} contains invalid key: Syntax error; key: "{key}"'
                )
            if defined[key] == "":
                raise ExpressionError(
                    f"{parameter} contains invalid value: Empty attribute name for key {key}"
                )


def _with_prefix(parameter: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ExpressionError as error:
        raise ExpressionError(f"Invalid {parameter}: {error}") from None
