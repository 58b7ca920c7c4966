"""What a setting may hold: how the documents call it, and how the text of a variable becomes a value."""

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

MASK: Final = "***"


class Secret:
    """A value that never shows itself: not in a log, a traceback or a repr.

    `reveal()` where it is used.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(
            self._value.encode(), other._value.encode()
        )

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class SettingType:
    """What a variable may hold: how the documents call it, and how its text becomes a value or a ValueError."""

    label: str
    parse: Callable[[str], object]
    is_secret: bool = False


def _text(raw: str) -> str:
    return raw


def _path(raw: str) -> Path:
    return Path(raw).expanduser()


def _flag(raw: str) -> bool:
    known = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if raw.lower() not in known:
        raise ValueError("must be yes or no")
    return known[raw.lower()]


def _url(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:8000")
    return raw.rstrip("/")


def _table_prefix(raw: str) -> str:
    if len(raw) > 64 or not all(
        letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in raw
    ):
        raise ValueError("must be at most 64 letters, digits, dots, dashes and underscores")
    return raw


def _secret(raw: str) -> Secret:
    if len(raw) < 32:
        raise ValueError("must have at least 32 characters")
    return Secret(raw)


def _given_secret(raw: str) -> Secret:
    return Secret(raw)


def _secrets(raw: str) -> tuple[Secret, ...]:
    given = tuple(word.strip() for word in raw.split(",") if word.strip())
    if any(len(word) < 32 for word in given):
        raise ValueError("must be secrets of at least 32 characters each, separated by commas")
    return tuple(Secret(word) for word in given)


def server_url(*schemes: str) -> SettingType:
    """The address of a server, which may have a password in it and is therefore secret."""

    def parse(raw: str) -> Secret:
        if urlsplit(raw).scheme not in schemes:
            raise ValueError(f"must be a URL that starts with {schemes[0]}://")
        return Secret(raw)

    return SettingType(f"{schemes[0]}:// URL", parse, is_secret=True)


def integer(least: int, most: int) -> SettingType:
    def parse(raw: str) -> int:
        if not (raw.isascii() and raw.isdigit() and least <= int(raw) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(raw)

    return SettingType(f"whole number, {least} to {most}", parse)


def choice(*words: str) -> SettingType:
    def parse(raw: str) -> str:
        if raw not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw

    return SettingType(" or ".join(words), parse)


def subset(*words: str) -> SettingType:
    def parse(raw: str) -> tuple[str, ...]:
        given = tuple(word.strip() for word in raw.split(","))
        if not set(given) <= set(words) or len(set(given)) < len(given):
            raise ValueError(f"must be some of {', '.join(words)}, separated by commas, each once")
        return given

    return SettingType(f"some of {', '.join(words)}", parse)


TEXT: Final = SettingType("text", _text)
PATH: Final = SettingType("path", _path)
FLAG: Final = SettingType("yes or no", _flag)
URL: Final = SettingType("URL", _url)
TABLE_PREFIX: Final = SettingType("letters, digits, . _ -", _table_prefix)
SECRET: Final = SettingType("secret, 32 characters or more", _secret, is_secret=True)
SECRETS: Final = SettingType("secrets, each of 32 characters or more", _secrets, is_secret=True)
EXTERNAL_SECRET: Final = SettingType(
    "secret, as another system gave it", _given_secret, is_secret=True
)


def setting(kind: SettingType, what_for: str, alias: str | None = None) -> dict[str, object]:
    """What a field says of itself; `alias` is another variable that is read where the field's own is not set."""
    return {"kind": kind, "help": what_for, "alias": alias}
