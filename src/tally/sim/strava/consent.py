"""The consent page at `/oauth/authorize`.

The user selects an athlete or creates one, and deselects scopes. The redirect carries the granted
scopes next to the code, so that the application can detect a partial grant.
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
# Cannot be deselected.
REQUIRED_SCOPE: Final = "read"


@dataclass(frozen=True, slots=True)
class ConsentPage:
    """The routes of the consent page."""

    core: StravaCore

    def routes(self) -> list[Route]:
        return [
            Route("/oauth/authorize", self.show),
            Route("/oauth/authorize", self.submit, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        parameters = _authorize_parameters(request.query_params)
        try:
            scopes = self._check(parameters)
        except StravaError as error:
            return JSONResponse(error.body, error.status)
        consent = self.core.auto_approve
        if consent is None or consent.athlete_id not in self.core.athletes:
            return self._page(parameters, scopes)
        if consent.denied:
            return _redirect_denied(parameters)
        granted = (
            scopes
            if consent.scope is None
            else [scope for scope in scopes if scope in consent.scope.split(",")]
        )
        return self._redirect_with_code(parameters, consent.athlete_id, granted)

    async def submit(self, request: Request) -> Response:
        submitted = await read_form(request)
        parameters = _authorize_parameters(submitted)
        try:
            scopes = self._check(parameters)
        except StravaError as error:
            return JSONResponse(error.body, error.status)
        if "deny" in submitted:
            return _redirect_denied(parameters)
        name = submitted.get("name", "").strip()
        if name:
            firstname, _, lastname = name.partition(" ")
            athlete_id = self.core.add_athlete(firstname, lastname).id
        else:
            chosen = submitted.get("athlete", "")
            athlete_id = int(chosen) if chosen.isascii() and chosen.isdigit() else 0
        if athlete_id not in self.core.athletes:
            return self._page(parameters, scopes)
        return self._redirect_with_code(
            parameters,
            athlete_id,
            [scope for scope in scopes if scope == REQUIRED_SCOPE or f"grant:{scope}" in submitted],
        )

    def _check(self, parameters: Mapping[str, str]) -> list[str]:
        """Validate the request; return the requested scopes."""
        application = self.core.application
        if parameters.get("client_id") != str(application.client_id):
            raise bad_request("Application", "client_id")
        redirect_uri = parameters.get("redirect_uri", "")
        if not is_local(redirect_uri) and url_host(redirect_uri) != application.callback_domain:
            raise bad_request("Application", "redirect_uri")
        if parameters.get("response_type") != "code":
            raise bad_request("Authorize", "response_type")
        scopes = [scope for scope in parameters.get("scope", "").split(",") if scope]
        if not scopes or not SCOPES.issuperset(scopes):
            raise bad_request("Authorize", "scope")
        return scopes

    def _page(self, parameters: dict[str, str], scopes: list[str]) -> Response:
        boxes = [
            f'<label><input type="checkbox" name="grant:{escape(scope)}"'
            f" checked{_disabled(scope)}> {escape(scope)}</label>"
            for scope in scopes
        ]
        athlete_choices = (
            (str(athlete.id), f"Authorize as {athlete.firstname} {athlete.lastname}")
            for athlete in self.core.athletes.values()
        )
        athletes = choice_buttons("athlete", athlete_choices)
        new = (
            '<label>New athlete <input type="text" name="name"></label>'
            "<button>Authorize as this athlete</button>"
        )
        content = (*boxes, *athletes, new, html_button("deny", "yes", "Cancel"))
        return html_page(
            "Connect to Strava",
            note_paragraph("Simulated Strava: authorize as any athlete.")
            + html_form("/oauth/authorize", parameters, content),
        )

    def _redirect_with_code(
        self, parameters: Mapping[str, str], athlete_id: int, granted: list[str]
    ) -> Response:
        code = self.core.authorizations.issue_code(athlete_id, frozenset(granted))
        result = {"state": parameters.get("state", ""), "code": code, "scope": ",".join(granted)}
        return RedirectResponse(with_query(parameters["redirect_uri"], result), 302)


def _disabled(scope: str) -> str:
    return " disabled" if scope == REQUIRED_SCOPE else ""


def _authorize_parameters(submitted: Mapping[str, str]) -> dict[str, str]:
    return {name: submitted[name] for name in AUTHORIZE_PARAMETERS if name in submitted}


def _redirect_denied(parameters: Mapping[str, str]) -> Response:
    result = {"state": parameters.get("state", ""), "error": "access_denied"}
    return RedirectResponse(with_query(parameters["redirect_uri"], result), 302)
