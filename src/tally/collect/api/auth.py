"""Authentication of browsers: session cookies and CSRF protection.

A state-changing request must come from a page of this site. Browsers prove that with
`Sec-Fetch-Site` or `Origin`. Other clients send `X-Requested-With`, which a foreign page cannot set
without a CORS preflight.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from tally.collect.model.records import SESSION_SECONDS, STATE_SECONDS, BrowserSession
from tally.collect.service.sign_in import SignInService
from tally.errors import Forbidden
from tally.kit.addresses import client_address
from tally.kit.clock import Clock
from tally.kit.rate_limiter import RateLimiter
from tally.kit.rate_limits import record_rate_limit

SESSION_COOKIE: Final = "cc_session"
LOGIN_COOKIE: Final = "cc_login"


@dataclass(frozen=True, slots=True)
class CollectAuth:
    """Authenticates requests and manages cookies.

    Without `public_url`, URLs are derived from the request.
    """

    sign_in: SignInService
    public_url: str | None
    plain_http: bool
    sign_in_limiter: RateLimiter

    async def require_session(self, request: Request) -> BrowserSession:
        return await self.sign_in.resolve(request.cookies.get(SESSION_COOKIE))

    async def require_session_for_change(self, request: Request) -> BrowserSession:
        """Require a session and a request from this site."""
        self._require_same_origin(request)
        return await self.require_session(request)

    def count_sign_in(self, request: Request) -> None:
        """Count a sign-in or link that is started, or raise RateLimited.

        Each stores a state for ten minutes, and anybody can start a sign-in.
        """
        record_rate_limit(request.scope, self.sign_in_limiter.take(client_address(request)))

    def url(self, request: Request, path: str) -> str:
        """Return the public URL of a path of the backend."""
        return f"{self._origin(request)}{request.scope.get('root_path', '')}{path}"

    def set_session_cookie(self, response: Response, session_id: str) -> None:
        self._set_cookie(response, SESSION_COOKIE, session_id, SESSION_SECONDS)
        self._set_cookie(response, LOGIN_COOKIE, "", 0)

    def clear_session_cookie(self, response: Response) -> None:
        self._set_cookie(response, SESSION_COOKIE, "", 0)

    def set_login_cookie(self, response: Response, browser_secret: str) -> None:
        self._set_cookie(response, LOGIN_COOKIE, browser_secret, STATE_SECONDS)

    def _origin(self, request: Request) -> str:
        if self.public_url is not None:
            return self.public_url
        return f"{request.url.scheme}://{request.url.netloc}"

    def _require_same_origin(self, request: Request) -> None:
        fetch_site = request.headers.get("sec-fetch-site")
        if fetch_site is not None:
            is_allowed = fetch_site in {"same-origin", "none"}
        elif (origin := request.headers.get("origin")) is not None:
            is_allowed = _parse_origin(origin) == _parse_origin(self._origin(request))
        else:
            is_allowed = "x-requested-with" in request.headers
        if not is_allowed:
            raise Forbidden(
                "Cross-site request: send Origin, Sec-Fetch-Site or X-Requested-With from this"
                " site",
                code="cross_site_request",
            )

    def _set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path="/",
            secure=not self.plain_http,
            httponly=True,
            samesite="lax",
        )


def sign_in_limiter(clock: Clock, per_minute: int) -> RateLimiter:
    rule = f"at most {per_minute} sign-ins per minute and address"
    return RateLimiter(clock, per_minute / 60, per_minute, rule=rule)


def _parse_origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)


def client_ip(request: Request) -> str | None:
    return None if request.client is None else request.client.host
