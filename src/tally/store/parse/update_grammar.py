"""The grammar of updates."""

from functools import lru_cache
from typing import Final

from tally.store.parse.grammar import (
    CACHED_EXPRESSIONS,
    CONDITION_FUNCTIONS,
    Call,
    ExpressionGrammar,
    SyntaxNode,
    ValuePlaceholder,
    misused,
)
from tally.store.parse.tokens import ExpressionError

CLAUSES: Final = ("SET", "REMOVE", "ADD", "DELETE")


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def parse_update(text: str) -> tuple[Call, ...]:
    """Parse an update into its clauses, each with its actions as operands."""
    grammar = _UpdateGrammar(text)
    clauses = grammar.clauses()
    grammar.finish()
    return clauses


class _UpdateGrammar(ExpressionGrammar):
    """A parser of clauses; a function takes paths, values and `if_not_exists`."""

    def clauses(self) -> tuple[Call, ...]:
        reader = self.reader
        found: dict[str, Call] = {}
        while reader.token.kind != "end" or not found:
            if not reader.is_keyword(*CLAUSES):
                raise reader.syntax_error()
            clause = reader.advance().text.upper()
            actions = [self._action(clause)]
            while reader.is_symbol(","):
                reader.advance()
                actions.append(self._action(clause))
            if clause in found:
                self.report(
                    ExpressionError(
                        f'The "{clause}" section can only be used once in an update expression;'
                    )
                )
            found[clause] = Call(clause, tuple(actions))
        return tuple(found.values())

    def _action(self, clause: str) -> Call:
        reader = self.reader
        path = self.path()
        if clause == "REMOVE":
            return Call(clause, (path,))
        if clause != "SET":
            if reader.token.kind != "value":
                raise reader.syntax_error()
            return Call(clause, (path, ValuePlaceholder(reader.advance().text)))
        reader.expect("=")
        return Call(clause, (path, self._sum()))

    def _sum(self) -> SyntaxNode:
        reader = self.reader
        is_grouped = reader.is_symbol("(")
        node = self.in_parentheses(self._sum) if is_grouped else self._update_operand()
        if reader.is_symbol("+", "-"):
            if isinstance(node, Call) and not node.is_function:
                raise reader.syntax_error()
            self._reject_append(node)
            operator = reader.advance().text
            node = Call(operator, (node, self.argument()))
        return node

    def _update_operand(self) -> SyntaxNode:
        node = self.simple_operand()
        if isinstance(node, Call) and node.name in CONDITION_FUNCTIONS:
            self.report(
                ExpressionError(
                    f"The function is not allowed in an update expression; function: {node.name}"
                )
            )
        return node

    def argument(self) -> SyntaxNode:
        if self.reader.is_symbol("("):
            return self.in_parentheses(self.argument)
        node = self._update_operand()
        self._reject_append(node)
        return node

    def _reject_append(self, node: SyntaxNode) -> None:
        if isinstance(node, Call) and node.name == "list_append":
            self.report(misused(node.name))
