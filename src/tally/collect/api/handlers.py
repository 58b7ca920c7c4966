"""Request handlers: each parses a request, calls a service and builds the response.

`routes.py` lists the routes.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from tally.collect.api.accounts import AccountHandlers, stream_person
from tally.collect.api.auth import LOGIN_COOKIE, SESSION_COOKIE, CollectAuth, client_ip
from tally.collect.api.events import MilestoneStreams
from tally.collect.api.schemas import collection, requests, responses
from tally.collect.api.workouts import WorkoutHandlers, next_cursor, page_key
from tally.collect.model.records import BrowserSession, MilestoneWithAwards
from tally.collect.service.audit import AuditKey
from tally.collect.service.services import CollectServices
from tally.errors import Unauthenticated, Unavailable
from tally.instance.streams import OpenStreams, StreamSession
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import NO_STORE, Json
from tally.kit.hub import Hub
from tally.kit.readiness import STORE, ReadinessMonitor

MAX_EVENT_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers(AccountHandlers, WorkoutHandlers):
    """The request handlers of the collect backend."""

    services: CollectServices
    auth: CollectAuth
    milestone_streams: MilestoneStreams
    cursors: Cursors
    hub: Hub
    readiness: ReadinessMonitor
    streams: OpenStreams

    async def check_health(self, _: Request) -> ASGIApp:
        return Json(responses.CollectHealth("ok"))

    async def check_readiness(self, _: Request) -> ASGIApp:
        return self.readiness.report({STORE, "strava"}).response()

    async def start_login(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.ReturnQuery)
        self.auth.count_sign_in(request)
        redirect = await self.services.sign_in.begin(
            self._login_callback_url(request), query.return_to or self._default_path(request)
        )
        response = RedirectResponse(redirect.url, 302, NO_STORE)
        self.auth.set_login_cookie(response, redirect.browser_secret)
        return response

    async def finish_login(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.LoginCallbackQuery)
        if query.error or not query.code:
            raise Unauthenticated("The OIDC provider rejected the sign-in", code="login_refused")
        result = await self.services.sign_in.finish(
            state=query.state,
            code=query.code,
            browser_secret=request.cookies.get(LOGIN_COOKIE),
            redirect_uri=self._login_callback_url(request),
            former_session_id=request.cookies.get(SESSION_COOKIE),
            ip=client_ip(request),
        )
        response = RedirectResponse(result.return_to, 303, NO_STORE)
        self.auth.set_session_cookie(response, result.session_id)
        return response

    async def logout(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.sign_in.end(session, client_ip(request))
        self.streams.end_session(session.session_hash)
        response = Response(status_code=204, headers=NO_STORE)
        self.auth.clear_session_cookie(response)
        return response

    async def get_account(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        summary = await self.services.accounts.summary(session.user_id)
        sync = await self.services.sync.ensure(summary.connection)
        return Json(responses.me_body(summary, sync), 200, NO_STORE)

    async def start_strava_link(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.ReturnQuery)
        self.auth.count_sign_in(request)
        url = await self.services.linking.begin(
            session,
            self.auth.url(request, "/strava/callback"),
            query.return_to or self._default_path(request),
        )
        return RedirectResponse(url, 302, NO_STORE)

    async def finish_strava_link(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        query = read_query(request, requests.StravaCallbackQuery)
        return_to = await self.services.linking.finish(
            session, state=query.state, code=query.code, scope=query.scope, error=query.error
        )
        with contextlib.suppress(Unavailable):  # the first status of the link schedules it too
            await self.services.sync.start_link(session.user_id)
        return RedirectResponse(return_to, 303, NO_STORE)

    async def get_strava_status(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        connection = await self.services.linking.status(session.user_id)
        sync = await self.services.sync.ensure(connection)
        return Json(responses.strava_status(connection, sync), 200, NO_STORE)

    async def sync_strava(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        sync = await self.services.sync.request(session.user_id)
        connection = await self.services.linking.status(session.user_id)
        return Json(responses.strava_status(connection, sync), 202, NO_STORE)

    async def unlink_strava(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.linking.disconnect(session.user_id)
        return Response(status_code=204, headers=NO_STORE)

    async def verify_webhook(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.HandshakeQuery)
        self.services.webhook.check_handshake(
            request.path_params["secret"], query.mode, query.verify_token
        )
        return Json(responses.Handshake(query.challenge))

    async def receive_event(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.StravaEventBody, limit=MAX_EVENT_BYTES)
        try:
            await self.services.webhook.receive(
                request.path_params["secret"], requests.to_delivery(body)
            )
        except Unavailable:
            self.services.sync.failures.add()  # Strava may give up: a sync finds the activity
            raise
        return Json(responses.EventReceived())

    async def list_models(self, _: Request) -> ASGIApp:
        models = await self.services.models.all()
        return Json(collection.ModelList([collection.model_body(meta) for meta in models]))

    async def get_model(self, request: Request) -> ASGIApp:
        model = await self.services.models.get(request.path_params["model_id"])
        return Json(collection.model_with_parts(model))

    async def create_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        body = await read_json(request, requests.NewMilestoneBody)
        created = await self.services.milestones.create(session.user_id, requests.to_goal(body))
        with contextlib.suppress(Unavailable):  # the daily sync includes the period too
            await self.services.sync.extend(session.user_id, created.milestone.period_start)
        return Json(collection.milestone_body(created), 201, NO_STORE)

    async def list_milestones(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        milestones = await self.services.milestones.all(session.user_id)
        bodies = [collection.milestone_body(milestone) for milestone in milestones]
        return Json(collection.MilestoneList(bodies), 200, NO_STORE)

    async def get_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        milestone = await self._milestone(request, session)
        return Json(collection.milestone_body(milestone), 200, NO_STORE)

    async def change_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        body = await read_json(request, requests.MilestoneChangeBody)
        milestone = await self.services.milestones.change_target(
            session.user_id, request.path_params["milestone_id"], body.total_target
        )
        return Json(collection.milestone_body(milestone), 200, NO_STORE)

    async def archive_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        milestone = await self.services.milestones.archive(
            session.user_id, request.path_params["milestone_id"]
        )
        return Json(collection.milestone_body(milestone), 200, NO_STORE)

    async def delete_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        await self.services.milestones.delete(session.user_id, request.path_params["milestone_id"])
        return Response(status_code=204, headers=NO_STORE)

    async def recompute_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        milestone = await self.services.engine.recompute(
            session.user_id, request.path_params["milestone_id"]
        )
        return Json(collection.milestone_body(milestone), 200, NO_STORE)

    async def stream_milestone(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session(request)
        owner = self.streams.admit(
            request,
            person=stream_person(session.user_id),
            session=StreamSession(session.session_hash, self.services.sign_in.find_active),
        )
        current = await self._milestone(request, session)

        async def read() -> MilestoneWithAwards:
            return await self._milestone(request, session)

        source = self.milestone_streams.source(current.milestone, read)
        events = EventStream(self.hub, source, request)
        return self.streams.response(owner, events)

    async def list_parked_events(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.ParkedEventsQuery)
        purpose = query_fingerprint("collect.parked", athlete=str(query.athlete))
        events, next_key = await self.services.retries.parked(
            query.athlete, query.limit, page_key(self.cursors, purpose, query.cursor)
        )
        bodies = [responses.parked_event_body(event) for event in events]
        page = responses.ParkedEventPage(bodies, next_cursor(self.cursors, purpose, next_key))
        return Json(page, 200, NO_STORE)

    async def retry_parked_events(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.RetryEventsBody)
        retried = await self.services.retries.retry_parked(body.athlete_id)
        return Json(responses.RetriedEvents(retried), 200, NO_STORE)

    async def search_audit(self, request: Request) -> ASGIApp:
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
            key, query.limit, page_key(self.cursors, purpose, query.cursor)
        )
        bodies = [responses.audit_body(event) for event in events]
        return Json(
            responses.AuditPage(bodies, next_cursor(self.cursors, purpose, next_key)), 200, NO_STORE
        )

    async def _milestone(self, request: Request, session: BrowserSession) -> MilestoneWithAwards:
        milestone_id = request.path_params["milestone_id"]
        return await self.services.milestones.get(session.user_id, milestone_id)

    def _login_callback_url(self, request: Request) -> str:
        return self.auth.url(request, "/auth/callback")

    def _default_path(self, request: Request) -> str:
        return f"{request.scope.get('root_path', '')}/me"
