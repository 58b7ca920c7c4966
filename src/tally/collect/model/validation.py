"""Validation and normalization of single values."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from tally.errors import Invalid

MAX_METRES: Final = Decimal(1_000_000_000)

_user_id = re.compile(r"[A-Za-z0-9._:|@+-]{1,128}")


def check_user_id(value: object) -> str:
    """Require an OIDC subject that is valid in a key."""
    if not isinstance(value, str) or not _user_id.fullmatch(value):
        raise Invalid(
            "sub must have 1 to 128 letters, digits and . _ : | @ + -",
            code="invalid_subject",
            field="sub",
        )
    return value


def parse_time(text: str, field_name: str) -> str:
    """Normalize an RFC 3339 time to UTC and whole seconds, so that text sorts like time."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise _invalid_time(field_name) from error
    if parsed.tzinfo is None:
        raise _invalid_time(field_name)
    try:
        return parsed.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
    except OverflowError as error:
        raise _invalid_time(field_name) from error


def _invalid_time(field_name: str) -> Invalid:
    return Invalid(
        f"{field_name} must be an RFC 3339 time such as 2026-01-31T09:30:00Z",
        code="invalid_field",
        field=field_name,
    )


def normalize_metres(value: Decimal | None) -> Decimal:
    """Round metres to millimetres. Values out of range count as 0."""
    if value is None or not value.is_finite() or not 0 <= value < MAX_METRES:
        return Decimal(0)
    return value.quantize(Decimal("0.001"))
