"""The registry of error codes: what each code of an error response means and what to do about it.

`error_codes.toml` lists them. Titles of error responses, the page `/docs/errors` and docs/errors.md
come from it.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """An error code: its title, usual status, meaning, and what a client can do."""

    code: str
    title: str
    status: int
    meaning: str
    action: str


def _read(text: str) -> Mapping[str, ErrorCode]:
    return MappingProxyType(
        {code: ErrorCode(code=code, **entry) for code, entry in tomllib.loads(text).items()}
    )


ERROR_CODES: Final = _read(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
