"""A fake collect server: login, Strava link, models and milestones.

It calls both simulators over HTTP like the real server, and records what users do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import jwt
from pyreqwest.client import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tally.kit.server import serving
from tally.sim.oidc.pool import COLLECT_CLIENT
from tally.sim.oidc.simulator import OidcSimulator
from tally.sim.request_parsing import with_query
from tally.sim.strava.simulator import StravaSimulator
from tests.sim.webhook_receiver import VERIFY_TOKEN


class FakeCollect:
    """The server and what it recorded."""

    def __init__(self, client: Client, issuer: OidcSimulator, strava: StravaSimulator) -> None:
        self._client = client
        self._issuer = issuer
        self._strava = strava
        self.linked: dict[str, int] = {}
        self.milestones: list[tuple[str, dict[str, Any]]] = []
        self.events: list[dict[str, Any]] = []
        self.url = ""

    async def log_in(self, _: Request) -> Response:
        parameters = {
            "client_id": COLLECT_CLIENT.client_id,
            "redirect_uri": f"{self.url}/auth/callback",
            "response_type": "code",
        }
        return RedirectResponse(with_query(f"{self._issuer.url}/oauth2/authorize", parameters), 302)

    async def login_callback(self, request: Request) -> Response:
        form = {
            "grant_type": "authorization_code",
            "code": request.query_params["code"],
            "redirect_uri": f"{self.url}/auth/callback",
        }
        request_builder = self._client.post(f"{self._issuer.url}/oauth2/token").basic_auth(
            COLLECT_CLIENT.client_id, COLLECT_CLIENT.secret
        )
        tokens = await (await request_builder.form(form).build().send()).json()
        claims = jwt.decode(tokens["id_token"], options={"verify_signature": False})
        response = RedirectResponse("/", 303)
        response.set_cookie("member", claims["name"].replace(" ", "_"), secure=True, httponly=True)
        return response

    async def connect(self, request: Request) -> Response:
        assert "member" in request.cookies
        parameters = {
            "client_id": str(self._strava.application.client_id),
            "redirect_uri": f"{self.url}/strava/callback",
            "response_type": "code",
            "scope": "read,activity:read_all",
        }
        return RedirectResponse(with_query(f"{self._strava.url}/oauth/authorize", parameters), 302)

    async def strava_callback(self, request: Request) -> Response:
        application = self._strava.application
        form = {
            "client_id": str(application.client_id),
            "client_secret": application.client_secret,
            "grant_type": "authorization_code",
            "code": request.query_params["code"],
        }
        tokens = await (
            await self._client.post(f"{self._strava.url}/oauth/token").form(form).build().send()
        ).json()
        self.linked[request.cookies["member"]] = tokens["athlete"]["id"]
        return RedirectResponse("/", 303)

    async def models(self, _: Request) -> Response:
        return JSONResponse({"items": [{"modelId": "fox"}, {"modelId": "lighthouse"}]})

    async def create_milestone(self, request: Request) -> Response:
        self.milestones.append((request.cookies["member"], await request.json()))
        return JSONResponse({}, 201)

    async def validate(self, request: Request) -> Response:
        assert request.query_params["hub.verify_token"] == VERIFY_TOKEN
        return JSONResponse({"hub.challenge": request.query_params["hub.challenge"]})

    async def receive_event(self, request: Request) -> Response:
        self.events.append(await request.json())
        return Response()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        routes = [
            Route("/auth/login", self.log_in),
            Route("/auth/callback", self.login_callback),
            Route("/strava/connect", self.connect),
            Route("/strava/callback", self.strava_callback),
            Route("/models", self.models),
            Route("/milestones", self.create_milestone, methods=["POST"]),
            Route("/webhooks/strava", self.validate),
            Route("/webhooks/strava", self.receive_event, methods=["POST"]),
        ]
        async with serving(Starlette(routes=routes)) as url:
            self.url = url
            yield self
