"""The control API of the Strava simulator, for tests and other processes.

GET    /_sim/state                          athletes, totals, deliveries, pending faults
POST   /_sim/athletes                       {"firstname": "Ana", "lastname": "Silva"}
POST   /_sim/athletes/{id}/deauthorize      the athlete revokes the authorization
POST   /_sim/athletes/{id}/expire           expires the athlete's access tokens
POST   /_sim/activities                     {"athlete_id": 100001, "sport_type": "Ride", …}
PATCH  /_sim/activities/{id}                any field of the activity; DELETE deletes it
POST   /_sim/webhooks                       delay, duplicates, drops, retry_pause, hold, release
POST   /_sim/limits                         {"overall": {"quarter": 200, "day": 2000}, "reads": …}
POST   /_sim/tokens                         {"rotates": true, "grace": 60}
POST   /_sim/application                    {"inactive": true}: every call fails with 403 Inactive
POST   /_sim/approval                       {"consent": {"athlete_id": 100001} or null}
POST   /_sim/faults                         an InjectedFault; DELETE clears all
"""

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.errors import NotFound
from tally.kit.http import Json
from tally.sim.fault_injection import NO_CONTENT, fault_routes
from tally.sim.request_parsing import read_json_body
from tally.sim.strava.core import Consent, StravaCore
from tally.sim.strava.model import StravaError
from tally.sim.strava.rate_limits import RateLimit
from tally.sim.strava.webhooks import ReleaseOrder

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**11)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=10**9)]


class _ControlBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request body of the control API; omitted fields stay unchanged."""

    def changes(self) -> dict[str, Any]:
        return {
            name: value for name, value in msgspec.structs.asdict(self).items() if value is not None
        }


class NewAthlete(_ControlBody, frozen=True):
    """An athlete to add."""

    firstname: str
    lastname: str = ""
    athlete_id: int | None = None


class ActivityFields(_ControlBody, frozen=True, kw_only=True):
    """Fields of an activity to set; one per field of `StravaActivity`."""

    name: str | None = None
    sport_type: str | None = None
    start: Count | None = None
    distance: Amount | None = None
    moving_time: Count | None = None
    elapsed_time: Count | None = None
    total_elevation_gain: Amount | None = None
    manual: bool | None = None
    trainer: bool | None = None
    commute: bool | None = None
    private: bool | None = None
    flagged: bool | None = None


class NewActivity(ActivityFields, frozen=True, kw_only=True):
    """An activity to record."""

    athlete_id: int


class WebhookConditions(_ControlBody, frozen=True, kw_only=True):
    """Network conditions of webhooks."""

    delay: Amount | None = None
    duplicates: Count | None = None
    drops: Count | None = None
    retry_pause: Amount | None = None
    hold: bool = False
    release: ReleaseOrder | None = None


class NewLimits(_ControlBody, frozen=True, kw_only=True):
    """Rate limits to set."""

    overall: RateLimit | None = None
    reads: RateLimit | None = None


class TokenRules(_ControlBody, frozen=True, kw_only=True):
    """Rules for refresh tokens."""

    rotates: bool | None = None
    grace: Amount | None = None


class ApplicationFields(_ControlBody, frozen=True, kw_only=True):
    """The state of the registered application."""

    inactive: bool


class AutoConsent(_ControlBody, frozen=True):
    """The automatic consent; null shows the page."""

    consent: Consent | None


@dataclass(frozen=True, slots=True)
class StravaControl:
    """The routes under `/_sim`."""

    core: StravaCore

    def routes(self) -> list[Route]:
        return [
            Route("/_sim/state", self.state),
            Route("/_sim/athletes", self.add_athlete, methods=["POST"]),
            Route(
                "/_sim/athletes/{athlete_id:int}/deauthorize", self.deauthorize, methods=["POST"]
            ),
            Route("/_sim/athletes/{athlete_id:int}/expire", self.expire, methods=["POST"]),
            Route("/_sim/activities", self.record, methods=["POST"]),
            Route("/_sim/activities/{activity_id:int}", self.edit, methods=["PATCH"]),
            Route("/_sim/activities/{activity_id:int}", self.delete, methods=["DELETE"]),
            Route("/_sim/webhooks", self.set_network, methods=["POST"]),
            Route("/_sim/limits", self.set_limits, methods=["POST"]),
            Route("/_sim/tokens", self.set_token_rules, methods=["POST"]),
            Route("/_sim/application", self.set_application, methods=["POST"]),
            Route("/_sim/approval", self.set_approval, methods=["POST"]),
            *fault_routes(self.core.faults),
        ]

    async def state(self, _: Request) -> Response:
        core, log = self.core, self.core.webhooks.log
        connected = [
            number for number in core.athletes if core.authorizations.access_token_for(number)
        ]
        return Json(
            {
                "athletes": list(core.athletes.values()),
                "connected": connected,
                "activities": len(core.activities),
                "subscription": core.webhooks.subscription,
                "deliveries": {
                    "accepted": sum(attempt.status == 200 for attempt in log),
                    "attempts": len(log),
                },
                "limits": core.limits.headers(),
                "faults": core.faults.pending,
                "requests": len(core.faults.requests),
            }
        )

    async def add_athlete(self, request: Request) -> Response:
        return Json(
            self.core.add_athlete(**(await read_json_body(request, NewAthlete)).changes()), 201
        )

    async def deauthorize(self, request: Request) -> Response:
        self.core.deauthorize(request.path_params["athlete_id"])
        return NO_CONTENT

    async def expire(self, request: Request) -> Response:
        self.core.authorizations.expire(request.path_params["athlete_id"])
        return NO_CONTENT

    async def record(self, request: Request) -> Response:
        body = await read_json_body(request, NewActivity)
        try:
            return Json(self.core.record(**body.changes()), 201)
        except StravaError as error:
            raise NotFound(str(error)) from error

    async def edit(self, request: Request) -> Response:
        body = await read_json_body(request, ActivityFields)
        try:
            return Json(self.core.edit(request.path_params["activity_id"], **body.changes()))
        except StravaError as error:
            raise NotFound(str(error)) from error

    async def delete(self, request: Request) -> Response:
        try:
            self.core.delete(request.path_params["activity_id"])
        except StravaError as error:
            raise NotFound(str(error)) from error
        return NO_CONTENT

    async def set_network(self, request: Request) -> Response:
        body = await read_json_body(request, WebhookConditions)
        for name in ("delay", "duplicates", "drops", "retry_pause"):
            if getattr(body, name) is not None:
                setattr(self.core.webhooks, name, getattr(body, name))
        if body.hold:
            self.core.webhooks.hold()
        if body.release is not None:
            self.core.webhooks.release(body.release)
        return NO_CONTENT

    async def set_limits(self, request: Request) -> Response:
        body = await read_json_body(request, NewLimits)
        limits = self.core.limits
        limits.overall, limits.reads = (
            body.overall or limits.overall,
            body.reads or limits.reads,
        )
        return NO_CONTENT

    async def set_token_rules(self, request: Request) -> Response:
        for name, value in (await read_json_body(request, TokenRules)).changes().items():
            setattr(self.core.authorizations, name, value)
        return NO_CONTENT

    async def set_application(self, request: Request) -> Response:
        self.core.is_inactive = (await read_json_body(request, ApplicationFields)).inactive
        return NO_CONTENT

    async def set_approval(self, request: Request) -> Response:
        self.core.auto_approve = (await read_json_body(request, AutoConsent)).consent
        return NO_CONTENT
