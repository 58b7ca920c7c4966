"""Request handlers: each parses a request, calls a service and builds the response.

`routes.py` lists the routes.
"""

from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from tally.collect.api.auth import LOGIN_COOKIE, SESSION_COOKIE, CollectAuth
from tally.collect.api.events import MilestonePoller, milestone_topic
from tally.collect.api.schemas import requests, responses
from tally.collect.model.records import BrowserSession, MilestoneWithAwards, PageKey
from tally.collect.service.audit import AuditKey
from tally.collect.service.services import CollectServices
from tally.errors import Unauthenticated
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub

NO_STORE: Final = {"Cache-Control": "no-store"}
MAX_EVENT_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The request handlers of the collect backend."""

    services: CollectServices
    auth: CollectAuth
    poller: MilestonePoller
    cursors: Cursors
    hub: Hub

    async def health(self, _: Request) -> ASGIApp:
        return Json(responses.CollectHealth("ok"))

    async def ready(self, _: Request) -> ASGIApp:
        await self.services.models.all()
        return Json(responses.CollectHealth("ready"))

    async def login(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.ReturnQuery)
        redirect = await self.services.sign_in.begin(
            self._login_callback_url(request), query.return_to or self._default_path(request)
        )
        response = RedirectResponse(redirect.url, 302, NO_STORE)
        self.auth.set_login_cookie(response, redirect.browser_secret)
        return response

    async def login_callback(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.LoginCallbackQuery)
        if query.error or not query.code:
            raise Unauthenticated("The OIDC provider rejected the sign-in", code="login_refused")
        result = await self.services.sign_in.finish(
            state=query.state,
            code=query.code,
            browser_secret=request.cookies.get(LOGIN_COOKIE),
            redirect_uri=self._login_callback_url(request),
            former_session_id=request.cookies.get(SESSION_COOKIE),
            ip=_client_ip(request),
        )
        response = RedirectResponse(result.return_to, 303, NO_STORE)
        self.auth.set_session_cookie(response, result.session_id)
        return response

    async def logout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.sign_in.end(session, _client_ip(request))
        response = Response(status_code=204, headers=NO_STORE)
        self.auth.clear_session_cookie(response)
        return response

    async def me(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        summary = await self.services.accounts.summary(session.user_id)
        return Json(responses.me_body(summary), 200, NO_STORE)

    async def connect(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.ReturnQuery)
        url = await self.services.linking.begin(
            session,
            self.auth.url(request, "/strava/callback"),
            query.return_to or self._default_path(request),
        )
        return RedirectResponse(url, 302, NO_STORE)

    async def strava_callback(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.StravaCallbackQuery)
        return_to = await self.services.linking.finish(
            session, state=query.state, code=query.code, scope=query.scope, error=query.error
        )
        return RedirectResponse(return_to, 303, NO_STORE)

    async def strava_status(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        connection = await self.services.linking.status(session.user_id)
        return Json(responses.strava_status(connection), 200, NO_STORE)

    async def disconnect(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.linking.disconnect(session.user_id)
        return Response(status_code=204, headers=NO_STORE)

    async def handshake(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.HandshakeQuery)
        self.services.webhook.check_handshake(query.mode, query.verify_token)
        return Json(responses.Handshake(query.challenge))

    async def event(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.StravaEventBody, limit=MAX_EVENT_BYTES)
        await self.services.webhook.receive(requests.to_delivery(body))
        return Json(responses.EventReceived())

    async def workouts(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.WorkoutsQuery)
        purpose = query_fingerprint("collect.workouts", user=session.user_id)
        workouts, next_key = await self.services.accounts.workouts(
            session.user_id, query.limit, self._page_key(purpose, query.cursor)
        )
        bodies = [responses.workout_body(workout) for workout in workouts]
        return Json(responses.WorkoutPage(bodies, self._cursor(purpose, next_key)), 200, NO_STORE)

    async def models(self, _: Request) -> ASGIApp:
        models = await self.services.models.all()
        return Json(responses.ModelList([responses.model_body(meta) for meta in models]))

    async def model(self, request: Request) -> ASGIApp:
        model = await self.services.models.get(request.path_params["model_id"])
        return Json(responses.model_with_parts(model))

    async def create_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        body = await read_json(request, requests.NewMilestoneBody)
        created = await self.services.milestones.create(session.user_id, requests.to_goal(body))
        return Json(responses.milestone_body(created), 201, NO_STORE)

    async def list_milestones(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        milestones = await self.services.milestones.all(session.user_id)
        bodies = [responses.milestone_body(milestone) for milestone in milestones]
        return Json(responses.MilestoneList(bodies), 200, NO_STORE)

    async def show_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        milestone = await self._milestone(request, session)
        return Json(responses.milestone_body(milestone), 200, NO_STORE)

    async def recompute(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        milestone = await self.services.engine.recompute(
            session.user_id, request.path_params["milestone_id"]
        )
        return Json(responses.milestone_body(milestone), 200, NO_STORE)

    async def stream(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        current = await self._milestone(request, session)

        async def snapshot() -> tuple[str, object]:
            milestone = await self._milestone(request, session)
            return "milestone", responses.milestone_body(milestone)

        key = (session.user_id, current.milestone.milestone_id)
        return EventStream(
            self.hub, milestone_topic(key), request, snapshot, self.poller.watch(key, current)
        )

    async def delete_account(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.accounts.delete(session, _client_ip(request))
        response = Response(status_code=204, headers=NO_STORE)
        self.auth.clear_session_cookie(response)
        return response

    async def audit(self, request: Request) -> ASGIApp:
        self.auth.require_operator(request)
        query = read_query(request, requests.AuditQuery)
        key = self.services.audit_search.complete_key(
            AuditKey(query.user, query.correlation, query.event, query.month)
        )
        purpose = query_fingerprint(
            "collect.audit",
            user=key.user,
            correlation=key.correlation,
            event=key.event,
            month=key.month,
        )
        events, next_key = await self.services.audit_search.page(
            key, query.limit, self._page_key(purpose, query.cursor)
        )
        bodies = [responses.audit_body(event) for event in events]
        return Json(responses.AuditPage(bodies, self._cursor(purpose, next_key)), 200, NO_STORE)

    async def _milestone(self, request: Request, session: BrowserSession) -> MilestoneWithAwards:
        milestone_id = request.path_params["milestone_id"]
        return await self.services.milestones.get(session.user_id, milestone_id)

    def _login_callback_url(self, request: Request) -> str:
        return self.auth.url(request, "/auth/callback")

    def _default_path(self, request: Request) -> str:
        return f"{request.scope.get('root_path', '')}/me"

    def _page_key(self, purpose: str, cursor: str | None) -> PageKey | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _cursor(self, purpose: str, page_key: PageKey | None) -> str | None:
        return None if page_key is None else self.cursors.encode(purpose, page_key)


def _client_ip(request: Request) -> str | None:
    return None if request.client is None else request.client.host
