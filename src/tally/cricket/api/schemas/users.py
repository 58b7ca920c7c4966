"""Schemas of a user's devices, follows, subscriptions and Live Activities."""

from typing import Annotated, Any, Literal

import msgspec

from tally.cricket.api.schemas.fields import CamelCaseBody, Id, PageLimit, Token, public_team_id
from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import (
    ActivitySubscription,
    Follow,
    LiveActivity,
    TeamFollow,
    UserDevice,
)
from tally.kit.body import StrictStruct

Version = Annotated[str, msgspec.Meta(max_length=64)]
# Generators of clients derive the names of enum members from the values, ignoring case.
Platform = Annotated[
    Literal["ios", "ipados", "iOS", "iPadOS"],
    msgspec.Meta(
        extra_json_schema={
            "x-enum-varnames": ["IOS", "IPADOS", "IOS_MIXED_CASE", "IPADOS_MIXED_CASE"]
        }
    ),
]


class NewUserDevice(StrictStruct, frozen=True, rename="camel"):
    device_token: Token
    device_id: Id
    platform: Platform
    os_version: Version = ""
    app_version: Version = ""


class NewPushToStartToken(StrictStruct, frozen=True, rename="camel"):
    """A push-to-start token, with either the token or the id of its device."""

    push_to_start_token: Token
    device_token: Token | None = None
    device_id: Id | None = None


class UserDeviceQuery(StrictStruct, frozen=True, rename="camel"):
    """Exactly one of the token and the id of a device."""

    device_token: Token | None = None
    device_id: Id | None = None


class UserDeviceBody(CamelCaseBody, frozen=True):
    """A device of the user."""

    device_token: str
    device_id: str
    platform: str
    os_version: str
    app_version: str
    has_push_to_start_token: bool
    created_at: int
    updated_at: int
    expires_at: int


class UserDeviceList(CamelCaseBody, frozen=True):
    """Devices, most recently used first."""

    items: list[UserDeviceBody]
    next_cursor: str | None = None


class NewFollow(StrictStruct, frozen=True, rename="camel"):
    """Without `alerts`, a new follow has `all` and an existing one keeps its choice."""

    team_id: Id | None = None
    alerts: AlertChoice | None = None


class NewMatchFollow(StrictStruct, frozen=True, rename="camel"):
    match_id: Id
    team_id: Id | None = None
    alerts: AlertChoice | None = None


class FollowedMatchQuery(StrictStruct, frozen=True, rename="camel"):
    match_id: Id


class FollowChange(StrictStruct, frozen=True, rename="camel"):
    """The fields to change. For the team, `null` selects the neutral view."""

    team_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    alerts: AlertChoice | msgspec.UnsetType = msgspec.UNSET


class FollowBody(CamelCaseBody, frozen=True):
    """`display` is present while the match is live, so that the app can render it immediately.

    `viaTeamId` is the followed team that created the follow, or null if the user did.
    """

    match_id: str
    team_id: str | None
    alerts: AlertChoice
    created_at: int
    expires_at: int
    display: dict[str, Any] | None = None
    via_team_id: str | None = None


class FollowListQuery(StrictStruct, frozen=True):
    limit: PageLimit = 50
    cursor: str | None = None


class FollowPage(CamelCaseBody, frozen=True):
    items: list[FollowBody]
    next_cursor: str | None


class TeamFollowBody(CamelCaseBody, frozen=True):
    team_id: str
    created_at: int


class TeamFollowList(CamelCaseBody, frozen=True):
    """Followed teams by team id."""

    items: list[TeamFollowBody]
    next_cursor: str | None = None


class NewSubscription(StrictStruct, frozen=True, rename="camel"):
    push_token: Token
    team_id: Id | None = None


class SubscriptionQuery(StrictStruct, frozen=True, rename="camel"):
    push_token: Token


class SubscriptionBody(CamelCaseBody, frozen=True):
    match_id: str
    team_id: str | None
    created_at: int
    expires_at: int


class NewUpdateToken(StrictStruct, frozen=True, rename="camel"):
    device_id: Id
    update_token: Token
    team_id: Id | None = None


class ActivityReport(StrictStruct, frozen=True, rename="camel"):
    """The device whose Live Activity has started, ended or was dismissed."""

    device_id: Id


class ActivityBody(CamelCaseBody, frozen=True):
    match_id: str
    device_id: str
    status: str
    end_reason: str | None
    team_id: str | None
    created_at: int
    updated_at: int


def user_device_body(device: UserDevice) -> UserDeviceBody:
    return UserDeviceBody(
        device_token=device.device_token,
        device_id=device.device_id,
        platform=device.platform,
        os_version=device.os_version,
        app_version=device.app_version,
        has_push_to_start_token=device.push_to_start_token is not None,
        created_at=device.created_at,
        updated_at=device.updated_at,
        expires_at=device.expires_at,
    )


def follow_body(follow: Follow, display: dict[str, Any] | None = None) -> FollowBody:
    return FollowBody(
        match_id=follow.match_id,
        team_id=public_team_id(follow.team_id),
        alerts=follow.alerts,
        created_at=follow.created_at,
        expires_at=follow.expires_at,
        display=display,
        via_team_id=follow.via_team_id,
    )


def team_follow_body(follow: TeamFollow) -> TeamFollowBody:
    return TeamFollowBody(team_id=follow.team_id, created_at=follow.created_at)


def subscription_body(subscription: ActivitySubscription) -> SubscriptionBody:
    return SubscriptionBody(
        match_id=subscription.match_id,
        team_id=public_team_id(subscription.team_id),
        created_at=subscription.created_at,
        expires_at=subscription.expires_at,
    )


def activity_body(activity: LiveActivity) -> ActivityBody:
    return ActivityBody(
        match_id=activity.match_id,
        device_id=activity.device_id,
        status=activity.status.value,
        end_reason=None if activity.end_reason is None else activity.end_reason.value,
        team_id=public_team_id(activity.team_id),
        created_at=activity.created_at,
        updated_at=activity.updated_at,
    )
