"""The list of the cricket backend's endpoints."""

from typing import Annotated, Final

from msgspec import Meta

from tally.cricket.api.activity_routes import activity_endpoints
from tally.cricket.api.admin import AdminHandlers
from tally.cricket.api.admin_routes import admin_endpoints
from tally.cricket.api.endpoint_options import admin_endpoint, user_endpoint
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.schemas import examples, matches, reference
from tally.cricket.api.schemas.fields import ServiceStatus
from tally.cricket.api.scorecard_routes import scorecard_endpoints
from tally.cricket.api.user_routes import user_endpoints
from tally.cricket.model import errors
from tally.errors import Invalid, NotFound
from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Api, Endpoint
from tally.kit.hub import encode_event
from tally.kit.readiness import NOT_READY_EXAMPLE, READY_EXAMPLE, Readiness

SECURITY: Final = {
    "cricket_user": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "Access token of a user, from the Cognito user pool of the app."
        " The group `admin` may use the admin routes.",
    },
}
_PATH_TYPES: Final = {
    "match_id": Annotated[str, Meta(examples=[examples.MATCH.match_id])],
    "team_id": Annotated[str, Meta(examples=[examples.TEAM.team_id])],
    "league_id": Annotated[str, Meta(examples=[examples.LEAGUE.league_id])],
    "season_id": Annotated[str, Meta(examples=[examples.MATCH.season_id])],
}

_MATCH_NOT_FOUND: Final = errors.match_not_found()
_TEAM_NOT_FOUND: Final = errors.team_not_found()
_LEAGUE_NOT_FOUND: Final = errors.league_not_found()
_TEAM_NOT_IN_MATCH: Final = errors.team_not_in_match()
_NOTHING_TO_CHANGE: Final = errors.nothing_to_change()


def cricket_api(handlers: Handlers, admin_handlers: AdminHandlers) -> Api:
    """Return the backend's endpoints and their documentation."""
    return Api(
        name="cricket",
        description="Live cricket scores, follows and Live Activities.",
        path_types=_PATH_TYPES,
        security_schemes=SECURITY,
        endpoints=(
            Endpoint(
                "GET",
                "/health",
                handlers.check_health,
                "Check liveness",
                response=ServiceStatus,
                response_example=ServiceStatus("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                handlers.check_readiness,
                "Check readiness",
                response=Readiness,
                response_example=READY_EXAMPLE,
                other_responses={503: NOT_READY_EXAMPLE},
            ),
            *_matches(handlers),
            *_display(handlers),
            *_teams(handlers, admin_handlers),
            *_leagues(handlers, admin_handlers),
            *user_endpoints(handlers),
            *activity_endpoints(handlers),
            *admin_endpoints(admin_handlers),
        ),
    )


def _matches(handlers: Handlers) -> tuple[Endpoint, ...]:
    bad_range = Invalid(
        "from must be a date such as 2026-11-15", code="invalid_field", field="from"
    )
    return (
        Endpoint(
            "GET",
            "/matches",
            handlers.list_matches,
            "List matches",
            description=(
                "Filters by league (code or id), range of start times and status. The defaults are"
                " all active leagues, and live and upcoming matches."
            ),
            query=matches.MatchQuery,
            response=matches.MatchPage,
            response_example=matches.MatchPage([examples.MATCH], None),
            **user_endpoint(bad_range, _LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "GET",
            "/matches/live",
            handlers.list_live_matches,
            "List live matches",
            response=matches.MatchPage,
            response_example=matches.MatchPage([examples.MATCH], None),
            **user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}",
            handlers.get_match,
            "Get a match",
            response=matches.MatchBody,
            response_example=examples.MATCH,
            **user_endpoint(_MATCH_NOT_FOUND),
        ),
    )


def _display(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/matches/{match_id}/display",
            handlers.get_display,
            "Get the display state of a match",
            query=matches.ViewQuery,
            response=matches.DisplayBody,
            response_example=examples.DISPLAY,
            **user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND),
        ),
        *scorecard_endpoints(handlers),
        Endpoint(
            "GET",
            "/matches/{match_id}/events",
            handlers.stream_match,
            "Subscribe to a match",
            description=(
                "Server-sent events: `display` contains the display state, on connect and on every"
                " change; `event` contains a key event. `Last-Event-ID` replays missed messages."
                " The stream ends with `session_ended` when the token expires."
            ),
            query=matches.ViewQuery,
            media_type="text/event-stream",
            response_example=encode_event("display", examples.DISPLAY_EVENT).decode(),
            **user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, TOO_MANY_STREAMS),
        ),
    )


def _teams(handlers: Handlers, admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/teams",
            handlers.list_teams,
            "List teams",
            response=reference.TeamList,
            response_example=reference.TeamList([examples.TEAM]),
            **user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/teams/{team_id}",
            handlers.get_team,
            "Get a team",
            response=reference.TeamBody,
            response_example=examples.TEAM,
            **user_endpoint(_TEAM_NOT_FOUND),
        ),
        Endpoint(
            "PATCH",
            "/teams/{team_id}",
            admin_handlers.update_team,
            "Update a team",
            description="Syncs do not overwrite the changed fields.",
            request=reference.TeamChange,
            request_example={"name": "Rovers CC", "color": "#1b5e20"},
            response=reference.TeamBody,
            response_example=examples.TEAM,
            **admin_endpoint(_NOTHING_TO_CHANGE, _TEAM_NOT_FOUND),
        ),
    )


def _leagues(handlers: Handlers, admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/leagues",
            handlers.list_leagues,
            "List leagues",
            response=reference.LeagueList,
            response_example=reference.LeagueList([examples.LEAGUE]),
            **user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/leagues/{league_id}",
            handlers.get_league,
            "Get a league",
            response=reference.LeagueBody,
            response_example=examples.LEAGUE,
            **user_endpoint(_LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "PATCH",
            "/leagues/{league_id}",
            admin_handlers.update_league,
            "Update a league",
            request=reference.LeagueChange,
            request_example={"active": False},
            response=reference.LeagueBody,
            response_example=examples.LEAGUE,
            **admin_endpoint(_NOTHING_TO_CHANGE, _LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "DELETE",
            "/leagues/{league_id}",
            admin_handlers.delete_league,
            "Delete a league",
            status=204,
            **admin_endpoint(_LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "GET",
            "/seasons/{season_id}/teams",
            handlers.list_season_teams,
            "List the teams of a season",
            response=reference.SeasonTeams,
            response_example=reference.SeasonTeams([examples.SEASON_TEAM]),
            **user_endpoint(NotFound("Season not found", code="season_not_found")),
        ),
    )
