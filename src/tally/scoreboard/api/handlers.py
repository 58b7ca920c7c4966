"""What each route does: parse, call the service, render. The list of routes is in `routes.py`."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tally.errors import Invalid
from tally.kit.auth import bearer_token, require_key
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.hub import Hub
from tally.scoreboard.api import render, schemas
from tally.scoreboard.api.rate_limit_headers import note
from tally.scoreboard.model import from_microseconds, parse_user_id, to_microseconds
from tally.scoreboard.service.accounts import AccountRegistration, PlayerAccounts
from tally.scoreboard.service.actions import Actions
from tally.scoreboard.service.broadcaster import TOPIC, LeaderboardBroadcaster
from tally.scoreboard.service.cache_sync import CacheSync
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.rate_limits import RateLimiter, RateLimitExceeded
from tally.scoreboard.service.scores import ScoreUpdates
from tally.scoreboard.service.sessions import AuthenticatedPlayer, Client, PlayerSessions
from tally.scoreboard.service.stream_slots import StreamSlots
from tally.settings import Secret, Settings

INTERNAL_HEADER: Final = "X-Internal-API-Key"
ADMIN_HEADER: Final = "X-Admin-API-Key"
MAX_BODY: Final = 16 * 1024
MAX_METADATA: Final = 4096
# Stands for whoever has no address: a client on a Unix socket.
NOWHERE: Final = "nowhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers, with all they need."""

    settings: Settings
    accounts: PlayerAccounts
    sessions: PlayerSessions
    actions: Actions
    scores: ScoreUpdates
    leaderboard: Leaderboard
    broadcast: LeaderboardBroadcaster
    catch_up: CacheSync
    limits: RateLimiter
    slots: StreamSlots
    cursors: Cursors
    hub: Hub
    internal_key: Secret
    admin_key: Secret

    async def health(self, _: Request) -> ASGIApp:
        return render.enveloped(schemas.Status("ok"))

    async def register(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        body = await read_json(request, schemas.RegisterBody, limit=MAX_BODY)
        asked = AccountRegistration(body.username, body.email, body.password, body.avatar_url)
        user, grant = await self.accounts.register(asked, _client(request))
        return render.enveloped(schemas.SignedIn(render.player(user), render.tokens(grant)), 201)

    async def login(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        body = await read_json(request, schemas.LoginBody, limit=MAX_BODY)
        user, grant = await self.accounts.login(body.login, body.password, _client(request))
        return render.enveloped(schemas.SignedIn(render.player(user), render.tokens(grant)))

    async def refresh(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        body = await read_json(request, schemas.RefreshBody, limit=MAX_BODY)
        return render.enveloped(render.tokens(await self.sessions.refresh(body.refresh_token)))

    async def logout(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        identity = await self._player(request)
        await self.sessions.end(identity, identity.session_id)
        return Response(status_code=204)

    async def list_sessions(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        identity = await self._player(request)
        held = await self.sessions.of_user(identity)
        return render.enveloped(
            schemas.SessionList([render.session(each, identity.session_id) for each in held])
        )

    async def end_session(self, request: Request) -> ASGIApp:
        await self._count_sign_in(request)
        identity = await self._player(request)
        await self.sessions.end(identity, _uuid(request.path_params["session_id"], "session_id"))
        return Response(status_code=204)

    async def complete_action(self, request: Request) -> ASGIApp:
        require_key(request, self.internal_key, INTERNAL_HEADER)
        await self._count(request, "actions", "all", self.settings.scoreboard_action_limit)
        body = await read_json(request, schemas.ActionBody, limit=MAX_BODY)
        if len(msgspec.json.encode(body.metadata)) > MAX_METADATA:
            raise Invalid(
                f"metadata must not be longer than {MAX_METADATA} bytes",
                code="invalid_field",
                field="metadata",
            )
        user_id = parse_user_id(body.user_id)
        token, expires_at = await self.actions.complete(
            body.action_id, user_id, body.max_score, body.metadata
        )
        return render.enveloped(schemas.Vouched(token, expires_at), 201)

    async def update_score(self, request: Request) -> ASGIApp:
        identity = await self._player(request)
        await self._count(request, "score", identity.user_id, self.settings.scoreboard_score_limit)
        body = await read_json(request, schemas.ScoreBody, limit=MAX_BODY)
        info = _client_info(_client(request))
        answer = await self.scores.update(
            identity.user_id, body.action_token, body.score_delta, info
        )
        return render.enveloped(msgspec.Raw(answer))

    async def show_board(self, request: Request) -> ASGIApp:
        await self._count(request, "board", _address(request), self.settings.scoreboard_board_limit)
        query = read_query(request, schemas.BoardQuery)
        if query.around is None:
            return render.enveloped(
                render.board(await self.leaderboard.top(query.limit, query.offset))
            )
        identity = await self._player(request)
        return render.enveloped(
            render.board(await self.leaderboard.around(identity.user_id, query.limit))
        )

    async def show_my_score(self, request: Request) -> ASGIApp:
        identity = await self._player(request)
        await self._count(request, "me", identity.user_id, self.settings.scoreboard_me_limit)
        return render.enveloped(render.my_score(*await self.leaderboard.place(identity.user_id)))

    async def my_events(self, request: Request) -> ASGIApp:
        identity = await self._player(request)
        await self._count(request, "me", identity.user_id, self.settings.scoreboard_me_limit)
        query = read_query(request, schemas.EventsQuery)
        purpose = query_fingerprint("scoreboard.events", user_id=identity.user_id)
        after = (
            None if query.cursor is None else _position(self.cursors.decode(purpose, query.cursor))
        )
        page = await self.accounts.history(identity, query.limit, after)
        following = None
        if page.next_key is not None:
            moment, event_id = page.next_key
            following = self.cursors.encode(
                purpose, {"at": to_microseconds(moment), "id": event_id}
            )
        return render.enveloped(render.event_page(page, following))

    async def delete_me(self, request: Request) -> ASGIApp:
        await self.accounts.delete(await self._player(request))
        return Response(status_code=204)

    async def stream(self, request: Request) -> ASGIApp:
        is_known = "authorization" in request.headers
        identity = await self._player(request) if is_known else None
        stream = EventStream(self.hub, TOPIC, request, self.broadcast.snapshot)
        return _Counted(
            stream, self.slots, identity.user_id if identity else None, _address(request)
        )

    async def rebuild(self, request: Request) -> ASGIApp:
        require_key(request, self.admin_key, ADMIN_HEADER)
        return render.enveloped(schemas.Rebuilt(await self.catch_up.rebuild()))

    async def show_drift(self, request: Request) -> ASGIApp:
        require_key(request, self.admin_key, ADMIN_HEADER)
        return render.enveloped(render.drift(await self.catch_up.drift(repair=False)))

    async def _player(self, request: Request) -> AuthenticatedPlayer:
        return await self.sessions.authenticate(bearer_token(request))

    async def _count_sign_in(self, request: Request) -> None:
        await self._count(request, "auth", _address(request), self.settings.scoreboard_auth_limit)

    async def _count(self, request: Request, what: str, who: str, limit: int) -> None:
        try:
            note(request, await self.limits.take(what, who, limit))
        except RateLimitExceeded as passed:
            note(request, passed.allowance)
            raise


class _Counted:
    """A stream that holds one of the places that its player and its address have."""

    def __init__(
        self, stream: ASGIApp, slots: StreamSlots, user_id: str | None, address: str
    ) -> None:
        self._stream = stream
        self._slots = slots
        self._user_id = user_id
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._slots.taken(self._user_id, self._address):
            await self._stream(scope, receive, send)


def _address(request: Request) -> str:
    return request.client.host if request.client else NOWHERE


def _client(request: Request) -> Client:
    return Client(
        request.client.host if request.client else None, request.headers.get("user-agent")
    )


def _client_info(client: Client) -> dict[str, Any]:
    """What the history keeps of where a request came from, until the account is deleted."""
    agent = (client.user_agent or "")[:500]
    device = "mobile" if "Mobi" in agent else "desktop" if "Mozilla" in agent else "other"
    return {"ip_address": client.ip_address, "user_agent": agent, "device_type": device}


def _uuid(text: str, field: str) -> str:
    try:
        return parse_user_id(text)
    except Invalid as error:
        raise Invalid(f"{field} must be a UUID", code="invalid_field", field=field) from error


def _position(page_key: dict[str, Any]) -> tuple[datetime, str]:
    return from_microseconds(int(page_key["at"])), str(page_key["id"])
