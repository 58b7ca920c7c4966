"""Secrets are masked at any depth and in any form, and the result is valid JSON."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tally
from tally.kit.masking import mask, mask_text
from tally.settings import MASK, Secret

CANARY = "xK9-canary-Zq3"
SOURCE = Path(tally.__file__).parent
# SQL is sent, not logged.
STATEMENT = re.compile(r"\s*(SELECT|UPDATE|INSERT|DELETE|WITH) ")

secret_names = st.sampled_from(
    [
        "password",
        "Authorization",
        "authorization",
        "cookie",
        "Set-Cookie",
        "X-API-Key",
        "apiKey",
        "api_key",
        "access_token",
        "refreshToken",
        "updateToken",
        "pushToStartToken",
        "deviceToken",
        "action_token",
        "id_token",
        "client_secret",
        "cc_session",
        "sessionId",
        "private_key",
        "X-Admin-Key",
        "X-Internal-API-Key",
        "pepper",
    ]
)
harmless = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()


def nested(secret: dict[str, str], depth: int) -> st.SearchStrategy[Any]:
    """Generate dicts, lists and tuples around `secret`, with other values."""
    strategy: st.SearchStrategy[Any] = st.just(secret)
    for _ in range(depth):
        strategy = st.one_of(
            strategy.map(lambda value: [value]),
            strategy.map(lambda value: (1, value)),
            st.tuples(strategy, harmless).map(lambda pair: {"value": pair[0], "other": pair[1]}),
        )
    return strategy


@given(st.data(), secret_names, st.integers(0, 8))
def test_values_with_sensitive_names_are_masked_at_any_depth(
    data: st.DataObject, name: str, depth: int
) -> None:
    value = data.draw(nested({name: CANARY, "fine": "kept"}, depth))
    masked = json.dumps(mask(value))
    assert CANARY not in masked
    assert MASK in masked


def is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_plain(value) for name, value in value.items())
    if isinstance(value, list):
        return all(is_plain(value) for value in value)
    return value is None or isinstance(value, (str, bool, int, float))


@given(
    st.recursive(
        harmless, lambda value: st.lists(value) | st.dictionaries(st.text() | st.integers(), value)
    )
)
def test_any_value_becomes_json(value: object) -> None:
    masked = mask(value)
    assert is_plain(masked)
    assert msgspec.json.encode(masked).isascii() or msgspec.json.encode(masked).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"sent bearer {CANARY} to it",
        f"authorization: Basic {CANARY}",
        f"GET /livescores?api_token={CANARY}&include=runs",
        f"https://example.test/callback?code={CANARY}&state=s",
        f"https://example.test/callback?a=1&state={CANARY}",
        f'{{"password": "{CANARY}", "user": "a"}}',
        f"{{'refresh_token': '{CANARY}'}}",
        f"Cookie: cc_session={CANARY}; theme=dark",
        f"X-API-Key: {CANARY}",
        f"client_secret={CANARY}",
        f"eyJhbGciOiJSUzI1NiJ9.{CANARY}.{CANARY}",
        f"password = {CANARY}, next",
    ],
)
def test_credentials_in_text_are_masked(text: str) -> None:
    masked = mask_text(text)
    assert CANARY not in masked
    assert MASK in masked


def test_64_hexadecimal_digits_are_masked() -> None:
    key = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
    assert mask_text(f"key {key} is unknown") == f"key {MASK} is unknown"


@pytest.mark.parametrize(
    "text",
    [
        "Score updated successfully",
        "The token has expired",
        "No device AA:BB:CC:DD:EE:FF",
        "550e8400-e29b-41d4-a716-446655440000",
        "GET /devices/devices?limit=10 took 3 ms",
        "basics of the tokenizer",
    ],
)
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert mask_text(text) == text


def test_objects_are_converted_and_masked() -> None:
    """Structs, data classes, exceptions, dates, numbers and bytes."""

    class Session(msgspec.Struct):
        user_id: str
        session_id: str

    @dataclass
    class Login:
        username: str
        password: str
        session: Session

    masked = mask(
        {
            "login": Login("ann", CANARY, Session("u1", CANARY)),
            "error": ValueError(f"token={CANARY}"),
        }
    )
    assert masked == {
        "login": {
            "username": "ann",
            "password": MASK,
            "session": {"user_id": "u1", "session_id": MASK},
        },
        "error": f"ValueError: token={MASK}",
    }
    assert mask(
        [Decimal("1.5"), datetime(2026, 1, 1, tzinfo=UTC), b"abc", Secret(CANARY), {"token": None}]
    ) == [
        "1.5",
        "2026-01-01 00:00:00+00:00",
        "<3 bytes>",
        f"Secret({MASK})",
        {"token": None},
    ]


def test_an_object_with_a_failing_repr_is_named() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert mask(Broken()) == "<Broken without a repr: RuntimeError>"


def test_recursive_structures_are_cut_off() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "…" in json.dumps(mask(endless), ensure_ascii=False)


def test_a_lone_surrogate_is_escaped() -> None:
    assert mask_text("\ud800") == "\\ud800"


@pytest.mark.parametrize(
    "piece", ["token", "eyJ-", 'token="', "bearer ", "passwd-", "token: ", "?code=", "a" * 64]
)
def test_masking_takes_linear_time(piece: str) -> None:
    """Clients control part of the logged text: a million characters are masked quickly."""
    assert mask_text(piece * (1_000_000 // len(piece)))


# DynamoDB's own words, which clients receive and logs do not contain.
SYNTAX_ERROR = 'store/parse/tokens.py: Syntax error; token: "X", near: "X"'


def test_messages_of_the_code_are_not_masked() -> None:
    """A message such as `Invalid token: expired` would lose its reason in the log."""
    masked = [
        f"{path.relative_to(SOURCE)}: {text}"
        for path in sorted(SOURCE.rglob("*.py"))
        for text in messages(ast.parse(path.read_text()))
        if mask(text) != text
    ]
    assert masked == [SYNTAX_ERROR]


def messages(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of raised and returned errors and of log lines, with X for each value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.Return):
            calls = [child for child in ast.walk(node) if isinstance(child, ast.Call)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_log."):
            calls = [node]
        else:
            continue
        texts = (literal_text(argument) for call in calls for argument in call.args)
        yield from (text for text in texts if " " in text and not STATEMENT.match(text))


def literal_text(node: ast.expr) -> str:
    """Return the text of a string or f-string, or an empty one."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(part) or "X" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
