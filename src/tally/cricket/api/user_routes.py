"""The endpoints of a user's data, devices and follows."""

from typing import Final

from tally.cricket.api.endpoint_options import user_endpoint
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.schemas import examples, users
from tally.cricket.model import errors
from tally.cricket.service.activities.team_follows import MAX_TEAMS_PER_USER
from tally.kit.endpoints import Endpoint

_MATCH_NOT_FOUND: Final = errors.match_not_found()
_DEVICE_NOT_FOUND: Final = errors.device_not_found()
_NOT_FOLLOWED: Final = errors.not_followed()
_TEAM_NOT_IN_MATCH: Final = errors.team_not_in_match()
_MATCH_OVER: Final = errors.match_over()
_NOTHING_TO_CHANGE: Final = errors.nothing_to_change()
_ONE_DEVICE_IDENTIFIER: Final = errors.one_device_identifier()


def user_endpoints(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        *_devices(handlers),
        *_follows(handlers),
        *_match_follow(handlers),
        *_team_follows(handlers),
    )


def _devices(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "DELETE",
            "/user",
            handlers.delete_user,
            "Delete your data",
            description=(
                "Deletes your devices, follows, subscriptions and Live Activities, and ends these "
                "on your devices. Idempotent."
            ),
            status=204,
            **user_endpoint(),
        ),
        Endpoint(
            "GET",
            "/user/device",
            handlers.list_devices,
            "List your devices",
            response=users.UserDeviceList,
            response_example=users.UserDeviceList([examples.USER_DEVICE]),
            **user_endpoint(),
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
            **user_endpoint(),
        ),
        Endpoint(
            "DELETE",
            "/user/device",
            handlers.delete_device,
            "Delete a device",
            query=users.UserDeviceQuery,
            status=204,
            **user_endpoint(_ONE_DEVICE_IDENTIFIER, _DEVICE_NOT_FOUND),
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
            **user_endpoint(_ONE_DEVICE_IDENTIFIER, _DEVICE_NOT_FOUND),
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
            **user_endpoint(),
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
            **user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _MATCH_OVER),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/match",
            handlers.unfollow_match,
            "Unfollow a match",
            query=users.FollowedMatchQuery,
            status=204,
            **user_endpoint(),
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
            **user_endpoint(_NOT_FOLLOWED),
        ),
        Endpoint(
            "POST",
            "/user/follow/{match_id}",
            handlers.create_follow,
            "Follow a match",
            description="For a live match, the response contains the display state.",
            request=users.NewFollow,
            request_example={"teamId": "5"},
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **user_endpoint(_TEAM_NOT_IN_MATCH, _MATCH_NOT_FOUND, _MATCH_OVER),
        ),
        Endpoint(
            "PATCH",
            "/user/follow/{match_id}",
            handlers.change_follow,
            "Change a follow",
            description="Changes the team, the alert choice or both.",
            request=users.FollowChange,
            request_example={"alerts": "milestones"},
            response=users.FollowBody,
            response_example=examples.FOLLOW,
            **user_endpoint(
                _TEAM_NOT_IN_MATCH, _NOTHING_TO_CHANGE, _MATCH_NOT_FOUND, _NOT_FOLLOWED
            ),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/{match_id}",
            handlers.delete_follow,
            "Unfollow a match",
            description="Ends the match's Live Activities on all devices of the user. Idempotent.",
            status=204,
            **user_endpoint(_MATCH_NOT_FOUND),
        ),
    )


def _team_follows(handlers: Handlers) -> tuple[Endpoint, ...]:
    not_found = errors.team_not_found()
    example = users.TeamFollowBody("5", examples.TIME_MS)
    return (
        Endpoint(
            "GET",
            "/user/follows/teams",
            handlers.list_followed_teams,
            "List the teams you follow",
            response=users.TeamFollowList,
            response_example=users.TeamFollowList([example]),
            **user_endpoint(),
        ),
        Endpoint(
            "PUT",
            "/user/follow/team/{team_id}",
            handlers.follow_team,
            "Follow a team",
            description=(
                "Follows the scheduled and live fixtures of the team now, and later ones as they"
                " are scheduled, except matches that the user has unfollowed. Idempotent."
            ),
            response=users.TeamFollowBody,
            response_example=example,
            **user_endpoint(not_found, errors.too_many_teams(MAX_TEAMS_PER_USER)),
        ),
        Endpoint(
            "DELETE",
            "/user/follow/team/{team_id}",
            handlers.unfollow_team,
            "Unfollow a team",
            description=(
                "Unfollows the matches that the team has added; those that the user followed, or"
                " that another followed team plays, stay followed. Idempotent."
            ),
            status=204,
            **user_endpoint(not_found),
        ),
    )
