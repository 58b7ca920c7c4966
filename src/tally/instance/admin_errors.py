"""The errors that all admin routes of the instance can return."""

from typing import Final

from tally.errors import (
    Invalid,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)

ADMIN_ERRORS: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must be: Bearer, a space, the token", code="missing_token"
    ),
    Unauthenticated("Invalid operator token", code="invalid_token"),
    Unavailable("The store is unavailable", retry_after=1),
)
BODY_ERRORS: Final[tuple[TallyError, ...]] = (
    Invalid("The body is not valid JSON", code="malformed_json"),
    TooLarge("The body must not be longer than 1048576 bytes"),
    UnsupportedMedia("The content type must be application/json"),
)
