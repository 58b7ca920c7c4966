"""Domain errors, independent of HTTP.

Models, services and repositories raise them. Each error has a `code` for programs, a `message` for
people and `details` such as the field and the limit. The class is the category, and the code names
the specific error: `NotFound("No device AA:BB", code="device_not_found")`. `error_codes.toml` lists
all codes, and `tally.kit.http` maps the classes to status codes.
"""

from collections.abc import Mapping
from types import MappingProxyType


class TallyError(Exception):
    """The base class of all domain errors; raise a subclass."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details: Mapping[str, object] = MappingProxyType(details)


class Invalid(TallyError):
    """The input is malformed or breaks a rule; `field` in the details names the place."""

    default_code = "invalid"


class Unauthenticated(TallyError):
    """The credential is missing or invalid."""

    default_code = "unauthenticated"


class Forbidden(TallyError):
    """The caller is authenticated but not allowed to do this."""

    default_code = "forbidden"


class NotFound(TallyError):
    """The resource does not exist or is not visible to the caller."""

    default_code = "not_found"


class Conflict(TallyError):
    """The current state of the resource does not allow the request."""

    default_code = "conflict"


class TooLarge(TallyError):
    """The request is larger than the limit."""

    default_code = "too_large"


class UnsupportedMedia(TallyError):
    """The media type or content encoding of the request is not supported."""

    default_code = "unsupported_media"


class Misdirected(TallyError):
    """The request names a host that this server does not serve."""

    default_code = "misdirected_request"


class RateLimited(TallyError):
    """The caller exceeded a rate limit; a retry may succeed after `retry_after` seconds."""

    default_code = "rate_limit_exceeded"

    def __init__(
        self, message: str, *, retry_after: float, code: str | None = None, **details: object
    ) -> None:
        super().__init__(message, code=code, **details)
        self.retry_after = retry_after


class Unavailable(TallyError):
    """A dependency is unavailable; a retry may succeed, after `retry_after` seconds if known."""

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
