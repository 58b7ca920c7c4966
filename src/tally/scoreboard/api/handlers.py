"""Handlers for players and game servers: parse the request, call the service, build the response.

`routes.py` lists the routes.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.errors import Invalid, TallyError
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import NO_STORE, Json
from tally.kit.rate_limits import record_rate_limit
from tally.kit.readiness import ReadinessMonitor
from tally.scoreboard.api.auth import ScoreboardAuth, client_info, score_event_client_info
from tally.scoreboard.api.page_cache import PageCache, page_response
from tally.scoreboard.api.rate_limits import RequestLimits
from tally.scoreboard.api.schemas import requests, responses
from tally.scoreboard.model.accounts import ProfileChange, parse_user_id
from tally.scoreboard.model.scores import from_microseconds, to_microseconds
from tally.scoreboard.service.accounts import AccountRegistration
from tally.scoreboard.service.services import ScoreboardServices

MAX_BODY_BYTES: Final = 16 * 1024
MAX_METADATA_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The request handlers and their dependencies."""

    services: ScoreboardServices
    auth: ScoreboardAuth
    limits: RequestLimits
    cursors: Cursors
    readiness: ReadinessMonitor
    pages: PageCache = field(default_factory=PageCache)

    async def check_health(self, _: Request) -> ASGIApp:
        return Json(responses.HealthResponse("ok"), 200, NO_STORE)

    async def check_readiness(self, _: Request) -> ASGIApp:
        return self.readiness.report({"postgresql", "redis"}).response()

    async def register(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        body = await read_json(request, requests.RegisterRequest, limit=MAX_BODY_BYTES)
        registration = AccountRegistration(
            body.username, body.email, body.password, body.avatar_url
        )
        user, tokens = await self.services.accounts.register(registration, client_info(request))
        return Json(responses.LoginResponse.from_login(user, tokens), 201, NO_STORE)

    async def login(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        body = await read_json(request, requests.LoginRequest, limit=MAX_BODY_BYTES)
        user, tokens = await self.services.accounts.login(
            body.login, body.password, client_info(request)
        )
        return Json(responses.LoginResponse.from_login(user, tokens), 200, NO_STORE)

    async def refresh_tokens(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        body = await read_json(request, requests.RefreshRequest, limit=MAX_BODY_BYTES)
        tokens = await self.services.sessions.refresh(body.refresh_token)
        return Json(responses.TokensResponse.from_tokens(tokens), 200, NO_STORE)

    async def logout(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        player = await self.auth.player(request)
        await self.services.sessions.revoke(player, player.session_id)
        return Response(status_code=204)

    async def change_password(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        player = await self.auth.player(request)
        body = await read_json(request, requests.ChangePasswordRequest, limit=MAX_BODY_BYTES)
        await self.services.accounts.change_password(
            player, body.current_password, body.new_password, client_info(request)
        )
        return Response(status_code=204)

    async def request_password_reset(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        body = await read_json(request, requests.PasswordResetRequest, limit=MAX_BODY_BYTES)
        await self.services.password_resets.request(body.email)
        return Response(status_code=202)

    async def reset_password(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        body = await read_json(request, requests.ResetPasswordRequest, limit=MAX_BODY_BYTES)
        await self.services.password_resets.reset(body.token, body.new_password)
        return Response(status_code=204)

    async def revoke_all_sessions(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        player = await self.auth.player(request)
        await self.services.sessions.revoke_all(player.user_id)
        return Response(status_code=204)

    async def list_sessions(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        player = await self.auth.player(request)
        sessions = await self.services.sessions.list_active(player)
        return Json(
            responses.SessionsResponse(
                [
                    responses.SessionResponse.from_session(session, player.session_id)
                    for session in sessions
                ]
            ),
            200,
            NO_STORE,
        )

    async def revoke_session(self, request: Request) -> ASGIApp:
        await self.limits.count_auth(request)
        player = await self.auth.player(request)
        session_id = _parse_uuid(request.path_params["session_id"], "session_id")
        await self.services.sessions.revoke(player, session_id)
        return Response(status_code=204)

    async def complete_action(self, request: Request) -> ASGIApp:
        self.auth.require_game_server(request)
        window = await self.limits.count_action(request)
        body = await read_json(request, requests.CompleteActionRequest, limit=MAX_BODY_BYTES)
        if len(msgspec.json.encode(body.metadata)) > MAX_METADATA_BYTES:
            raise Invalid(
                f"metadata must be at most {MAX_METADATA_BYTES} bytes",
                code="invalid_field",
                field="metadata",
            )
        user_id = parse_user_id(body.user_id)
        try:
            token, expires_at, is_new = await self.services.actions.complete(
                body.action_id, user_id, body.max_score, body.metadata, body.boards
            )
        except Exception as error:
            await self.limits.refund_failure(request, window, error)
            raise
        if not is_new:
            await self.limits.refund(request, window)
        return Json(responses.ActionTokenResponse(token, expires_at), 201, NO_STORE)

    async def update_score(self, request: Request) -> ASGIApp:
        claims, token = self.auth.verify(request)
        try:
            body = await read_json(request, requests.UpdateScoreRequest, limit=MAX_BODY_BYTES)
            action = self.services.scores.verify(body.action_token, claims["sub"])
        except TallyError:
            # An invalid body counts too, and only an authenticated client learns what is wrong.
            player = await self.auth.player(request)
            await self.limits.count_score_update(request, player.user_id)
            raise
        window = self.limits.score_window(claims["sub"])
        admitted = await self.services.admission.score_update(window, token, action.token_hash)
        record_rate_limit(request.scope, admitted.status)
        response = admitted.response
        if response is None:
            try:
                response, is_replay = await self.services.scores.update(
                    action, body.score_delta, score_event_client_info(client_info(request))
                )
            except Exception as error:
                await self.limits.refund_failure(request, window, error)
                raise
            if is_replay:
                await self.limits.refund(request, window)
        return Response(response, 200, NO_STORE, "application/json")

    async def get_leaderboard(self, request: Request) -> ASGIApp:
        try:
            query = read_query(request, requests.LeaderboardQuery)
        except TallyError:
            await self.limits.count_leaderboard(request)
            raise
        if query.around is None:
            return await self._get_top(request, query.limit, query.offset)
        await self.limits.count_leaderboard(request)
        player = await self.auth.player(request)
        return page_response(await self.services.leaderboard.around(player.user_id, query.limit))

    async def _get_top(self, request: Request, limit: int, offset: int) -> ASGIApp:
        window = self.limits.leaderboard_window(request)
        version, cached = self.pages.find(limit, offset)
        status, found = await self.services.admission.top(window, limit, offset, version)
        record_rate_limit(request.scope, status)
        if cached is not None and found is not None and found.page is None:
            return cached
        if found is None or found.page is None:
            return page_response(await self.services.leaderboard.top(limit, offset))
        response = page_response(found.page)
        self.pages.store(limit, offset, found.version, response)
        return response

    async def get_own_score(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.limits.count_own_data(request, player.user_id)
        standing, total_players = await self.services.leaderboard.standing(player.user_id)
        return Json(
            responses.OwnScoreResponse.from_standing(standing, total_players), 200, NO_STORE
        )

    async def list_own_events(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.limits.count_own_data(request, player.user_id)
        query = read_query(request, requests.ScoreEventsQuery)
        purpose = query_fingerprint("scoreboard.events", user_id=player.user_id)
        after = (
            None
            if query.cursor is None
            else _parse_page_key(self.cursors.decode(purpose, query.cursor))
        )
        page = await self.services.accounts.history(player.user_id, query.limit, after)
        next_cursor = None
        if page.next_key is not None:
            moment, event_id = page.next_key
            next_cursor = self.cursors.encode(
                purpose, {"at": to_microseconds(moment), "id": event_id}
            )
        return Json(responses.ScoreEventsResponse.from_page(page, next_cursor), 200, NO_STORE)

    async def get_account(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.limits.count_own_data(request, player.user_id)
        user = await self.services.accounts.find(player.user_id)
        return Json(responses.UserResponse.from_user(user), 200, NO_STORE)

    async def update_account(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.limits.count_own_data(request, player.user_id)
        body = await read_json(request, requests.UpdateAccountRequest, limit=MAX_BODY_BYTES)
        change = ProfileChange(
            None if body.username is msgspec.UNSET else body.username,
            None if body.email is msgspec.UNSET else body.email,
            None if body.avatar_url is msgspec.UNSET else body.avatar_url,
            has_avatar=body.avatar_url is not msgspec.UNSET,
        )
        if change == ProfileChange():
            raise Invalid(
                "The body must contain username, email or avatar_url",
                code="missing_field",
                field="username",
            )
        accounts = self.services.accounts
        if change.email is None:
            user = await accounts.update(player.user_id, change)
        elif body.current_password is msgspec.UNSET:
            raise Invalid(
                "An email requires the current_password",
                code="missing_field",
                field="current_password",
            )
        else:
            user = await accounts.change_email(
                player.user_id, change, body.current_password, client_info(request)
            )
        return Json(responses.UserResponse.from_user(user), 200, NO_STORE)

    async def delete_account(self, request: Request) -> ASGIApp:
        player = await self.auth.player(request)
        await self.services.accounts.delete(player.user_id)
        return Response(status_code=204)


def _parse_uuid(text: str, field: str) -> str:
    try:
        return parse_user_id(text)
    except Invalid as error:
        raise Invalid(f"{field} must be a UUID", code="invalid_field", field=field) from error


def _parse_page_key(page_key: dict[str, Any]) -> tuple[datetime, str]:
    return from_microseconds(int(page_key["at"])), str(page_key["id"])
