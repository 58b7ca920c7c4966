"""Where the application goes without a browser: tokens, activities, and the webhook subscription."""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.kit.clock import rfc3339
from tally.sim.request_parsing import read_parameters
from tally.sim.strava.authorizations import AccessTokenInfo, StravaGrant
from tally.sim.strava.core import StravaCore
from tally.sim.strava.model import StravaError, bad_request, not_found, unauthorized
from tally.sim.strava.webhooks import WebhookSubscription

Self_ = TypeVar("Self_")
Handler: TypeAlias = Callable[[Self_, Request], Awaitable[Response]]


def error_responses(handler: "Handler[Self_]") -> "Handler[Self_]":
    """Turn a StravaError into its answer."""

    @wraps(handler)
    async def refuse(self: Self_, request: Request) -> Response:
        try:
            return await handler(self, request)
        except StravaError as error:
            return JSONResponse(error.body, error.status)

    return refuse


@dataclass(frozen=True, slots=True)
class StravaApi:
    core: StravaCore

    def routes(self) -> list[Route]:
        return [
            Route("/oauth/token", self.token, methods=["POST"]),
            Route("/api/v3/oauth/token", self.token, methods=["POST"]),
            Route("/oauth/deauthorize", self.deauthorize, methods=["POST"]),
            Route("/api/v3/athlete", self.athlete),
            Route("/api/v3/activities/{activity_id:int}", self.activity),
            Route("/api/v3/push_subscriptions", self.subscriptions),
            Route("/api/v3/push_subscriptions", self.subscribe, methods=["POST"]),
            Route(
                "/api/v3/push_subscriptions/{subscription_id:int}",
                self.unsubscribe,
                methods=["DELETE"],
            ),
        ]

    @error_responses
    async def token(self, request: Request) -> Response:
        sent = await read_parameters(request)
        self._check_application(sent)
        kind = sent.get("grant_type")
        if kind == "refresh_token":
            return JSONResponse(
                self._tokens(self.core.authorizations.refresh(sent.get("refresh_token", "")))
            )
        if kind != "authorization_code":
            raise bad_request("Application", "grant_type")
        grant = self.core.authorizations.redeem(sent.get("code", ""))
        return JSONResponse(
            self._tokens(grant) | {"athlete": self.core.athletes[grant.athlete_id].summary()}
        )

    @error_responses
    async def deauthorize(self, request: Request) -> Response:
        sent = await read_parameters(request)
        token = sent.get("access_token") or _bearer(request)
        self.core.deauthorize(self.core.authorizations.check(token).athlete_id)
        return JSONResponse({"access_token": token})

    async def athlete(self, request: Request) -> Response:
        async def read(access: AccessTokenInfo) -> Mapping[str, Any]:
            return self.core.athletes[access.athlete_id].summary()

        return await self._limited(request, read)

    async def activity(self, request: Request) -> Response:
        activity_id: int = request.path_params["activity_id"]

        async def read(access: AccessTokenInfo) -> Mapping[str, Any]:
            if not access.reads_activities:
                raise unauthorized("AccessToken", "activity:read_permission", "missing")
            activity = self.core.activity(activity_id)
            is_hidden = activity.private and not access.reads_private_activities
            if activity.athlete_id != access.athlete_id or is_hidden:
                raise not_found("Activity")
            return activity.detail()

        return await self._limited(request, read)

    @error_responses
    async def subscriptions(self, request: Request) -> Response:
        self._check_application(await read_parameters(request))
        held = self.core.webhooks.subscription
        return JSONResponse([] if held is None else [self._described(held)])

    @error_responses
    async def subscribe(self, request: Request) -> Response:
        sent = await read_parameters(request)
        self._check_application(sent)
        made = await self.core.webhooks.subscribe(
            sent.get("callback_url", ""), sent.get("verify_token", "")
        )
        return JSONResponse({"id": made.id}, 201)

    @error_responses
    async def unsubscribe(self, request: Request) -> Response:
        self._check_application(await read_parameters(request))
        held = self.core.webhooks.subscription
        if held is None or held.id != request.path_params["subscription_id"]:
            raise not_found("PushSubscription")
        self.core.webhooks.unsubscribe()
        return Response(status_code=204)

    async def _limited(
        self, request: Request, read: Callable[[AccessTokenInfo], Awaitable[Mapping[str, Any]]]
    ) -> Response:
        """A read of the API: with a token that holds, counted, and told how much is left whatever the answer."""
        limits = self.core.limits
        try:
            access = self.core.authorizations.check(_bearer(request))
        except StravaError as error:
            return JSONResponse(error.body, error.status)
        try:
            if not limits.count():
                raise StravaError(
                    429, "Rate Limit Exceeded", "Application", "rate limit", "exceeded"
                )
            return JSONResponse(await read(access), headers=limits.headers())
        except StravaError as error:
            return JSONResponse(error.body, error.status, limits.headers())

    def _check_application(self, sent: Mapping[str, str]) -> None:
        application = self.core.application
        if sent.get("client_id") != str(application.client_id):
            raise bad_request("Application", "client_id")
        if not hmac.compare_digest(
            sent.get("client_secret", "").encode(), application.client_secret.encode()
        ):
            raise unauthorized("Application", "")

    def _tokens(self, grant: StravaGrant) -> dict[str, Any]:
        return {
            "token_type": "Bearer",
            "expires_at": grant.expires_at,
            "expires_in": grant.expires_at - self.core.clock.seconds(),
            "refresh_token": grant.refresh_token,
            "access_token": grant.access_token,
        }

    def _described(self, held: WebhookSubscription) -> dict[str, Any]:
        created = rfc3339(datetime.fromtimestamp(held.created_at, UTC))
        times = {"created_at": created, "updated_at": created}
        return {
            "id": held.id,
            "resource_state": 2,
            "application_id": self.core.application.client_id,
            "callback_url": held.callback_url,
        } | times


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else ""
