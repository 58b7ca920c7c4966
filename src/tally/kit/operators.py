"""Operators: the people and programs that administer an instance, and the routes they may call.

An operator sends a bearer token. A viewer may only read; the role `operator` may also change
things. `protect` puts this check, and the audit of each change, in front of every endpoint whose
`security` names the scheme `operator`. `tally.instance.operators` implements the accounts.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import Final, Protocol, TypeAlias

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.errors import Forbidden, Invalid
from tally.kit import logs
from tally.kit.auth import bearer_token
from tally.kit.endpoints import Api, Endpoint
from tally.kit.route_table import Handler

# The OpenAPI security scheme of protected endpoints.
OPERATOR_SCHEME: Final = "operator"
OPERATOR_SECURITY: Final = {
    OPERATOR_SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "Token of an operator; `tally operator add NAME` creates one. The first"
        " start writes the token of the operator `admin` to `operator.token` in the data directory."
        " Viewers may only read.",
    }
}
# The operator that TALLY_OPERATOR_TOKEN defines.
AUTOMATION: Final = "automation"
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})

_operator_name = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")


class Role(StrEnum):
    """What an operator may do: a viewer reads, an operator also makes changes."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Operator:
    """An authenticated operator.

    `token_id` tells an account from a later one with the same name.
    """

    name: str
    role: Role
    token_id: str = ""

    @property
    def session_id(self) -> str:
        """Identifies the account and its token: what the operator opened ends with them."""
        return f"{self.name}/{self.token_id}"

    @property
    def may_change(self) -> bool:
        return self.role is Role.OPERATOR


@dataclass(slots=True)
class OperatorChange:
    """A change in progress; set `error` to record a failure that raises no exception."""

    error: str | None = None


class OperatorDirectory(Protocol):
    """The accounts, as the HTTP edge uses them."""

    async def authenticate(self, token: str) -> Operator:
        """Return the operator with this token, or raise Unauthenticated."""

    async def find_active(self, session_ids: Sequence[str]) -> set[str]:
        """Return the `session_id` of those operators that were not removed and have not expired."""

    def recording(
        self, operator: Operator, action: str, target: str, **details: object
    ) -> AbstractAsyncContextManager[OperatorChange]:
        """Record a change in the audit trail: its intent before the body, its outcome after."""


_SCOPE_KEY: Final = "tally.operator"
# Returns the operator who sent a request, or raises Unauthenticated or Forbidden.
Authorize: TypeAlias = Callable[[Request], Awaitable[Operator]]


def check_operator_name(name: str) -> str:
    if not _operator_name.fullmatch(name):
        raise Invalid(
            "name must have 1 to 32 lower-case letters, digits and dashes,"
            " and start and end with a letter or digit",
            field="name",
        )
    return name


def check_may_change(operator: Operator) -> None:
    """Raise Forbidden if the operator may only read."""
    if not operator.may_change:
        raise _read_only(operator.name)


def _read_only(name: str) -> Forbidden:
    return Forbidden(
        f"Operator {name} has the role viewer, which may only read", code="read_only_operator"
    )


async def require_operator(request: Request, operators: OperatorDirectory) -> Operator:
    """Authenticate the bearer token; methods other than GET and HEAD need the role `operator`."""
    operator = await operators.authenticate(bearer_token(request))
    if request.method not in SAFE_METHODS:
        check_may_change(operator)
    return operator


def protect(api: Api, operators: OperatorDirectory, authorize: Authorize | None = None) -> Api:
    """Admit only operators to the endpoints with the scheme `operator`, and audit their changes.

    `authorize` replaces `require_operator` where other credentials are accepted too.
    """

    async def authorize_operator(request: Request) -> Operator:
        return await require_operator(request, operators)

    def protected(endpoint: Endpoint) -> Endpoint:
        action = f"{endpoint.method} {api.prefix}{endpoint.path}"
        check = authorize or authorize_operator
        handler = _protected(endpoint.handler, action, operators, check)
        if endpoint.method in SAFE_METHODS:
            return replace(endpoint, handler=handler)
        return replace(endpoint, handler=handler, errors=(*endpoint.errors, _read_only("vera")))

    return replace(
        api,
        endpoints=tuple(
            protected(endpoint) if OPERATOR_SCHEME in endpoint.security else endpoint
            for endpoint in api.endpoints
        ),
        security_schemes={**api.security_schemes, **OPERATOR_SECURITY},
    )


def _protected(
    handler: Handler, action: str, operators: OperatorDirectory, authorize: Authorize
) -> Handler:
    @wraps(handler)
    async def handle(request: Request) -> ASGIApp:
        operator = await authorize(request)
        request.scope[_SCOPE_KEY] = operator
        logs.bind(user_id=operator.name)
        if request.method in SAFE_METHODS:
            return await handler(request)
        async with operators.recording(operator, action, request.scope["path"]):
            return await handler(request)

    return handle


def request_operator(request: Request) -> Operator:
    """Return the operator whom `protect` has admitted."""
    operator: Operator = request.scope[_SCOPE_KEY]
    return operator
