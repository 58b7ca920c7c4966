"""Masks secrets in log data: `mask` returns a copy that is safe to log.

Two rules apply, and both prefer false positives. A value whose name suggests a secret (`password`,
`update_token`, `Authorization`, `X-API-Key`, …) is masked entirely, at any depth. All text is
searched for credentials: bearer tokens, JSON Web Tokens, 64 hexadecimal digits (API keys and device
tokens), and `name=value` or `"name": "value"` pairs with such a name.
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

SENSITIVE_NAMES: Final = (
    r"pass[-_]?(?:word|wd|phrase)|secret|token|authorization|cookie|credential|pepper|signature|nonce|jwt"
    r"|(?:api|private|admin|signing|access)[-_]?key|session[-_]?id|cc_session|code[-_]?verifier"
)
# Every pattern below requires one of these; most text contains none and is not searched.
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
    "/webhooks/",
)
MAX_DEPTH: Final = 12

_secret_name = re.compile(SENSITIVE_NAMES, re.IGNORECASE)
# These describe a secret without containing it, and help to diagnose problems.
_harmless_names: Final = frozenset({"token_use", "tokenuse", "token_type", "tokentype"})
_long_hexadecimal = re.compile(r"\b[0-9a-fA-F]{64,}\b")
# Clients control part of this text: repetitions are bounded or anchored, so that matching takes
# linear time.
_patterns: Final = (
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{4,}", re.IGNORECASE), rf"\1 {MASK}"),
    (re.compile(r"(?<![\w-])eyJ[\w-]+\.[\w-]+\.?[\w-]*"), MASK),
    (
        re.compile(
            rf"""((?:{SENSITIVE_NAMES})[\w-]{{0,32}}["']?\s{{0,4}}[:=]\s{{0,4}})("[^"]*"|'[^']*'|[^\s,;&"')}}\]]+)""",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"([?&](?:code|state)=)[^&\s\"']+"), rf"\1{MASK}"),
    # The path of an incoming webhook ends with a secret.
    (re.compile(r"((?<!/admin)/webhooks/[\w-]{1,32}/)[^/?#\s\"']+"), rf"\1{MASK}"),
)


def mask(value: object) -> Any:
    """Return a copy of `value` in JSON types with secrets masked; never raises."""
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
            _safe_name(str(name)): _field(str(name), element, depth)
            for name, element in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_copy(element, depth + 1) for element in value]
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
    except Exception as error:  # noqa: BLE001  (logging must not fail because of an object)
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"
