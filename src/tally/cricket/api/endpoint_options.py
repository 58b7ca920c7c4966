"""What all endpoints for users, and all for admins, have in common: errors and security."""

from typing import Any, Final

from tally.cricket.api.auth import admin_required
from tally.errors import TallyError, Unauthenticated, Unavailable
from tally.kit.operators import OPERATOR_SCHEME

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_INVALID_TOKEN: Final = Unauthenticated("Invalid token", code="invalid_token")
_ADMIN_REQUIRED: Final = admin_required()


def user_endpoint(*raised: TallyError) -> dict[str, Any]:
    """Return the options of an endpoint for users that raises these errors."""
    return {"errors": (*raised, _INVALID_TOKEN, _UNAVAILABLE), "security": ("cricket_user",)}


def admin_endpoint(*raised: TallyError) -> dict[str, Any]:
    """Return the options of an endpoint for admins that raises these errors."""
    return {
        "errors": (*raised, _INVALID_TOKEN, _ADMIN_REQUIRED, _UNAVAILABLE),
        "security": ("cricket_user", OPERATOR_SCHEME),
    }
