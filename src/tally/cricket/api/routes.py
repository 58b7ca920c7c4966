"""The list of the cricket backend's endpoints."""

from typing import Any, Final

from tally.cricket.api.admin import AdminHandlers
from tally.cricket.api.auth import ADMIN_HEADER, admin_required
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.schemas import admin, examples, matches, reference, users
from tally.cricket.api.schemas.fields import ServiceStatus
from tally.cricket.model import errors
from tally.errors import Invalid, NotFound, TallyError, Unauthenticated, Unavailable
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import ErrorFormat, NestedError

ERROR_FORMAT: Final = ErrorFormat(NestedError)
SECURITY: Final = {
    "user": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "admin_key": {"type": "apiKey", "in": "header", "name": ADMIN_HEADER},
}

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_INVALID_TOKEN: Final = Unauthenticated("Invalid token", code="invalid_token")
_ADMIN_REQUIRED: Final = admin_required()
_MATCH_NOT_FOUND: Final = errors.match_not_found()
_TEAM_NOT_FOUND: Final = errors.team_not_found()
_LEAGUE_NOT_FOUND: Final = errors.league_not_found()
_DEVICE_NOT_FOUND: Final = errors.device_not_found()
_NOT_FOLLOWED: Final = errors.not_followed()
_TEAM_NOT_IN_MATCH: Final = errors.team_not_in_match()
_MATCH_OVER: Final = errors.match_over()
_NOTHING_TO_CHANGE: Final = errors.nothing_to_change()
_ONE_DEVICE_IDENTIFIER: Final = errors.one_device_identifier()


def _user_endpoint(*raised: TallyError) -> dict[str, Any]:
    return {"errors": (*raised, _INVALID_TOKEN, _UNAVAILABLE), "security": ("user",)}


def _admin_endpoint(*raised: TallyError) -> dict[str, Any]:
    return {
        "errors": (*raised, _INVALID_TOKEN, _ADMIN_REQUIRED, _UNAVAILABLE),
        "security": ("user", "admin_key"),
    }


def cricket_api(handlers: Handlers, admin_handlers: AdminHandlers) -> Api:
    """Return the backend's endpoints and their documentation."""
    return Api(
        name="cricket",
        description="Live cricket scores, follows and Live Activities.",
        error_format=ERROR_FORMAT,
        security_schemes=SECURITY,
        endpoints=(
            Endpoint(
                "GET",
                "/health",
                handlers.health,
                "Check liveness",
                response=ServiceStatus,
                response_example=ServiceStatus("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                handlers.ready,
                "Check readiness",
                response=ServiceStatus,
                response_example=ServiceStatus("ready"),
                errors=(_UNAVAILABLE,),
            ),
            *_matches(handlers),
            *_display(handlers),
            *_teams(handlers, admin_handlers),
            *_leagues(handlers, admin_handlers),
            *_devices(handlers),
            *_follows(handlers),
            *_match_follow(handlers),
            *_activities(handlers),
            *_administration(admin_handlers),
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
            **_user_endpoint(bad_range, _LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "GET",
            "/matches/live",
            handlers.list_live_matches,
            "List live matches",
            response=matches.MatchPage,
            response_example=matches.MatchPage([examples.MATCH], None),
            **_user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}",
            handlers.get_match,
            "Get a match",
            response=matches.MatchBody,
            response_example=examples.MATCH,
            **_user_endpoint(_MATCH_NOT_FOUND),
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
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}/events",
            handlers.stream_events,
            "Subscribe to a match",
            description=(
                "Server-sent events: `display` contains the display state, on connect and on every"
                " change; `event` contains a key event. `Last-Event-ID` replays missed messages."
            ),
            query=matches.ViewQuery,
            media_type="text/event-stream",
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND),
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
            **_user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/teams/{team_id}",
            handlers.get_team,
            "Get a team",
            response=reference.TeamBody,
            response_example=examples.TEAM,
            **_user_endpoint(_TEAM_NOT_FOUND),
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
            **_admin_endpoint(_NOTHING_TO_CHANGE, _TEAM_NOT_FOUND),
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
            **_user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/leagues/{league_id}",
            handlers.get_league,
            "Get a league",
            response=reference.LeagueBody,
            response_example=examples.LEAGUE,
            **_user_endpoint(_LEAGUE_NOT_FOUND),
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
            **_admin_endpoint(_NOTHING_TO_CHANGE, _LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "DELETE",
            "/leagues/{league_id}",
            admin_handlers.delete_league,
            "Delete a league",
            status=204,
            **_admin_endpoint(_LEAGUE_NOT_FOUND),
        ),
        Endpoint(
            "GET",
            "/seasons/{season_id}/teams",
            handlers.list_season_teams,
            "List the teams of a season",
            response=reference.SeasonTeams,
            response_example=reference.SeasonTeams([examples.SEASON_TEAM]),
            **_user_endpoint(NotFound("Season not found", code="season_not_found")),
        ),
    )


def _devices(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/user/device",
            handlers.list_devices,
            "List your devices",
            response=users.UserDeviceList,
            response_example=users.UserDeviceList([examples.USER_DEVICE]),
            **_user_endpoint(),
        ),
        Endpoint(
            "POST",
            "/user/device",
            handlers.register_device,
            "Register a device",
            description="Call it at every launch of the app. A registration expires after 90 days.",
            request=users.NewUserDevice,
            request_example=examples.NEW_USER_DEVICE,
            response=users.UserDeviceBody,
            response_example=examples.USER_DEVICE,
            **_user_endpoint(),
        ),
        Endpoint(
            "DELETE",
            "/user/device",
            handlers.delete_device,
            "Delete a device",
            query=users.UserDeviceQuery,
            status=204,
            **_user_endpoint(_ONE_DEVICE_IDENTIFIER, _DEVICE_NOT_FOUND),
        ),
        Endpoint(
            "PUT",
            "/user/device/push-to-start",
            handlers.update_push_to_start_token,
            "Set the push-to-start token",
            request=users.NewPushToStartToken,
            request_example={"pushToStartToken": "c0ffee00c0ffee", "deviceId": "A1B2-C3D4"},
            response=users.UserDeviceBody,
            response_example=examples.USER_DEVICE,
            **_user_endpoint(_ONE_DEVICE_IDENTIFIER, _DEVICE_NOT_FOUND),
        ),
    )


def _follows(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/user/follows",
            handlers.list_follows,
            "List your follows",
            query=users.FollowListQuery,
            response=users.FollowPage,
            response_example=users.FollowPage([examples.FOLLOW], None),
            **_user_endpoint(),
        ),
        Endpoint(
            "POST",
            "/user/follow/match",
            handlers.follow_match,
            "Follow a match",
            request=users.NewMatchFollow,
            request_example={"matchId": "65001", "teamId": "5"},
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _MATCH_OVER),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/match",
            handlers.unfollow_match,
            "Unfollow a match",
            query=users.FollowedMatchQuery,
            status=204,
            **_user_endpoint(),
        ),
    )


def _match_follow(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/user/follow/{match_id}",
            handlers.get_follow,
            "Get your follow of a match",
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **_user_endpoint(_NOT_FOLLOWED),
        ),
        Endpoint(
            "POST",
            "/user/follow/{match_id}",
            handlers.follow,
            "Follow a match",
            description="For a live match, the response contains the display state.",
            request=users.NewFollow,
            request_example={"teamId": "5"},
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _MATCH_OVER),
        ),
        Endpoint(
            "PATCH",
            "/user/follow/{match_id}",
            handlers.change_follow,
            "Change the team of a follow",
            request=users.FollowChange,
            request_example={"teamId": None},
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _NOT_FOLLOWED),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/{match_id}",
            handlers.unfollow,
            "Unfollow a match",
            description="Ends the match's Live Activities on all devices of the user. Idempotent.",
            status=204,
            **_user_endpoint(_MATCH_NOT_FOUND),
        ),
    )


def _activities(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/user/activity/{match_id}",
            handlers.subscribe,
            "Subscribe a Live Activity that the app started",
            request=users.NewSubscription,
            request_example={"pushToken": "deadbeefdeadbeef"},
            response=users.SubscriptionBody,
            response_example=examples.SUBSCRIPTION,
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _MATCH_OVER),
        ),
        Endpoint(
            "DELETE",
            "/user/activity/{match_id}",
            handlers.unsubscribe,
            "Delete the subscription of a Live Activity",
            query=users.SubscriptionQuery,
            status=204,
            **_user_endpoint(errors.subscription_not_found(), _MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-token",
            handlers.register_activity,
            "Register or rotate an update token",
            request=users.NewUpdateToken,
            request_example={"deviceId": "A1B2-C3D4", "updateToken": "80c1f7de80c1f7de"},
            response=users.ActivityBody,
            response_example=examples.ACTIVITY,
            **_user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, errors.activity_ended()),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-dismissed",
            handlers.dismiss_activity,
            "Report a dismissed Live Activity",
            description="Ends the Live Activity and unfollows the match.",
            request=users.DismissedActivity,
            request_example={"deviceId": "A1B2-C3D4"},
            status=204,
            **_user_endpoint(_MATCH_NOT_FOUND),
        ),
    )


def _administration(admin_handlers: AdminHandlers) -> tuple[Endpoint, ...]:
    report = admin.SyncReport({"leagues": {"created": 1, "updated": 0, "unchanged": 27}})
    circuit_open = Unavailable("SportMonks is unavailable", retry_after=30)
    return (
        Endpoint(
            "GET",
            "/admin/fixtures",
            admin_handlers.list_fixtures,
            "List the fixtures of a league",
            description="Scans the whole table; use it rarely.",
            query=admin.AdminFixtureQuery,
            response=matches.MatchPage,
            response_example=matches.MatchPage([examples.MATCH], None),
            **_admin_endpoint(),
        ),
        Endpoint(
            "POST",
            "/admin/sync",
            admin_handlers.run_sync,
            "Run a sync",
            request=admin.SyncRequest,
            request_example={"what": "fixtures"},
            response=admin.SyncReport,
            response_example=report,
            **_admin_endpoint(circuit_open),
        ),
        Endpoint(
            "GET",
            "/admin/matches/{match_id}/state",
            admin_handlers.get_match_state,
            "Get the pipeline state of a match",
            response=admin.MatchStateBody,
            response_example=examples.MATCH_STATE,
            **_admin_endpoint(_MATCH_NOT_FOUND),
        ),
        Endpoint(
            "POST",
            "/admin/matches/{match_id}/replay",
            admin_handlers.start_replay,
            "Replay a recorded match",
            request=admin.ReplayRequest,
            request_example={"speed": 60},
            response=matches.MatchBody,
            response_example=examples.MATCH,
            status=201,
            **_admin_endpoint(_MATCH_NOT_FOUND, errors.no_recording()),
        ),
    )
