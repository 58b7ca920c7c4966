"""The routes of the cricket backend as a list: matches, reference data, devices, follows, Live Activities, and operators'."""

from typing import Any, Final

from tally.cricket.api import examples, schemas
from tally.cricket.api.admin import OperatorHandlers
from tally.cricket.api.handlers import Handlers
from tally.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TallyError,
    Unauthenticated,
    Unavailable,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import ErrorFormat, NestedError

ERROR_FORMAT: Final = ErrorFormat(NestedError)
SECURITY: Final = {
    "person": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    "admin_key": {"type": "apiKey", "in": "header", "name": "X-Admin-Key"},
}

_UNAVAILABLE: Final = Unavailable("The store cannot answer now", retry_after=1)
_NO_TOKEN: Final = Unauthenticated("Invalid token", code="invalid_token")
_NOT_OPERATOR: Final = Forbidden("This is for operators", code="not_an_operator")
_NO_MATCH: Final = NotFound("There is no such match", code="match_not_found")
_NO_TEAM: Final = NotFound("There is no such team", code="team_not_found")
_NO_LEAGUE: Final = NotFound("There is no such league", code="league_not_found")
_NO_DEVICE: Final = NotFound("This device is not registered", code="device_not_found")
_NOT_FOLLOWED: Final = NotFound("You do not follow this match", code="not_followed")
_OTHER_TEAM: Final = Invalid(
    "This team does not play in the match", code="team_not_in_match", field="teamId"
)
_OVER: Final = Conflict("This match is over", code="match_over")
_NOTHING: Final = Invalid("There is nothing to change", code="nothing_to_change")
_ONE_OF: Final = Invalid(
    "Give exactly one of deviceToken and deviceId", code="invalid_field", field="deviceToken"
)


def _for_people(*errors: TallyError) -> dict[str, Any]:
    return {"errors": (*errors, _NO_TOKEN, _UNAVAILABLE), "security": ("person",)}


def _for_operators(*errors: TallyError) -> dict[str, Any]:
    return {
        "errors": (*errors, _NO_TOKEN, _NOT_OPERATOR, _UNAVAILABLE),
        "security": ("person", "admin_key"),
    }


def cricket_api(handlers: Handlers, operators: OperatorHandlers) -> Api:
    """The backend's operations."""
    return Api(
        name="cricket",
        description="Live scores, and Live Activities for everyone who follows a match.",
        error_format=ERROR_FORMAT,
        security_schemes=SECURITY,
        endpoints=(
            Endpoint(
                "GET",
                "/health",
                handlers.health,
                "Whether the backend is up",
                response=schemas.Health,
                response_example=schemas.Health("ok"),
            ),
            Endpoint(
                "GET",
                "/health/ready",
                handlers.ready,
                "Whether the backend can serve",
                response=schemas.Health,
                response_example=schemas.Health("ready"),
                errors=(_UNAVAILABLE,),
            ),
            *_matches(handlers),
            *_reference(handlers, operators),
            *_devices(handlers),
            *_follows(handlers),
            *_activities(handlers),
            *_administration(operators),
        ),
    )


def _matches(handlers: Handlers) -> tuple[Endpoint, ...]:
    bad_range = Invalid("from must be a day such as 2026-11-15", code="invalid_field", field="from")
    return (
        Endpoint(
            "GET",
            "/matches",
            handlers.list_matches,
            "Matches of a time",
            description=(
                "By league (its code or id) and range of start times; without a league, those of all active leagues, and without"
                " a range, what is live and what comes."
            ),
            query=schemas.MatchQuery,
            response=schemas.MatchPage,
            response_example=schemas.MatchPage([examples.MATCH], None),
            **_for_people(bad_range, _NO_LEAGUE),
        ),
        Endpoint(
            "GET",
            "/matches/live",
            handlers.live_matches,
            "What is live now",
            response=schemas.MatchPage,
            response_example=schemas.MatchPage([examples.MATCH], None),
            **_for_people(),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}",
            handlers.show_match,
            "A match",
            response=schemas.MatchBody,
            response_example=examples.MATCH,
            **_for_people(_NO_MATCH),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}/display",
            handlers.show_display,
            "What a Lock Screen shows of a match",
            query=schemas.ViewQuery,
            response=schemas.DisplayBody,
            response_example=examples.DISPLAY,
            **_for_people(_OTHER_TEAM, _NO_MATCH),
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}/events",
            handlers.stream,
            "A match as it happens",
            description=(
                "Server-sent events: `display` with the state as at `/display`, first and whenever it changes, and `event` for"
                " each key event. `Last-Event-ID` brings what was missed."
            ),
            query=schemas.ViewQuery,
            media_type="text/event-stream",
            **_for_people(_OTHER_TEAM, _NO_MATCH),
        ),
    )


def _reference(handlers: Handlers, operators: OperatorHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/teams",
            handlers.list_teams,
            "All teams",
            response=schemas.TeamList,
            response_example=schemas.TeamList([examples.TEAM]),
            **_for_people(),
        ),
        Endpoint(
            "GET",
            "/teams/{team_id}",
            handlers.show_team,
            "A team",
            response=schemas.TeamBody,
            response_example=examples.TEAM,
            **_for_people(_NO_TEAM),
        ),
        Endpoint(
            "PATCH",
            "/teams/{team_id}",
            operators.change_team,
            "Change a team",
            description="What is changed here stays: a sync leaves it alone from then on.",
            request=schemas.TeamChange,
            request_example={"name": "Rovers CC", "color": "#1b5e20"},
            response=schemas.TeamBody,
            response_example=examples.TEAM,
            **_for_operators(_NOTHING, _NO_TEAM),
        ),
        Endpoint(
            "GET",
            "/leagues",
            handlers.list_leagues,
            "All leagues",
            response=schemas.LeagueList,
            response_example=schemas.LeagueList([examples.LEAGUE]),
            **_for_people(),
        ),
        Endpoint(
            "GET",
            "/leagues/{league_id}",
            handlers.show_league,
            "A league",
            response=schemas.LeagueBody,
            response_example=examples.LEAGUE,
            **_for_people(_NO_LEAGUE),
        ),
        Endpoint(
            "PATCH",
            "/leagues/{league_id}",
            operators.change_league,
            "Change a league",
            request=schemas.LeagueChange,
            request_example={"active": False},
            response=schemas.LeagueBody,
            response_example=examples.LEAGUE,
            **_for_operators(_NOTHING, _NO_LEAGUE),
        ),
        Endpoint(
            "DELETE",
            "/leagues/{league_id}",
            operators.delete_league,
            "Delete a league",
            status=204,
            **_for_operators(_NO_LEAGUE),
        ),
        Endpoint(
            "GET",
            "/seasons/{season_id}/teams",
            handlers.season_teams,
            "The teams of a season",
            response=schemas.SeasonTeams,
            response_example=schemas.SeasonTeams([examples.SEASON_TEAM]),
            **_for_people(NotFound("There is no such season", code="season_not_found")),
        ),
    )


def _devices(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/user/device",
            handlers.list_devices,
            "My devices",
            response=schemas.DeviceList,
            response_example=schemas.DeviceList([examples.DEVICE]),
            **_for_people(),
        ),
        Endpoint(
            "POST",
            "/user/device",
            handlers.register_device,
            "Register this device",
            description="At each launch of the app. It is forgotten 90 days after the last call.",
            request=schemas.NewDevice,
            request_example=examples.NEW_DEVICE,
            response=schemas.DeviceBody,
            response_example=examples.DEVICE,
            **_for_people(),
        ),
        Endpoint(
            "DELETE",
            "/user/device",
            handlers.delete_device,
            "Forget a device",
            query=schemas.DeviceQuery,
            status=204,
            **_for_people(_ONE_OF, _NO_DEVICE),
        ),
        Endpoint(
            "PUT",
            "/user/device/push-to-start",
            handlers.update_start_token,
            "Hand in the push-to-start token",
            request=schemas.NewStartToken,
            request_example={"pushToStartToken": "c0ffee00c0ffee", "deviceId": "A1B2-C3D4"},
            response=schemas.DeviceBody,
            response_example=examples.DEVICE,
            **_for_people(_ONE_OF, _NO_DEVICE),
        ),
    )


def _follows(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/user/follows",
            handlers.list_follows,
            "What I follow",
            query=schemas.PageQuery,
            response=schemas.FollowPage,
            response_example=schemas.FollowPage([examples.FOLLOW], None),
            **_for_people(),
        ),
        Endpoint(
            "POST",
            "/user/follow/match",
            handlers.follow_match,
            "Follow a match",
            request=schemas.NewFollowOfMatch,
            request_example={"matchId": "65001", "teamId": "5"},
            response=schemas.FollowBody,
            response_example=examples.FOLLOW,
            **_for_people(_OTHER_TEAM, _NO_MATCH, _OVER),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/match",
            handlers.unfollow_match,
            "Follow a match no longer",
            query=schemas.FollowedMatchQuery,
            status=204,
            **_for_people(),
        ),
        Endpoint(
            "GET",
            "/user/follow/{match_id}",
            handlers.show_follow,
            "Whether I follow a match",
            response=schemas.FollowBody,
            response_example=examples.FOLLOW,
            **_for_people(_NOT_FOLLOWED),
        ),
        Endpoint(
            "POST",
            "/user/follow/{match_id}",
            handlers.follow,
            "Follow a match",
            description="Of a live match, the answer has its display state, so that the app has something to show at once.",
            request=schemas.NewFollow,
            request_example={"teamId": "5"},
            response=schemas.FollowBody,
            response_example=examples.FOLLOW,
            **_for_people(_OTHER_TEAM, _NO_MATCH, _OVER),
        ),
        Endpoint(
            "PATCH",
            "/user/follow/{match_id}",
            handlers.change_follow,
            "Change sides",
            request=schemas.ChangedFollow,
            request_example={"teamId": None},
            response=schemas.FollowBody,
            response_example=examples.FOLLOW,
            **_for_people(_OTHER_TEAM, _NO_MATCH, _NOT_FOLLOWED),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/{match_id}",
            handlers.unfollow,
            "Follow a match no longer",
            description="Ends the Live Activities of the match on all of the person's devices. The same again is no error.",
            status=204,
            **_for_people(_NO_MATCH),
        ),
    )


def _activities(handlers: Handlers) -> tuple[Endpoint, ...]:
    ended = Conflict("This Live Activity has ended", code="activity_ended")
    return (
        Endpoint(
            "POST",
            "/user/activity/{match_id}",
            handlers.subscribe,
            "Subscribe a Live Activity that the app started",
            request=schemas.NewSubscription,
            request_example={"pushToken": "deadbeefdeadbeef"},
            response=schemas.SubscriptionBody,
            response_example=examples.SUBSCRIPTION,
            **_for_people(_OTHER_TEAM, _NO_MATCH, _OVER),
        ),
        Endpoint(
            "DELETE",
            "/user/activity/{match_id}",
            handlers.unsubscribe,
            "Remove that subscription",
            query=schemas.SubscriptionQuery,
            status=204,
            **_for_people(
                NotFound("There is no such subscription", code="subscription_not_found"), _NO_MATCH
            ),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-token",
            handlers.register_activity,
            "Register or rotate an update token",
            request=schemas.ActivityToken,
            request_example={"deviceId": "A1B2-C3D4", "updateToken": "80c1f7de80c1f7de"},
            response=schemas.ActivityBody,
            response_example=examples.ACTIVITY,
            **_for_people(_OTHER_TEAM, _NO_MATCH, ended),
        ),
        Endpoint(
            "POST",
            "/matches/{match_id}/activity-dismissed",
            handlers.dismiss_activity,
            "Say that it was swiped away",
            description="Ends this Live Activity, and the person follows the match no longer.",
            request=schemas.ActivityOfDevice,
            request_example={"deviceId": "A1B2-C3D4"},
            status=204,
            **_for_people(_NO_MATCH),
        ),
    )


def _administration(operators: OperatorHandlers) -> tuple[Endpoint, ...]:
    report = schemas.SyncReport({"leagues": {"created": 1, "updated": 0, "unchanged": 27}})
    away = Unavailable("SportMonks is not called while it is failing", retry_after=30)
    return (
        Endpoint(
            "GET",
            "/admin/fixtures",
            operators.fixtures,
            "Fixtures of a league",
            description="Looks through the whole table: rare, and for operators alone.",
            query=schemas.AdminFixtureQuery,
            response=schemas.MatchPage,
            response_example=schemas.MatchPage([examples.MATCH], None),
            **_for_operators(),
        ),
        Endpoint(
            "POST",
            "/admin/sync",
            operators.sync_now,
            "Sync now",
            request=schemas.SyncOrder,
            request_example={"what": "fixtures"},
            response=schemas.SyncReport,
            response_example=report,
            **_for_operators(away),
        ),
        Endpoint(
            "GET",
            "/admin/matches/{match_id}/state",
            operators.state,
            "What the pipeline remembers of a match",
            response=schemas.MatchState,
            response_example=examples.STATE,
            **_for_operators(_NO_MATCH),
        ),
        Endpoint(
            "POST",
            "/admin/matches/{match_id}/replay",
            operators.replay,
            "Play a recorded match again",
            request=schemas.ReplayOrder,
            request_example={"speed": 60},
            response=schemas.MatchBody,
            response_example=examples.MATCH,
            status=201,
            **_for_operators(
                _NO_MATCH, Conflict("The balls of this match are not kept", code="no_recording")
            ),
        ),
    )
