"""Reads the literals, parameters and document paths of PartiQL statements."""

from collections.abc import Sequence
from typing import Any, Final

from tally.store.errors import InvalidValue
from tally.store.expressions import MAX_POSITION, Path, make_path
from tally.store.values import type_of
from tally.store.wire.partiql.tokens import StatementReader, not_well_formed
from tally.store.wire.service_errors import invalid
from tally.store.wire.values import read_value

_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


class ValueReader:
    """Reads values of one statement; `?` is the next parameter."""

    def __init__(self, reader: StatementReader, parameters: Sequence[Any]) -> None:
        self.reader = reader
        self._parameters = parameters
        self._used = 0

    def check_all_used(self) -> None:
        """Require that the statement has as many `?` as the request has parameters."""
        if self._used != len(self._parameters):
            raise invalid("Number of parameters in request and statement don't match.")

    def starts_value(self) -> bool:
        reader = self.reader
        return (
            reader.token.kind in ("string", "number")
            or reader.is_symbol("?", "-", "[", "{", "<<")
            or reader.is_keyword(*_CONSTANTS)
        )

    def value(self) -> Any:
        """Read a literal or a parameter."""
        reader = self.reader
        if reader.token.kind == "string":
            return _attribute({"S": reader.advance().text})
        if reader.token.kind == "number":
            return _attribute({"N": reader.advance().text})
        if reader.is_keyword(*_CONSTANTS):
            return _CONSTANTS[reader.advance().text.upper()]
        if reader.accept("?"):
            return self._parameter()
        if reader.accept("-"):
            return self._negative()
        if reader.accept("["):
            return self._elements("]")
        if reader.accept("{"):
            return self._map()
        if reader.accept("<<"):
            return _make_set(self._elements(">>"))
        raise not_well_formed("Expected value")

    def _negative(self) -> Any:
        if self.reader.token.kind != "number":
            raise not_well_formed("Expected number")
        return _attribute({"N": f"-{self.reader.advance().text}"})

    def path(self) -> Path:
        """Read a document path, such as `a.b[0]`."""
        reader = self.reader
        parts: list[str | int] = [reader.read_name("attribute name")]
        while True:
            if reader.accept("."):
                parts.append(reader.read_name("attribute name"))
            elif reader.accept("["):
                parts.append(self._position())
                reader.expect("]")
            else:
                return make_path(*parts)

    def _position(self) -> str | int:
        token = self.reader.advance()
        if token.kind == "string" and token.text:  # a map key may also stand in brackets
            return token.text
        if token.kind != "number" or not token.text.isdigit():
            raise not_well_formed("Expected list index")
        position = int(token.text[:11])
        if position > MAX_POSITION:
            raise not_well_formed("List index is not within the allowable range")
        return position

    def _parameter(self) -> Any:
        self._used += 1
        if self._used > len(self._parameters):
            return ""  # check_all_used reports it once the syntax is known to be right
        return self._parameters[self._used - 1]

    def _elements(self, end: str) -> list[Any]:
        elements: list[Any] = []
        self.reader.descend()
        while not self.reader.accept(end):
            if elements:
                self.reader.expect(",")
            elements.append(self.value())
        self.reader.ascend()
        return elements

    def _map(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        reader = self.reader
        reader.descend()
        while not reader.accept("}"):
            if members:
                reader.expect(",")
            if reader.token.kind not in ("string", "name"):
                raise not_well_formed("Expected attribute name in quotes")
            name = reader.advance().text
            reader.expect(":")
            members[name] = self.value()
        reader.ascend()
        return members


def _attribute(value: dict[str, Any]) -> Any:
    return read_value(value)


def _make_set(elements: list[Any]) -> frozenset[Any]:
    if not elements:
        raise invalid("One or more parameter values were invalid: An set may not be empty")
    try:
        made = frozenset(elements)
        type_of(made)
    except (InvalidValue, TypeError):
        raise not_well_formed("A set must contain strings, numbers or binaries") from None
    return made
