"""Splits a PartiQL statement into tokens."""

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from tally.store.wire.service_errors import ServiceError, invalid

MAX_NESTING: Final = 64  # bounds the recursion of the parser
StatementTokenKind: TypeAlias = Literal["word", "name", "string", "number", "symbol", "end"]

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<comment>--[^\n]*)|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)|"(?P<name>(?:[^"]|"")*)\""""
    r"""|'(?P<string>(?:[^']|'')*)'|(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"""
    r"""|(?P<symbol><<|>>|<=|>=|<>|!=|[=<>(){}\[\],.:?*+;-])|(?P<other>\S))"""
)
# Words that cannot be names without quotes, because clauses begin with them.
_KEYWORDS: Final = """
ALL AND AS ASC BETWEEN BY CASE CREATE DELETE DESC DISTINCT DROP ELSE END EXISTS FALSE FROM GROUP
HAVING IN INSERT INTO IS JOIN LIKE LIMIT MISSING NOT NULL ON OR ORDER REMOVE RETURNING SELECT
SET TABLE THEN TRUE UNION UPDATE VALUE VALUES WHEN WHERE
"""
KEYWORDS: Final = frozenset(_KEYWORDS.split())


class StatementToken(NamedTuple):
    """A token: its kind and its text without quotes."""

    kind: StatementTokenKind
    text: str


_END: Final = StatementToken("end", "")


class StatementReader:
    """The tokens of one statement, read from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._position = 0
        self._depth = 0

    @property
    def token(self) -> StatementToken:
        return self._tokens[self._position]

    def advance(self) -> StatementToken:
        """Return the current token and go on to the next."""
        token = self.token
        if token.kind == "end":
            raise not_well_formed("Unexpected end of statement")
        self._position += 1
        return token

    def is_symbol(self, *symbols: str) -> bool:
        return self.token.kind == "symbol" and self.token.text in symbols

    def is_keyword(self, *keywords: str) -> bool:
        return self.token.kind == "word" and self.token.text.upper() in keywords

    def is_call(self) -> bool:
        """Whether the current token is the name of a function."""
        following = self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        return self.token.kind == "word" and following == ("symbol", "(")

    def accept(self, text: str) -> bool:
        """Read a symbol or keyword if it is the current token."""
        if self.is_symbol(text) or self.is_keyword(text):
            self._position += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Read a symbol or keyword."""
        if not self.accept(text):
            raise not_well_formed(f"Expected '{text}' but got '{self.token.text}'")

    def read_name(self, what: str) -> str:
        """Read an identifier, with or without double quotes."""
        token = self.token
        if token.kind == "name" and token.text:
            return self.advance().text
        if token.kind != "word":
            raise not_well_formed(f"Expected {what}")
        if token.text.upper() in KEYWORDS:
            raise not_well_formed("Unexpected keyword")
        return self.advance().text

    def descend(self) -> None:
        """Count a level of nesting."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise not_well_formed(f"The statement nests more than {MAX_NESTING} levels")

    def ascend(self) -> None:
        self._depth -= 1


def not_well_formed(detail: str) -> ServiceError:
    """Return the error of a statement with wrong syntax."""
    return invalid(f"Statement wasn't well formed, can't be processed: {detail}")


def _tokenize(text: str) -> list[StatementToken]:
    tokens = []
    # White space at the end belongs to no token, and would be searched from each of its characters.
    for match in _TOKEN.finditer(text.rstrip()):
        kind = match.lastgroup
        if kind == "comment":
            continue
        content = match[kind] if kind else ""
        if kind == "other":
            detail = "Unterminated string literal" if content in "'\"" else "Unexpected character"
            raise not_well_formed(detail)
        if kind == "string":
            content = content.replace("''", "'")
        elif kind == "name":
            content = content.replace('""', '"')
        tokens.append(StatementToken(kind, content))  # type: ignore[arg-type]  # a group's name
    return [*tokens, _END]
