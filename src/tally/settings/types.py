"""The types of settings: how each is documented, and how a variable's text becomes a value."""

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

MASK: Final = "***"


class Secret:
    """A value that does not appear in logs, tracebacks or its repr; `reveal()` returns it."""

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
    """A type of setting; `parse` returns a value or raises ValueError."""

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
        raise ValueError("must be a URL such as http://127.0.0.1:8080")
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


def _operator_token(raw: str) -> Secret:
    # Dots would make it look like a JSON Web Token, and other characters cannot be sent as one.
    if not re.fullmatch(r"[A-Za-z0-9_~+/=-]{32,}", raw):
        raise ValueError("must have at least 32 characters: letters, digits, - _ ~ + / =")
    return Secret(raw)


def _external_secret(raw: str) -> Secret:
    return Secret(raw)


def _secrets(raw: str) -> tuple[Secret, ...]:
    values = tuple(word.strip() for word in raw.split(",") if word.strip())
    if any(len(word) < 32 for word in values):
        raise ValueError("must be comma-separated secrets of at least 32 characters each")
    return tuple(Secret(word) for word in values)


def server_url(*schemes: str) -> SettingType:
    """Return the type of a server URL, which is secret because it may contain a password."""

    def parse(raw: str) -> Secret:
        if urlsplit(raw).scheme not in schemes:
            raise ValueError(f"must be a URL that starts with {schemes[0]}://")
        return Secret(raw)

    return SettingType(f"{schemes[0]}:// URL", parse, is_secret=True)


def integer(minimum: int, maximum: int) -> SettingType:
    def parse(raw: str) -> int:
        if not (raw.isascii() and raw.isdigit() and minimum <= int(raw) <= maximum):
            raise ValueError(f"must be an integer from {minimum} to {maximum}")
        return int(raw)

    return SettingType(f"integer, {minimum} to {maximum}", parse)


def choice(*words: str) -> SettingType:
    def parse(raw: str) -> str:
        if raw not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw

    return SettingType(" or ".join(words), parse)


def subset(*words: str) -> SettingType:
    def parse(raw: str) -> tuple[str, ...]:
        values = tuple(word.strip() for word in raw.split(","))
        if not set(values) <= set(words) or len(set(values)) < len(values):
            raise ValueError(f"must be a comma-separated list of {', '.join(words)}, each once")
        return values

    return SettingType(f"list of {', '.join(words)}", parse)


_origin = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_host_name = re.compile(r"\*|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.IGNORECASE)


def _host_names(raw: str) -> tuple[str, ...]:
    names = tuple(word.strip().rstrip(".").lower() for word in raw.split(","))
    if not all(_host_name.fullmatch(name) for name in names):
        raise ValueError(
            "must be a comma-separated list of host names without scheme and port,"
            " such as tally.example.com or *.example.com"
        )
    return names


def _origins(raw: str) -> tuple[str, ...]:
    origins = tuple(word.strip() for word in raw.split(","))
    if not all(origin == "*" or _origin.fullmatch(origin) for origin in origins):
        raise ValueError(
            "must be * or a comma-separated list of origins in lower case, such as"
            " https://game.example.com or http://localhost:5173"
        )
    return origins


def _proxies(raw: str) -> tuple[str, ...]:
    words = [word.strip() for word in raw.split(",")]
    if words == ["*"]:
        return ("*",)
    try:
        return tuple(_proxy(word) for word in words)
    except ValueError:
        raise ValueError(
            "must be * or a comma-separated list of IP addresses and networks, such as"
            " 10.0.0.7, 172.16.0.0/12 or fd00::/8; names are not resolved"
        ) from None


def _proxy(word: str) -> str:
    """Return an address as it is, and a network by its first address."""
    return str(ip_network(word, strict=False)) if "/" in word else str(ip_address(word))


TEXT: Final = SettingType("text", _text)
PATH: Final = SettingType("path", _path)
FLAG: Final = SettingType("yes or no", _flag)
URL: Final = SettingType("URL", _url)
HOST_NAMES: Final = SettingType("list of host names", _host_names)
ORIGINS: Final = SettingType("list of origins", _origins)
PROXIES: Final = SettingType("list of IP addresses and networks", _proxies)
TABLE_PREFIX: Final = SettingType("letters, digits, . _ -", _table_prefix)
SECRET: Final = SettingType("secret, at least 32 characters", _secret, is_secret=True)
SECRETS: Final = SettingType(
    "list of secrets, at least 32 characters each", _secrets, is_secret=True
)
OPERATOR_TOKEN: Final = SettingType(
    "secret, at least 32 letters, digits, - _ ~ + / =", _operator_token, is_secret=True
)
EXTERNAL_SECRET: Final = SettingType("secret", _external_secret, is_secret=True)


def setting(kind: SettingType, help_text: str, alias: str | None = None) -> dict[str, object]:
    """Return a field's metadata; `alias` is a second variable, read if the first is not set."""
    return {"kind": kind, "help": help_text, "alias": alias}
