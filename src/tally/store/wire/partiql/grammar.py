"""Parses PartiQL statements."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tally.store.api import Returns
from tally.store.expressions import (
    Action,
    Add,
    Condition,
    Discard,
    IfAbsent,
    Joined,
    Literal,
    Path,
    Remove,
    Set,
    Sum,
)
from tally.store.parse import ExpressionError
from tally.store.parse.overlaps import check_paths
from tally.store.wire.partiql.conditions import ConditionReader
from tally.store.wire.partiql.statements import (
    DeleteStatement,
    ExistsStatement,
    InsertStatement,
    SelectStatement,
    Statement,
    UpdateStatement,
)
from tally.store.wire.partiql.tokens import StatementReader, not_well_formed
from tally.store.wire.partiql.values import ValueReader
from tally.store.wire.service_errors import ServiceError, invalid
from tally.store.wire.values import read_value

_MAX_ACTIONS: Final = 300
_RETURNS: Final[Mapping[tuple[str, str], Returns]] = {
    ("ALL", "OLD"): "ALL_OLD",
    ("ALL", "NEW"): "ALL_NEW",
    ("MODIFIED", "OLD"): "UPDATED_OLD",
    ("MODIFIED", "NEW"): "UPDATED_NEW",
}


def parse_statement(text: str, parameters: Sequence[Any] = ()) -> Statement:
    """Parse a statement; `parameters` are attribute values as the request contains them."""
    values = ValueReader(StatementReader(text), [read_value(value) for value in parameters])
    statement = _StatementGrammar(values).statement()
    values.check_all_used()
    return statement


class _StatementGrammar:
    def __init__(self, values: ValueReader) -> None:
        self._values = values
        self._reader = values.reader

    def statement(self) -> Statement:
        """Read one statement up to the end of the text."""
        reader = self._reader
        found: Statement
        if reader.accept("SELECT"):
            found = self._select()
        elif reader.accept("INSERT"):
            found = self._insert()
        elif reader.accept("UPDATE"):
            found = self._update()
        elif reader.accept("DELETE"):
            found = self._delete()
        elif reader.is_keyword("EXISTS") and reader.is_call():
            found = self._exists()
        else:
            raise not_well_formed("Expected data manipulation")
        reader.accept(";")
        if reader.token.kind != "end":
            raise not_well_formed("Unexpected token after expression")
        return found

    def _select(self) -> SelectStatement:
        columns = self._columns()
        self._reader.expect("FROM")
        table = self._reader.read_name("table name")
        index = self._reader.read_name("index name") if self._reader.accept(".") else None
        where = self._where()
        order, forward = None, True
        if self._reader.accept("ORDER"):
            self._reader.expect("BY")
            order = self._reader.read_name("attribute name")
            forward = not self._reader.accept("DESC")
            if forward:
                self._reader.accept("ASC")
        return SelectStatement(table, index, columns, where, order, forward)

    def _columns(self) -> tuple[Path, ...]:
        if self._reader.accept("*"):
            return ()
        if self._reader.token.kind == "end" or self._reader.is_keyword("FROM"):
            raise not_well_formed("Expected projection")
        columns = [self._values.path()]
        while self._reader.accept(","):
            columns.append(self._values.path())
        return tuple(columns)

    def _insert(self) -> InsertStatement:
        self._reader.expect("INTO")
        table = self._reader.read_name("table name")
        self._reader.expect("VALUE")
        item = self._values.value()
        if not isinstance(item, dict):
            raise not_well_formed("Expected a map of attributes after VALUE")
        return InsertStatement(table, item)

    def _update(self) -> UpdateStatement:
        table = self._reader.read_name("table name")
        actions: list[Action] = []
        while self._reader.is_keyword("SET", "REMOVE"):
            read = self._set if self._reader.advance().text.upper() == "SET" else self._remove
            actions.append(read())
            while self._reader.accept(","):
                actions.append(read())
        if not actions:
            raise not_well_formed("UPDATE requires at least one SET or REMOVE clause")
        if len(actions) > _MAX_ACTIONS:  # bounds the comparison of their paths
            raise not_well_formed(f"The statement has more than {_MAX_ACTIONS} changes")
        try:
            check_paths([action.path for action in actions])
        except ExpressionError as error:
            raise invalid(f"Invalid UpdateExpression: {error}") from None
        return UpdateStatement(table, tuple(actions), self._where(), self._returning())

    def _remove(self) -> Action:
        return Remove(self._values.path())

    def _set(self) -> Action:
        path = self._values.path()
        self._reader.expect("=")
        if self._reader.is_call() and self._reader.is_keyword("SET_ADD", "SET_DELETE"):
            return self._change_set(path)
        left = self._operand()
        if self._reader.is_symbol("+", "-"):
            operator = self._reader.advance().text
            return Set(path, Sum(operator, left, self._operand()))
        return Set(path, left)

    def _change_set(self, path: Path) -> Action:
        name = self._reader.advance().text.lower()
        self._reader.expect("(")
        source = self._values.path()
        self._reader.expect(",")
        change = Literal(self._values.value())
        self._reader.expect(")")
        if source != path:
            raise invalid(f"{name} must be assigned to the attribute that it changes")
        return Add(path, change) if name == "set_add" else Discard(path, change)

    def _operand(self) -> Any:
        if self._values.starts_value():
            return Literal(self._values.value())
        if not self._reader.is_call():
            return self._values.path()
        name = self._reader.advance().text.lower()
        if name not in ("list_append", "if_not_exists"):
            raise not_well_formed(f"No such function: {name}")
        self._reader.descend()
        self._reader.expect("(")
        left = self._operand()
        self._reader.expect(",")
        right = self._operand()
        self._reader.expect(")")
        self._reader.ascend()
        if name == "list_append":
            return Joined(left, right)
        if not isinstance(left, Path):
            raise not_well_formed("Expected attribute name")
        return IfAbsent(left, right)

    def _delete(self) -> DeleteStatement:
        self._reader.expect("FROM")
        table = self._reader.read_name("table name")
        where, returns = self._where(), self._returning()
        if returns not in ("NONE", "ALL_OLD"):
            clause = next(" ".join(words) for words, kind in _RETURNS.items() if kind == returns)
            raise invalid(
                f"Invalid returning clause: RETURNING {clause} *. Only RETURNING ALL OLD * is"
                " allowed in DELETE statements."
            )
        return DeleteStatement(table, where, returns)

    def _exists(self) -> ExistsStatement:
        self._reader.advance()
        self._reader.expect("(")
        self._reader.expect("SELECT")
        select = self._select()
        self._reader.expect(")")
        return ExistsStatement(select.table, select.where)

    def _where(self) -> Condition | None:
        if not self._reader.accept("WHERE"):
            return None
        if self._reader.token.kind == "end":
            raise not_well_formed("Expected condition in WHERE")
        return ConditionReader(self._values).condition()

    def _returning(self) -> Returns:
        if not self._reader.accept("RETURNING"):
            return "NONE"
        words = (self._reader.advance().text.upper(), self._reader.advance().text.upper())
        if words not in _RETURNS or not self._reader.accept("*"):
            raise _wrong_returning()
        return _RETURNS[words]


def _wrong_returning() -> ServiceError:
    return not_well_formed("Expected RETURNING (ALL | MODIFIED) (NEW | OLD) *")
