"""The page on which an athlete lets the application in: `/oauth/authorize`.

One picks an athlete, or becomes a new one, and unticks what the application shall not have. What
was really granted comes back with the code, so that an application can see it got less than it
asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tally.sim.html_pages import choice_buttons, html_button, html_form, html_page, note_paragraph
from tally.sim.request_parsing import is_local, read_form, url_host, with_query
from tally.sim.strava.authorizations import SCOPES
from tally.sim.strava.core import StravaCore
from tally.sim.strava.model import StravaError, bad_request

AUTHORIZE_PARAMETERS: Final = (
    "client_id",
    "redirect_uri",
    "response_type",
    "approval_prompt",
    "scope",
    "state",
)
# Cannot be unticked.
REQUIRED_SCOPE: Final = "read"


@dataclass(frozen=True, slots=True)
class ConsentPage:
    core: StravaCore

    def routes(self) -> list[Route]:
        return [
            Route("/oauth/authorize", self.show),
            Route("/oauth/authorize", self.answer, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        asked = _asked(request.query_params)
        try:
            wanted = self._check(asked)
        except StravaError as error:
            return JSONResponse(error.body, error.status)
        consent = self.core.auto_approve
        if consent is None or consent.athlete_id not in self.core.athletes:
            return self._page(asked, wanted)
        if consent.denied:
            return _denied(asked)
        granted = (
            wanted
            if consent.scope is None
            else [scope for scope in wanted if scope in consent.scope.split(",")]
        )
        return self._granted(asked, consent.athlete_id, granted)

    async def answer(self, request: Request) -> Response:
        sent = await read_form(request)
        asked = _asked(sent)
        try:
            wanted = self._check(asked)
        except StravaError as error:
            return JSONResponse(error.body, error.status)
        if "deny" in sent:
            return _denied(asked)
        name = sent.get("name", "").strip()
        if name:
            firstname, _, lastname = name.partition(" ")
            athlete_id = self.core.add_athlete(firstname, lastname).id
        else:
            chosen = sent.get("athlete", "")
            athlete_id = int(chosen) if chosen.isascii() and chosen.isdigit() else 0
        if athlete_id not in self.core.athletes:
            return self._page(asked, wanted)
        return self._granted(
            asked,
            athlete_id,
            [scope for scope in wanted if scope == REQUIRED_SCOPE or f"grant:{scope}" in sent],
        )

    def _check(self, asked: Mapping[str, str]) -> list[str]:
        """The scopes that are asked for, if the application may ask at all."""
        application = self.core.application
        if asked.get("client_id") != str(application.client_id):
            raise bad_request("Application", "client_id")
        address = asked.get("redirect_uri", "")
        if not is_local(address) and url_host(address) != application.callback_domain:
            raise bad_request("Application", "redirect_uri")
        if asked.get("response_type") != "code":
            raise bad_request("Authorize", "response_type")
        wanted = [scope for scope in asked.get("scope", "").split(",") if scope]
        if not wanted or not SCOPES.issuperset(wanted):
            raise bad_request("Authorize", "scope")
        return wanted

    def _page(self, asked: dict[str, str], wanted: list[str]) -> Response:
        boxes = [
            f'<label><input type="checkbox" name="grant:{escape(scope)}" checked{_fixed(scope)}> {escape(scope)}</label>'
            for scope in wanted
        ]
        known = (
            (str(athlete.id), f"Authorize as {athlete.firstname} {athlete.lastname}")
            for athlete in self.core.athletes.values()
        )
        athletes = choice_buttons("athlete", known)
        new = '<label>Or be somebody new <input type="text" name="name"></label><button>Authorize as this athlete</button>'
        inside = (*boxes, *athletes, new, html_button("deny", "yes", "Cancel"))
        return html_page(
            "Connect to Strava",
            note_paragraph("This Strava is simulated.")
            + html_form("/oauth/authorize", asked, inside),
        )

    def _granted(self, asked: Mapping[str, str], athlete_id: int, granted: list[str]) -> Response:
        code = self.core.authorizations.issue_code(athlete_id, frozenset(granted))
        told = {"state": asked.get("state", ""), "code": code, "scope": ",".join(granted)}
        return RedirectResponse(with_query(asked["redirect_uri"], told), 302)


def _fixed(scope: str) -> str:
    return " disabled" if scope == REQUIRED_SCOPE else ""


def _asked(sent: Mapping[str, str]) -> dict[str, str]:
    return {name: sent[name] for name in AUTHORIZE_PARAMETERS if name in sent}


def _denied(asked: Mapping[str, str]) -> Response:
    told = {"state": asked.get("state", ""), "error": "access_denied"}
    return RedirectResponse(with_query(asked["redirect_uri"], told), 302)
