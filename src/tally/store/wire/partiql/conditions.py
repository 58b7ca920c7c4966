"""Parses WHERE clauses into the store's conditions."""

from collections.abc import Callable
from typing import Any, Final

from tally.store.expressions import (
    Absent,
    And,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Contains,
    Exists,
    In,
    Literal,
    Not,
    Operand,
    Or,
    Path,
    Size,
    TypeIs,
)
from tally.store.parse.conditions import MAX_OPTIONS
from tally.store.values import type_of
from tally.store.wire.partiql.tokens import not_well_formed
from tally.store.wire.partiql.values import ValueReader
from tally.store.wire.service_errors import invalid

_OPERATORS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TYPE_NAMES: Final = ("B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M")
_MAX_CONDITIONS: Final = 300


class ConditionReader:
    """A recursive-descent parser of conditions."""

    def __init__(self, values: ValueReader) -> None:
        self._values = values
        self._reader = values.reader
        self._count = 0

    def condition(self) -> Condition:
        """Read a condition: OR binds weaker than AND, and AND weaker than NOT."""
        node = self._conjunction()
        while self._reader.accept("OR"):
            node = Or(node, self._conjunction())
        return node

    def _conjunction(self) -> Condition:
        node = self._negation()
        while self._reader.accept("AND"):
            node = And(node, self._negation())
        return node

    def _negation(self) -> Condition:
        count = 0
        while self._reader.accept("NOT"):
            count += 1
        node = self._primary()
        return Not(node) if count % 2 else node

    def _primary(self) -> Condition:
        reader = self._reader
        self._count += 1
        if self._count > _MAX_CONDITIONS:
            raise not_well_formed(f"The statement has more than {_MAX_CONDITIONS} conditions")
        if reader.accept("("):
            reader.descend()
            node = self.condition()
            reader.expect(")")
            reader.ascend()
            return node
        if reader.is_call() and not reader.is_keyword("SIZE"):
            return self._function()
        return self._comparison(self._operand())

    def _comparison(self, left: Operand) -> Condition:
        reader = self._reader
        if reader.accept("IS"):
            return self._is(left)
        negated = reader.accept("NOT")
        if reader.accept("BETWEEN"):
            low = self._operand()
            reader.expect("AND")
            return _negated(Between(left, low, self._operand()), negated=negated)
        if reader.accept("IN"):
            return _negated(In(left, self._options()), negated=negated)
        if negated or not reader.is_symbol(*_OPERATORS):
            raise not_well_formed("Unexpected token in condition")
        return Compare(_OPERATORS[reader.advance().text], left, self._operand())

    def _is(self, left: Operand) -> Condition:
        negated = self._reader.accept("NOT")
        path = _require_path(left)
        if self._reader.accept("NULL"):
            return _negated(TypeIs(path, "NULL"), negated=negated)
        self._reader.expect("MISSING")
        return Exists(path) if negated else Absent(path)

    def _options(self) -> tuple[Operand, ...]:
        end = ")" if self._reader.is_symbol("(") else "]"
        self._reader.expect("(" if end == ")" else "[")
        options: list[Operand] = []
        while not self._reader.accept(end):
            if options:
                self._reader.expect(",")
            options.append(self._operand())
        if not 0 < len(options) <= MAX_OPTIONS:
            raise invalid(
                f"The IN operator is provided with {len(options)} operands; it takes 1 to"
                f" {MAX_OPTIONS}"
            )
        return tuple(options)

    def _operand(self) -> Operand:
        if self._values.starts_value():
            return Literal(self._values.value())
        if self._reader.is_call():
            if not self._reader.is_keyword("SIZE"):
                raise _unknown_function(self._reader.token.text)
            (operand,) = self._arguments(1)
            return Size(_require_path(operand))
        return self._values.path()

    def _function(self) -> Condition:
        build = _FUNCTIONS.get(self._reader.token.text.lower())
        if build is None:
            raise _unknown_function(self._reader.token.text)
        return build(*self._arguments(2))

    def _arguments(self, count: int) -> list[Operand]:
        name = self._reader.advance().text
        self._reader.expect("(")
        operands = [self._operand()]
        while self._reader.accept(","):
            operands.append(self._operand())
        self._reader.expect(")")
        if len(operands) != count:
            raise invalid(
                f"Incorrect number of operands for function {name}; it takes {count}, not"
                f" {len(operands)}"
            )
        return operands


def _negated(node: Condition, *, negated: bool) -> Condition:
    return Not(node) if negated else node


def _require_path(operand: Any) -> Path:
    if not isinstance(operand, Path):
        raise not_well_formed("Expected attribute name")
    return operand


def _begins_with(path: Operand, prefix: Operand) -> Condition:
    if isinstance(prefix, Literal) and type_of(prefix.value) not in ("S", "B"):
        raise invalid(
            "Incorrect operand type for operator or function; operator or function: begins_with,"
            f" operand type: {type_of(prefix.value)}"
        )
    return BeginsWith(_require_path(path), prefix)


def _attribute_type(path: Operand, kind: Operand) -> Condition:
    name = kind.value if isinstance(kind, Literal) else None
    if name not in _TYPE_NAMES:
        raise invalid(
            f"Invalid attribute type name found; type: {name}, valid types:"
            f" {{{','.join(_TYPE_NAMES)}}}"
        )
    return TypeIs(_require_path(path), name)


def _unknown_function(name: str) -> Exception:
    return not_well_formed(f"No such function: {name.lower()}")


_FUNCTIONS: Final[dict[str, Callable[[Operand, Operand], Condition]]] = {
    "begins_with": _begins_with,
    "contains": lambda path, element: Contains(_require_path(path), element),
    "attribute_type": _attribute_type,
}
