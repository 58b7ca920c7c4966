"""What each route does: parse, call the service, render. The list of routes is in `routes.py`."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from tally.collect.api import render, schemas
from tally.collect.api.browser import LOGIN_COOKIE, SESSION_COOKIE, Site
from tally.collect.api.events import MilestoneFollower, topic_of
from tally.collect.model import Held, PageKey, Session
from tally.collect.service.accounts import Accounts
from tally.collect.service.audit_search import AuditKey, AuditSearch
from tally.collect.service.engine import ProgressEngine
from tally.collect.service.linking import Linking
from tally.collect.service.milestones import MilestoneService
from tally.collect.service.models import ModelShelf
from tally.collect.service.sign_in import SignIn
from tally.collect.service.webhook import Webhook
from tally.collect.service.workouts import WorkoutService
from tally.errors import Unauthenticated
from tally.kit.auth import require_bearer
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.settings import Secret

PRIVATE = {"Cache-Control": "no-store"}
MAX_EVENT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers, with all they need."""

    site: Site
    sign_in: SignIn
    linking: Linking
    webhook: Webhook
    accounts: Accounts
    shelf: ModelShelf
    milestones: MilestoneService
    engine: ProgressEngine
    workout_service: WorkoutService
    audit_search: AuditSearch
    follower: MilestoneFollower
    cursors: Cursors
    hub: Hub
    admin_token: Secret

    async def health(self, _: Request) -> ASGIApp:
        return Json(schemas.Health("ok"))

    async def ready(self, _: Request) -> ASGIApp:
        await self.shelf.all()
        return Json(schemas.Health("ready"))

    async def login(self, request: Request) -> ASGIApp:
        query = read_query(request, schemas.ReturnQuery)
        begun = await self.sign_in.begin(
            self._login_uri(request), query.return_to or self._home(request)
        )
        response = RedirectResponse(begun.url, 302, PRIVATE)
        self.site.begin(response, begun.browser)
        return response

    async def login_callback(self, request: Request) -> ASGIApp:
        answer = read_query(request, schemas.LoginAnswer)
        if answer.error or not answer.code:
            raise Unauthenticated("The issuer did not let you in", code="login_refused")
        done = await self.sign_in.finish(
            state=answer.state,
            code=answer.code,
            browser=request.cookies.get(LOGIN_COOKIE),
            redirect_uri=self._login_uri(request),
            former=request.cookies.get(SESSION_COOKIE),
            ip=_address(request),
        )
        response = RedirectResponse(done.return_to, 303, PRIVATE)
        self.site.sign_in(response, done.session_id)
        return response

    async def logout(self, request: Request) -> ASGIApp:
        session = await self._changing(request)
        await self.sign_in.end(session, _address(request))
        response = Response(status_code=204, headers=PRIVATE)
        self.site.sign_out(response)
        return response

    async def me(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        return Json(render.me(await self.accounts.summary(session.user_id)), 200, PRIVATE)

    async def connect(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        query = read_query(request, schemas.ReturnQuery)
        back = query.return_to or self._home(request)
        return RedirectResponse(
            await self.linking.begin(session, self._strava_uri(request), back), 302, PRIVATE
        )

    async def strava_callback(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        answer = read_query(request, schemas.StravaAnswer)
        back = await self.linking.finish(
            session, state=answer.state, code=answer.code, scope=answer.scope, error=answer.error
        )
        return RedirectResponse(back, 303, PRIVATE)

    async def strava_status(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        return Json(render.strava_status(await self.linking.status(session.user_id)), 200, PRIVATE)

    async def disconnect(self, request: Request) -> ASGIApp:
        session = await self._changing(request)
        await self.linking.disconnect(session.user_id)
        return Response(status_code=204, headers=PRIVATE)

    async def handshake(self, request: Request) -> ASGIApp:
        query = read_query(request, schemas.HandshakeQuery)
        self.webhook.check_handshake(query.mode, query.verify_token)
        return Json(schemas.Handshake(query.challenge))

    async def event(self, request: Request) -> ASGIApp:
        await self.webhook.receive(
            schemas.told(await read_json(request, schemas.EventBody, limit=MAX_EVENT))
        )
        return Json(schemas.Received())

    async def workouts(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        query = read_query(request, schemas.PageQuery)
        purpose = query_fingerprint("collect.workouts", user=session.user_id)
        start = self._start(purpose, query.cursor)
        found, following = await self.workout_service.page(session.user_id, query.limit, start)
        page = schemas.WorkoutPage(
            [render.workout_body(each) for each in found], self._cursor(purpose, following)
        )
        return Json(page, 200, PRIVATE)

    async def models(self, _: Request) -> ASGIApp:
        return Json(schemas.ModelList([render.model_body(meta) for meta in await self.shelf.all()]))

    async def model(self, request: Request) -> ASGIApp:
        return Json(render.whole_model(await self.shelf.get(request.path_params["model_id"])))

    async def create_milestone(self, request: Request) -> ASGIApp:
        session = await self._changing(request)
        body = await read_json(request, schemas.NewMilestone)
        held = await self.milestones.create(session.user_id, schemas.goal(body))
        return Json(render.milestone_body(held), 201, PRIVATE)

    async def list_milestones(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        found = [render.milestone_body(held) for held in await self.milestones.all(session.user_id)]
        return Json(schemas.MilestoneList(found), 200, PRIVATE)

    async def show_milestone(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        return Json(render.milestone_body(await self._held(request, session)), 200, PRIVATE)

    async def recompute(self, request: Request) -> ASGIApp:
        session = await self._changing(request)
        held = await self.engine.recompute(session.user_id, request.path_params["milestone_id"])
        return Json(render.milestone_body(held), 200, PRIVATE)

    async def stream(self, request: Request) -> ASGIApp:
        session = await self._session(request)
        held = await self._held(request, session)

        async def snapshot() -> tuple[str, object]:
            return "milestone", render.milestone_body(await self._held(request, session))

        key = (session.user_id, held.milestone.milestone_id)
        return EventStream(
            self.hub, topic_of(key), request, snapshot, self.follower.watch(key, held)
        )

    async def delete_account(self, request: Request) -> ASGIApp:
        session = await self._changing(request)
        await self.accounts.delete(session, _address(request))
        response = Response(status_code=204, headers=PRIVATE)
        self.site.sign_out(response)
        return response

    async def audit(self, request: Request) -> ASGIApp:
        require_bearer(request, self.admin_token)
        query = read_query(request, schemas.AuditQuery)
        key = self.audit_search.checked(
            AuditKey(query.user, query.correlation, query.event, query.month)
        )
        purpose = query_fingerprint(
            "collect.audit",
            user=key.user,
            correlation=key.correlation,
            event=key.event,
            month=key.month,
        )
        events, following = await self.audit_search.page(
            key, query.limit, self._start(purpose, query.cursor)
        )
        page = schemas.AuditPage(
            [render.audit_body(event) for event in events], self._cursor(purpose, following)
        )
        return Json(page, 200, PRIVATE)

    async def _session(self, request: Request) -> Session:
        return await self.sign_in.resolve(request.cookies.get(SESSION_COOKIE))

    async def _changing(self, request: Request) -> Session:
        """The session of a request that changes something, which must come from a page of ours."""
        self.site.require_own_page(request)
        return await self._session(request)

    async def _held(self, request: Request, session: Session) -> Held:
        return await self.milestones.get(session.user_id, request.path_params["milestone_id"])

    def _login_uri(self, request: Request) -> str:
        return self.site.url(request, "/auth/callback")

    def _strava_uri(self, request: Request) -> str:
        return self.site.url(request, "/strava/callback")

    def _home(self, request: Request) -> str:
        return f"{request.scope.get('root_path', '')}/me"

    def _start(self, purpose: str, cursor: str | None) -> PageKey | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _cursor(self, purpose: str, following: PageKey | None) -> str | None:
        return None if following is None else self.cursors.encode(purpose, following)


def _address(request: Request) -> str | None:
    return None if request.client is None else request.client.host
