"""The Strava API: tokens, athletes, activities and the webhook subscription."""

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
from tally.sim.request_parsing import (
    read_basic_credentials,
    read_bearer_token,
    read_form,
    read_parameters,
)
from tally.sim.strava.authorizations import AccessTokenInfo, StravaGrant
from tally.sim.strava.core import StravaCore
from tally.sim.strava.listing import list_activities, parse_listing_query
from tally.sim.strava.model import StravaError, bad_request, not_found, unauthorized
from tally.sim.strava.webhooks import WebhookSubscription

Self_ = TypeVar("Self_")
Handler: TypeAlias = Callable[[Self_, Request], Awaitable[Response]]


def error_responses(handler: "Handler[Self_]") -> "Handler[Self_]":
    """Decorate a handler to return a StravaError as its response."""

    @wraps(handler)
    async def handle(self: Self_, request: Request) -> Response:
        try:
            return await handler(self, request)
        except StravaError as error:
            return JSONResponse(error.body, error.status)

    return handle


@dataclass(frozen=True, slots=True)
class StravaApi:
    """The routes that applications call."""

    core: StravaCore

    def routes(self) -> list[Route]:
        return [
            Route("/oauth/token", self.token, methods=["POST"]),
            Route("/api/v3/oauth/token", self.token, methods=["POST"]),
            Route("/oauth/revoke", self.revoke, methods=["POST"]),
            # Strava retires it on 2027-06-01.
            Route("/oauth/deauthorize", self.deauthorize, methods=["POST"]),
            Route("/api/v3/oauth/deauthorize", self.deauthorize, methods=["POST"]),
            Route("/api/v3/athlete", self.athlete),
            Route("/api/v3/athlete/activities", self.athlete_activities),
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
        parameters = await read_parameters(request)
        self._check_application(parameters)
        grant_type = parameters.get("grant_type")
        if grant_type == "refresh_token":
            return JSONResponse(
                self._tokens(self.core.authorizations.refresh(parameters.get("refresh_token", "")))
            )
        if grant_type != "authorization_code":
            raise bad_request("Application", "grant_type")
        grant = self.core.authorizations.redeem(parameters.get("code", ""))
        return JSONResponse(
            self._tokens(grant) | {"athlete": self.core.athletes[grant.athlete_id].summary()}
        )

    @error_responses
    async def revoke(self, request: Request) -> Response:
        """Revoke a token as in RFC 7009: unknown tokens are not an error."""
        client_id, client_secret = read_basic_credentials(request)
        self._check_application({"client_id": client_id, "client_secret": client_secret})
        token = (await read_form(request)).get("token", "")
        if not token:
            raise bad_request("Token", "token", "missing")
        athlete_id = self.core.authorizations.athlete_of(token)
        if athlete_id is not None:
            self.core.deauthorize(athlete_id)
        return JSONResponse({})

    @error_responses
    async def deauthorize(self, request: Request) -> Response:
        self._check_active()
        parameters = await read_parameters(request)
        token = parameters.get("access_token") or read_bearer_token(request)
        self.core.deauthorize(self.core.authorizations.check(token).athlete_id)
        return JSONResponse({"access_token": token})

    async def athlete(self, request: Request) -> Response:
        async def read(access: AccessTokenInfo) -> Mapping[str, Any]:
            return self.core.athletes[access.athlete_id].summary()

        return await self._limited(request, read)

    async def athlete_activities(self, request: Request) -> Response:
        async def read(access: AccessTokenInfo) -> list[dict[str, Any]]:
            if not access.reads_activities:
                raise unauthorized("AccessToken", "activity:read_permission", "missing")
            query = parse_listing_query(request.query_params, self.core.clock.seconds())
            page = list_activities(
                self.core.activities_of(access.athlete_id),
                query,
                reads_private=access.reads_private_activities,
            )
            return [activity.summary() for activity in page]

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
        subscription = self.core.webhooks.subscription
        return JSONResponse([] if subscription is None else [self._render(subscription)])

    @error_responses
    async def subscribe(self, request: Request) -> Response:
        parameters = await read_parameters(request)
        self._check_application(parameters)
        subscription = await self.core.webhooks.subscribe(
            parameters.get("callback_url", ""), parameters.get("verify_token", "")
        )
        return JSONResponse({"id": subscription.id}, 201)

    @error_responses
    async def unsubscribe(self, request: Request) -> Response:
        self._check_application(await read_parameters(request))
        subscription = self.core.webhooks.subscription
        if subscription is None or subscription.id != request.path_params["subscription_id"]:
            raise not_found("PushSubscription")
        self.core.webhooks.unsubscribe()
        return Response(status_code=204)

    async def _limited(
        self, request: Request, read: Callable[[AccessTokenInfo], Awaitable[object]]
    ) -> Response:
        """Authenticate and count a read; every response has the rate limit headers."""
        limits = self.core.limits
        try:
            self._check_active()
            access = self.core.authorizations.check(read_bearer_token(request))
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

    def _check_active(self) -> None:
        """Reject every call of an application whose owner has no subscription."""
        if self.core.is_inactive:
            raise StravaError(403, "Forbidden", "Application", "Status", "Inactive")

    def _check_application(self, parameters: Mapping[str, str]) -> None:
        self._check_active()
        application = self.core.application
        if parameters.get("client_id") != str(application.client_id):
            raise bad_request("Application", "client_id")
        if not hmac.compare_digest(
            parameters.get("client_secret", "").encode(), application.client_secret.encode()
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

    def _render(self, subscription: WebhookSubscription) -> dict[str, Any]:
        created = rfc3339(datetime.fromtimestamp(subscription.created_at, UTC))
        times = {"created_at": created, "updated_at": created}
        return {
            "id": subscription.id,
            "resource_state": 2,
            "application_id": self.core.application.client_id,
            "callback_url": subscription.callback_url,
        } | times
