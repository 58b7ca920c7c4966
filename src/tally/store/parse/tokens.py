"""Splits an expression into tokens, and words the syntax errors."""

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from tally.store.errors import InvalidExpression

MAX_EXPRESSION_BYTES: Final = 4096

TokenKind: TypeAlias = Literal["word", "alias", "value", "index", "symbol", "other", "end"]

_TOKEN: Final = re.compile(
    r"[ \t\r\n\f]*(?:(?P<word>[A-Za-z][A-Za-z0-9_]*)"
    r"|(?P<alias>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)"
    r"|(?P<index>0|[1-9][0-9]*)|(?P<symbol><=|>=|<>|[=<>()\[\],.+-])"
    r"""|(?P<other>"[^"]*"|'[^']*'|[^ \t\r\n\f]))"""
)


class ExpressionError(InvalidExpression):
    """An invalid expression; the message is the one that DynamoDB sends."""


class Token(NamedTuple):
    """A token and its place in the expression."""

    kind: TokenKind
    text: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """Return the tokens of an expression, and one for its end."""
    if not text:
        raise ExpressionError("The expression can not be empty;")
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_EXPRESSION_BYTES:
        raise ExpressionError(
            f"Expression size has exceeded the maximum allowed size; expression size: {size}"
        )
    tokens = []
    for match in _TOKEN.finditer(text):
        kind: TokenKind = match.lastgroup or "other"  # type: ignore[assignment]
        tokens.append(Token(kind, match[kind], match.start(kind), match.end()))
    tokens.append(Token("end", "<EOF>", len(text), len(text)))
    return tokens


class TokenReader:
    """The tokens of one expression, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._position = 0
        self.token = self._tokens[0]

    def advance(self) -> Token:
        """Return the current token and go on to the next."""
        token = self.token
        if token.kind == "end":
            raise self.syntax_error()
        self._position += 1
        self.token = self._tokens[self._position]
        return token

    def is_symbol(self, *symbols: str) -> bool:
        return self.token.kind == "symbol" and self.token.text in symbols

    def is_keyword(self, *keywords: str) -> bool:
        return self.token.kind == "word" and self.token.text.upper() in keywords

    def is_call(self) -> bool:
        """Whether the current token is the name of a function."""
        if self.token.kind != "word":
            return False
        following = self._tokens[self._position + 1]
        return following.kind == "symbol" and following.text == "("

    def expect(self, symbol: str) -> None:
        """Read a symbol."""
        if not self.is_symbol(symbol):
            raise self.syntax_error()
        self.advance()

    def expect_keyword(self, keyword: str) -> None:
        """Read a keyword, in any case."""
        if not self.is_keyword(keyword):
            raise self.syntax_error()
        self.advance()

    def expect_end(self) -> None:
        if self.token.kind != "end":
            raise self.syntax_error()

    def syntax_error(self) -> ExpressionError:
        """Return the error for the current token, with its neighbours."""
        at, last = self._position, len(self._tokens) - 1
        start = self._tokens[at - 1].start if at else 0
        end = self._tokens[min(at + 1, last)].end
        if at + 1 == last:  # the end of the expression has no text
            end = self.token.end
        near = self._text[start:end]
        return ExpressionError(f'Syntax error; token: "{self.token.text}", near: "{near}"')
