"""The grammar of DynamoDB's expressions: strings to syntax trees with placeholders.

A syntax tree is a `Call` of an operator, function or clause on operands; its leaves are document
paths and placeholders of values. Trees are cached, because a program uses few expressions.
Syntax errors come first; an error of another kind is reported once the syntax is known to be right.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from msgspec import Struct

from tally.store.expressions import MAX_POSITION
from tally.store.parse.tokens import ExpressionError, TokenReader
from tally.store.values import MAX_DEPTH

COMPARATORS: Final = ("=", "<>", "<", "<=", ">", ">=")
MAX_OPERATORS: Final = 300
MAX_PARENTHESES: Final = 128  # bounds the recursion of this parser
_KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"}
)
CACHED_EXPRESSIONS: Final = 1024


class DocumentPath(Struct, frozen=True):
    """A path as it is written: names, `#` aliases and list positions."""

    parts: tuple[str | int, ...]


class ValuePlaceholder(Struct, frozen=True):
    """A value as it is written: `:name`."""

    name: str


class Call(Struct, frozen=True):
    """An operator, a function or a clause with its operands."""

    name: str
    operands: tuple["SyntaxNode", ...]
    is_function: bool = False


SyntaxNode: TypeAlias = DocumentPath | ValuePlaceholder | Call


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def parse_condition(text: str) -> SyntaxNode:
    """Parse a condition, filter or key condition."""
    grammar = ExpressionGrammar(text)
    node = grammar.disjunction()
    grammar.require_condition(node)
    grammar.finish()
    return node


@lru_cache(maxsize=CACHED_EXPRESSIONS)
def parse_projection(text: str) -> tuple[DocumentPath, ...]:
    """Parse a projection into its paths."""
    grammar = ExpressionGrammar(text)
    paths = [grammar.path()]
    while grammar.reader.is_symbol(","):
        grammar.reader.advance()
        paths.append(grammar.path())
    grammar.finish()
    return tuple(paths)


class ExpressionGrammar:
    """A recursive-descent parser of paths, operands and conditions, for one expression."""

    def __init__(self, text: str) -> None:
        self.reader = TokenReader(text)
        self._problem: ExpressionError | None = None
        self._operators = 0
        self._depth = 0
        # Where the last pair of parentheses opens, and where the token after it begins.
        self._last_pair = (-1, -1)

    def finish(self) -> None:
        """Require the end of the expression, and raise the error that is not of syntax."""
        self.reader.expect_end()
        if self._problem is not None:
            raise self._problem

    def require_condition(self, node: SyntaxNode) -> None:
        """Reject an operand where a condition has to stand."""
        if not isinstance(node, Call):
            raise self.reader.syntax_error()
        if node.name == "size":
            self.report(misused("size"))

    def disjunction(self) -> SyntaxNode:
        node = self._conjunction()
        while self.reader.is_keyword("OR"):
            self.require_condition(node)
            self._count_operator()
            self.reader.advance()
            right = self._conjunction()
            self.require_condition(right)
            node = Call("OR", (node, right))
        return node

    def _conjunction(self) -> SyntaxNode:
        node = self._negation()
        while self.reader.is_keyword("AND"):
            self.require_condition(node)
            self._count_operator()
            self.reader.advance()
            right = self._negation()
            self.require_condition(right)
            node = Call("AND", (node, right))
        return node

    def _negation(self) -> SyntaxNode:
        count = 0
        while self.reader.is_keyword("NOT"):
            self._count_operator()
            self.reader.advance()
            count += 1
        node = self._comparison()
        for _ in range(count):
            self.require_condition(node)
            node = Call("NOT", (node,))
        return node

    def _comparison(self) -> SyntaxNode:
        node = self._primary()
        reader = self.reader
        is_comparison = reader.is_symbol(*COMPARATORS)
        if not is_comparison and not reader.is_keyword("BETWEEN", "IN"):
            return node
        self._require_operand(node)
        self._count_operator()
        operator = reader.advance().text
        if is_comparison:
            return Call(operator, (node, self._operand()))
        if operator.upper() == "BETWEEN":
            low = self._operand()
            reader.expect_keyword("AND")
            return Call("BETWEEN", (node, low, self._operand()))
        reader.expect("(")
        return Call("IN", (node, *self._list(self._operand)))

    def _primary(self) -> SyntaxNode:
        """Parse an operand, a function or a condition in parentheses."""
        if self.reader.is_symbol("("):
            return self.in_parentheses(self.disjunction)
        return self.simple_operand()

    def in_parentheses(self, parse: Callable[[], SyntaxNode]) -> SyntaxNode:
        """Parse what a pair of parentheses contains, which must not be another pair."""
        reader = self.reader
        self._descend()
        opened_at = reader.advance().start
        inside = reader.token.start
        node = parse()
        if self._last_pair == (inside, reader.token.start):
            self.report(ExpressionError("The expression has redundant parentheses;"))
        reader.expect(")")
        self._depth -= 1
        self._last_pair = (opened_at, reader.token.start)
        return node

    def _operand(self) -> SyntaxNode:
        node = self._primary()
        self._require_operand(node)
        return node

    def argument(self) -> SyntaxNode:
        """Parse an operand of a function."""
        return self._operand()

    def _require_operand(self, node: SyntaxNode) -> None:
        if isinstance(node, Call) and node.name != "size":
            if not node.is_function:
                raise self.reader.syntax_error()
            self.report(misused(node.name))

    def _list(self, parse_operand: Callable[[], SyntaxNode]) -> list[SyntaxNode]:
        """Parse operands up to the closing parenthesis."""
        operands = [parse_operand()]
        while self.reader.is_symbol(","):
            self.reader.advance()
            operands.append(parse_operand())
        self.reader.expect(")")
        return operands

    def simple_operand(self) -> SyntaxNode:
        reader = self.reader
        if reader.token.kind == "value":
            return ValuePlaceholder(reader.advance().text)
        if reader.is_call() and reader.token.text.upper() not in _KEYWORDS:
            name = reader.advance().text
            self._count_operator()
            self._descend()
            reader.advance()
            if name not in CONDITION_FUNCTIONS and name not in UPDATE_FUNCTIONS:
                self.report(ExpressionError(f"Invalid function name; function: {name}"))
            operands = self._list(self.argument)
            self._depth -= 1
            return Call(name, tuple(operands), is_function=True)
        return self.path()

    def path(self) -> DocumentPath:
        reader = self.reader
        parts: list[str | int] = [self._name()]
        while True:
            if reader.is_symbol("."):
                reader.advance()
                parts.append(self._name())
            elif reader.is_symbol("["):
                reader.advance()
                parts.append(self._index())
                reader.expect("]")
            else:
                break
        if len(parts) > MAX_DEPTH:
            self.report(
                ExpressionError(
                    f"The document path has too many nesting levels; nesting levels: {len(parts)}"
                )
            )
        return DocumentPath(tuple(parts))

    def _name(self) -> str:
        token = self.reader.token
        is_keyword = token.text.upper() in _KEYWORDS
        if token.kind == "alias" or (token.kind == "word" and not is_keyword):
            return self.reader.advance().text
        raise self.reader.syntax_error()

    def _index(self) -> int:
        if self.reader.token.kind != "index":
            raise self.reader.syntax_error()
        text = self.reader.advance().text
        if len(text) > 10 or int(text) > MAX_POSITION:
            self.report(
                ExpressionError(f"List index is not within the allowable range; index: [{text}]")
            )
            return 0
        return int(text)

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > MAX_PARENTHESES:
            raise ExpressionError(
                f"The expression nests more than {MAX_PARENTHESES} levels of parentheses;"
            )

    def _count_operator(self) -> None:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise ExpressionError(
                "The expression contains too many operators;"
                f" operator count: {self._operators}, maximum: {MAX_OPERATORS}"
            )

    def report(self, problem: ExpressionError) -> None:
        if self._problem is None:
            self._problem = problem


def misused(function: str) -> ExpressionError:
    return ExpressionError(
        f"The function is not allowed to be used this way in an expression; function: {function}"
    )


# The functions of each grammar and their number of operands.
CONDITION_FUNCTIONS: Final = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
    "size": 1,
}
UPDATE_FUNCTIONS: Final = {"if_not_exists": 2, "list_append": 2}
