"""Keeps secrets out of logs: `mask` makes a copy of anything that is safe to write down.

Two rules, both deliberately wide, since a masked harmless value costs nothing. What stands under a
name that sounds like a secret (`password`, `update_token`, `Authorization`, `X-API-Key`…) is masked
whole, at any depth. And text, wherever it stands, is searched for what looks like one: bearer
credentials, JSON Web Tokens, 64 hexadecimal digits (API keys and device tokens), and `name=value`
or `"name": "value"` with such a name.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from tally.settings import MASK

WORDS: Final = (
    r"pass[-_]?(?:word|wd|phrase)|secret|token|authorization|cookie|credential|pepper|signature|nonce|jwt"
    r"|(?:api|private|admin|signing|access)[-_]?key|session[-_]?id|cc_session|code[-_]?verifier"
)
# Each pattern below needs one of these; most text has none, and needs no search then.
HINTS: Final = (
    "pass",
    "secret",
    "token",
    "authorization",
    "cookie",
    "credential",
    "pepper",
    "signature",
    "nonce",
    "jwt",
    "key",
    "session",
    "verifier",
    "bearer",
    "basic",
    "eyj",
    "code=",
    "state=",
)
MAX_DEPTH: Final = 12

_secret_name = re.compile(WORDS, re.IGNORECASE)
# What these hold is about a secret, and is needed to follow what happened.
_harmless_names: Final = frozenset({"token_use", "tokenuse", "token_type", "tokentype"})
_long_hexadecimal = re.compile(r"\b[0-9a-fA-F]{64,}\b")
# Clients write part of what is searched here: repetitions are bounded or start at a boundary, so
# that the time is linear.
_patterns: Final = (
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{4,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+\.?[\w-]*"), MASK),
    (
        re.compile(
            rf"""((?:{WORDS})[\w-]{{0,32}}["']?\s{{0,4}}[:=]\s{{0,4}})("[^"]*"|'[^']*'|[^\s,;&"')}}\]]+)""",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"([?&](?:code|state)=)[^&\s\"']+"), rf"\1{MASK}"),
)


def mask(value: object) -> Any:
    """A copy of `value` made of JSON's types, with secrets masked; never fails, whatever it is given."""
    return _copy(value, 0)


def mask_text(text: str) -> str:
    if len(text) >= 64:
        text = _long_hexadecimal.sub(MASK, text)
    lowered = text.lower()
    if any(hint in lowered for hint in HINTS):
        for pattern, replacement in _patterns:
            text = pattern.sub(replacement, text)
    # A lone surrogate cannot be written as UTF-8.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@functools.lru_cache(maxsize=1024)
def _is_secret(name: str) -> bool:
    return _secret_name.search(name) is not None and name.lower() not in _harmless_names


@functools.lru_cache(maxsize=1024)
def _safe_name(name: str) -> str:
    return mask_text(name)


def _copy(value: object, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return mask_text(value)
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {
            _safe_name(str(name)): _field(str(name), held, depth) for name, held in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_copy(held, depth + 1) for held in value]
    return _copy_object(value, depth)


def _field(name: str, value: object, depth: int) -> Any:
    return MASK if value is not None and _is_secret(name) else _copy(value, depth + 1)


def _copy_object(value: object, depth: int) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _field(name, getattr(value, name), depth) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [entry.name for entry in dataclasses.fields(value)]
        return {name: _field(name, getattr(value, name), depth) for name in names}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if isinstance(value, (date, datetime, Decimal, UUID)):
        return str(value)
    if isinstance(value, BaseException):
        return mask_text(f"{type(value).__name__}: {value}")
    return mask_text(_repr(value))


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  (a log line about an object must not fail because the object does)
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"
