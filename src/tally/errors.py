"""What can go wrong, in the words of the domain.

Models, services and repositories raise these; they know nothing of HTTP. Each error has a `code`
for programs, a `message` for people and `details` that say more (the field, the limit). A class
stands for a kind of trouble, and a code says which one: `NotFound("No device AA:BB",
code="device_not_found")`. `tally.kit.http` has the one table from these classes to status codes,
and each backend says how they look on its wire.
"""

from collections.abc import Mapping
from types import MappingProxyType


class TallyError(Exception):
    """The base of all domain errors; raise one of its children."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details: Mapping[str, object] = MappingProxyType(details)


class Invalid(TallyError):
    """What was sent cannot be understood or breaks a rule; `field` in the details names the place."""

    default_code = "invalid"


class Unauthenticated(TallyError):
    """Who is asking is not known: no credential, or one that does not hold."""

    default_code = "unauthenticated"


class Forbidden(TallyError):
    """Who is asking is known, and may not."""

    default_code = "forbidden"


class NotFound(TallyError):
    """What was asked for is not there, or not for this caller."""

    default_code = "not_found"


class Conflict(TallyError):
    """It cannot be done to the thing as it is now."""

    default_code = "conflict"


class TooLarge(TallyError):
    """More was sent than will be read."""

    default_code = "too_large"


class UnsupportedMedia(TallyError):
    """What was sent is in a format or an encoding that is not read here."""

    default_code = "unsupported_media"


class RateLimited(TallyError):
    """Too much, too soon; it may be tried again after `retry_after` seconds."""

    default_code = "rate_limited"

    def __init__(
        self, message: str, *, retry_after: float, code: str | None = None, **details: object
    ) -> None:
        super().__init__(message, code=code, **details)
        self.retry_after = retry_after


class Unavailable(TallyError):
    """Something this needs is away; the same may work later, `retry_after` seconds from now if that is known."""

    default_code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        code: str | None = None,
        **details: object,
    ) -> None:
        super().__init__(message, code=code, **details)
        self.retry_after = retry_after
