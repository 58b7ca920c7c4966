"""Schemas of a user's devices, follows, subscriptions and Live Activities."""

from typing import Annotated, Any, Literal

import msgspec

from tally.cricket.api.schemas.fields import CamelCaseBody, Id, PageLimit, Token, public_team_id
from tally.cricket.model.records import ActivitySubscription, Follow, LiveActivity, UserDevice
from tally.kit.body import StrictStruct

Version = Annotated[str, msgspec.Meta(max_length=64)]


class NewUserDevice(StrictStruct, frozen=True, rename="camel"):
    device_token: Token
    device_id: Id
    platform: Literal["ios", "ipados", "iOS", "iPadOS"]
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

    devices: list[UserDeviceBody]


class NewFollow(StrictStruct, frozen=True, rename="camel"):
    team_id: Id | None = None


class NewMatchFollow(StrictStruct, frozen=True, rename="camel"):
    match_id: Id
    team_id: Id | None = None


class FollowedMatchQuery(StrictStruct, frozen=True, rename="camel"):
    match_id: Id


class FollowChange(StrictStruct, frozen=True, rename="camel"):
    """The new team; `null` selects the neutral view."""

    team_id: Id | None


class FollowBody(CamelCaseBody, frozen=True):
    """`display` is present while the match is live, so that the app can render it immediately."""

    match_id: str
    team_id: str | None
    created_at: int
    expires_at: int
    display: dict[str, Any] | None = None


class FollowListQuery(StrictStruct, frozen=True):
    limit: PageLimit = 50
    cursor: str | None = None


class FollowPage(CamelCaseBody, frozen=True):
    follows: list[FollowBody]
    next_cursor: str | None


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


class DismissedActivity(StrictStruct, frozen=True, rename="camel"):
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
        created_at=follow.created_at,
        expires_at=follow.expires_at,
        display=display,
    )


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
