"""What is particular about browsers: cookies, where the site stands, and whether a request was really meant.

A request that changes something must come from a page of this site: browsers say so in
`Sec-Fetch-Site` or `Origin`. A client that is no browser sends `X-Requested-With`, which a foreign
page cannot do without being asked first.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from tally.collect.model import SESSION_SECONDS, STATE_SECONDS
from tally.errors import Forbidden

SESSION_COOKIE: Final = "cc_session"
LOGIN_COOKIE: Final = "cc_login"


@dataclass(frozen=True, slots=True)
class Site:
    """How browsers see this server.

    `public_url` is where they reach it, if requests do not tell.
    """

    public_url: str | None
    plain_http: bool

    def url(self, request: Request, path: str) -> str:
        """The address of a path of the backend, as browsers know it."""
        return f"{self.origin(request)}{request.scope.get('root_path', '')}{path}"

    def origin(self, request: Request) -> str:
        if self.public_url is not None:
            return self.public_url
        return f"{request.url.scheme}://{request.url.netloc}"

    def require_own_page(self, request: Request) -> None:
        """Forbidden where the request may come from another site's page."""
        told = request.headers.get("sec-fetch-site")
        if told is not None:
            is_meant = told in {"same-origin", "none"}
        elif (origin := request.headers.get("origin")) is not None:
            is_meant = _origin_of(origin) == _origin_of(self.origin(request))
        else:
            is_meant = "x-requested-with" in request.headers
        if not is_meant:
            raise Forbidden(
                "The request comes from another site, or does not say where from",
                code="cross_site_request",
            )

    def sign_in(self, response: Response, session_id: str) -> None:
        self._set(response, SESSION_COOKIE, session_id, SESSION_SECONDS)
        self._set(response, LOGIN_COOKIE, "", 0)

    def sign_out(self, response: Response) -> None:
        self._set(response, SESSION_COOKIE, "", 0)

    def begin(self, response: Response, browser: str) -> None:
        self._set(response, LOGIN_COOKIE, browser, STATE_SECONDS)

    def _set(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path="/",
            secure=not self.plain_http,
            httponly=True,
            samesite="lax",
        )


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", None, None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)
