"""The Hosted UI: login and logout pages.

`/oauth2/authorize` validates the request and shows the login page, unless the session cookie
identifies a user or `auto_approve` is set. On the page you select a user or enter any name. An
unknown client or redirect URI is reported on a page, every other error by redirect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tally.sim.html_pages import choice_buttons, html_form, html_page, note_paragraph
from tally.sim.oidc.grants import OAuthClient, OAuthError, OidcAuthorization
from tally.sim.oidc.pool import UserPool
from tally.sim.oidc.users import OidcUser
from tally.sim.request_parsing import is_local, read_form, with_query

SESSION_COOKIE: Final = "cognito"
# Parameters of an authorization request; the login form passes them on.
AUTHORIZE_PARAMETERS: Final = (
    "client_id",
    "redirect_uri",
    "response_type",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
    "login_hint",
    "prompt",
)


@dataclass(frozen=True, slots=True)
class HostedUi:
    """The browser-facing routes."""

    pool: UserPool
    # The `sub` of the logged-in user, by session id.
    sessions: dict[str, str] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        return [
            Route("/oauth2/authorize", self.authorize),
            Route("/login", self.show_login),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out),
        ]

    async def authorize(self, request: Request) -> Response:
        parameters = _authorize_parameters(request.query_params)
        error = self._error_response(parameters)
        if error is not None:
            return error
        user = self._logged_in_user(request, parameters)
        if user is None:
            return RedirectResponse(with_query("/login", parameters), 302)
        return self._approve(user, parameters)

    async def show_login(self, request: Request) -> Response:
        parameters = _authorize_parameters(request.query_params)
        error = self._error_response(parameters)
        if error is not None:
            return error
        users = choice_buttons(
            "who", ((user.sub, f"{user.name} ({user.email})") for user in self.pool.users)
        )
        hint = escape(parameters.get("login_hint", ""))
        name = (
            f'<label>Name or e-mail address <input type="text" name="name" value="{hint}"></label>'
        )
        user_form = html_form("/login", parameters, users)
        name_form = html_form("/login", parameters, (name, "<button>Log in</button>"))
        return html_page(
            "Log in",
            note_paragraph("Simulated issuer: log in as any user.") + user_form + name_form,
        )

    async def log_in(self, request: Request) -> Response:
        submitted = await read_form(request)
        parameters = _authorize_parameters(submitted)
        error = self._error_response(parameters)
        if error is not None:
            return error
        identifier = submitted.get("who") or submitted.get("name", "").strip()
        if not identifier:
            return RedirectResponse(with_query("/login", parameters), 302)
        user = self.pool.users.find_or_add(identifier)
        response = self._approve(user, parameters)
        session = self.pool.grants.new_id()
        self.sessions[session] = user.sub
        response.set_cookie(SESSION_COOKIE, session, httponly=True, samesite="lax", path="/")
        return response

    async def log_out(self, request: Request) -> Response:
        """End the session and redirect to the application or to the login page."""
        parameters = dict(request.query_params)
        client = self.pool.clients.get(parameters.get("client_id", ""))
        target = parameters.get("logout_uri")
        if client is None or (target is not None and not _allows(client.logout_uris, target)):
            return html_page(
                "Cannot log out",
                note_paragraph("The client or its logout URI is not registered."),
                400,
            )
        self.sessions.pop(request.cookies.get(SESSION_COOKIE, ""), None)
        response = RedirectResponse(
            target or with_query("/login", _authorize_parameters(request.query_params)), 302
        )
        response.delete_cookie(SESSION_COOKIE, path="/")
        return response

    def _logged_in_user(self, request: Request, parameters: Mapping[str, str]) -> OidcUser | None:
        if self.pool.auto_approve is not None:
            return self.pool.users.find_or_add(
                parameters.get("login_hint") or self.pool.auto_approve
            )
        if parameters.get("prompt") == "login":
            return None
        return self.pool.users.find(self.sessions.get(request.cookies.get(SESSION_COOKIE, ""), ""))

    def _error_response(self, parameters: Mapping[str, str]) -> Response | None:
        """The error for an invalid request: a page if redirecting is unsafe, else a redirect."""
        client = self.pool.clients.get(parameters.get("client_id", ""))
        redirect_uri = parameters.get("redirect_uri", "")
        if client is None or not _allows(client.redirect_uris, redirect_uri):
            return html_page(
                "Cannot log in",
                note_paragraph("The client or its redirect URI is not registered."),
                400,
            )
        try:
            _check(client, parameters)
        except OAuthError as error:
            result = {
                "error": error.error,
                "error_description": error.description,
                "state": parameters.get("state"),
            }
            return RedirectResponse(with_query(redirect_uri, result), 302)
        return None

    def _approve(self, user: OidcUser, parameters: Mapping[str, str]) -> RedirectResponse:
        authorization = OidcAuthorization(
            client_id=parameters["client_id"],
            sub=user.sub,
            scope=parameters.get("scope") or "openid email phone profile",
            redirect_uri=parameters["redirect_uri"],
            auth_time=self.pool.clock.seconds(),
            nonce=parameters.get("nonce"),
            code_challenge=parameters.get("code_challenge"),
        )
        result = {
            "code": self.pool.grants.issue_code(authorization),
            "state": parameters.get("state"),
        }
        return RedirectResponse(with_query(authorization.redirect_uri, result), 302)


def _authorize_parameters(submitted: Mapping[str, str]) -> dict[str, str]:
    return {name: submitted[name] for name in AUTHORIZE_PARAMETERS if name in submitted}


def _allows(registered: tuple[str, ...] | None, uri: str) -> bool:
    return is_local(uri) if registered is None else uri in registered


def _check(client: OAuthClient, parameters: Mapping[str, str]) -> None:
    if parameters.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", "response_type must be code")
    if "openid" not in parameters.get("scope", "openid").split():
        raise OAuthError("invalid_scope", "scope must include openid")
    method, challenge = parameters.get("code_challenge_method"), parameters.get("code_challenge")
    if (method is None) != (challenge is None) or method not in {None, "S256"}:
        raise OAuthError("invalid_request", "code_challenge requires code_challenge_method=S256")
    if client.secret is None and challenge is None:
        raise OAuthError("invalid_request", "A public client must use PKCE")
