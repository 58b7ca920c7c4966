"""The Hosted UI: where a browser is sent to log in, and to log out.

`/oauth2/authorize` checks what the application asked for and shows the login page, unless somebody
is still logged in here (a cookie) or the simulator approves by itself. On the page one picks a
made-up person or types any name. A wrong client or redirect address is told to the person;
everything else is told to the application, by redirect.
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
# What an application asks with; the login form carries it along.
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
    pool: UserPool
    # Who is logged in here, by the cookie's value.
    sessions: dict[str, str] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        return [
            Route("/oauth2/authorize", self.authorize),
            Route("/login", self.show_login),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/logout", self.log_out),
        ]

    async def authorize(self, request: Request) -> Response:
        asked = _asked(request.query_params)
        refusal = self._refusal(asked)
        if refusal is not None:
            return refusal
        person = self._already_here(request, asked)
        if person is None:
            return RedirectResponse(with_query("/login", asked), 302)
        return self._approve(person, asked)

    async def show_login(self, request: Request) -> Response:
        asked = _asked(request.query_params)
        refusal = self._refusal(asked)
        if refusal is not None:
            return refusal
        users = choice_buttons(
            "who", ((person.sub, f"{person.name} ({person.email})") for person in self.pool.users)
        )
        hint = escape(asked.get("login_hint", ""))
        name = (
            f'<label>Name or e-mail address <input type="text" name="name" value="{hint}"></label>'
        )
        picking = html_form("/login", asked, users)
        naming = html_form("/login", asked, (name, "<button>Log in</button>"))
        return html_page(
            "Log in",
            note_paragraph("This issuer is simulated: be whoever you like.") + picking + naming,
        )

    async def log_in(self, request: Request) -> Response:
        sent = await read_form(request)
        asked = _asked(sent)
        refusal = self._refusal(asked)
        if refusal is not None:
            return refusal
        who = sent.get("who") or sent.get("name", "").strip()
        if not who:
            return RedirectResponse(with_query("/login", asked), 302)
        person = self.pool.users.find_or_add(who)
        response = self._approve(person, asked)
        session = self.pool.grants.new_id()
        self.sessions[session] = person.sub
        response.set_cookie(SESSION_COOKIE, session, httponly=True, samesite="lax", path="/")
        return response

    async def log_out(self, request: Request) -> Response:
        """Forget who is logged in, and go where the application wants: its own page, or the login again."""
        asked = dict(request.query_params)
        client = self.pool.clients.get(asked.get("client_id", ""))
        target = asked.get("logout_uri")
        if client is None or (target is not None and not _allows(client.logout_uris, target)):
            return html_page(
                "Cannot log out",
                note_paragraph("The client or its address is not registered."),
                400,
            )
        self.sessions.pop(request.cookies.get(SESSION_COOKIE, ""), None)
        response = RedirectResponse(
            target or with_query("/login", _asked(request.query_params)), 302
        )
        response.delete_cookie(SESSION_COOKIE, path="/")
        return response

    def _already_here(self, request: Request, asked: Mapping[str, str]) -> OidcUser | None:
        if self.pool.auto_approve is not None:
            return self.pool.users.find_or_add(asked.get("login_hint") or self.pool.auto_approve)
        if asked.get("prompt") == "login":
            return None
        return self.pool.users.find(self.sessions.get(request.cookies.get(SESSION_COOKIE, ""), ""))

    def _refusal(self, asked: Mapping[str, str]) -> Response | None:
        """What stands against this request: a page if it is not safe to redirect, else a redirect with the error."""
        client = self.pool.clients.get(asked.get("client_id", ""))
        redirect_uri = asked.get("redirect_uri", "")
        if client is None or not _allows(client.redirect_uris, redirect_uri):
            return html_page(
                "Cannot log in",
                note_paragraph("The client or its redirect address is not registered."),
                400,
            )
        try:
            _check(client, asked)
        except OAuthError as error:
            told = {
                "error": error.error,
                "error_description": error.description,
                "state": asked.get("state"),
            }
            return RedirectResponse(with_query(redirect_uri, told), 302)
        return None

    def _approve(self, person: OidcUser, asked: Mapping[str, str]) -> RedirectResponse:
        authorization = OidcAuthorization(
            client_id=asked["client_id"],
            sub=person.sub,
            scope=asked.get("scope") or "openid email phone profile",
            redirect_uri=asked["redirect_uri"],
            auth_time=self.pool.clock.seconds(),
            nonce=asked.get("nonce"),
            code_challenge=asked.get("code_challenge"),
        )
        told = {"code": self.pool.grants.issue_code(authorization), "state": asked.get("state")}
        return RedirectResponse(with_query(authorization.redirect_uri, told), 302)


def _asked(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent[name] for name in AUTHORIZE_PARAMETERS if name in sent}


def _allows(registered: tuple[str, ...] | None, address: str) -> bool:
    return is_local(address) if registered is None else address in registered


def _check(client: OAuthClient, asked: Mapping[str, str]) -> None:
    if asked.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", "Only code is supported")
    if "openid" not in asked.get("scope", "openid").split():
        raise OAuthError("invalid_scope", "openid must be among the scopes")
    method, challenge = asked.get("code_challenge_method"), asked.get("code_challenge")
    if (method is None) != (challenge is None) or method not in {None, "S256"}:
        raise OAuthError("invalid_request", "code_challenge comes with code_challenge_method=S256")
    if client.secret is None and challenge is None:
        raise OAuthError("invalid_request", "A public client must use PKCE")
