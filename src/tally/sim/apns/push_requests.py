"""Parses and validates requests to the push port in the order in which APNs checks them."""

import re
from typing import Final, TypeAlias
from uuid import UUID

import msgspec

from tally.sim.apns.devices import DeviceRegistry, TokenKind
from tally.sim.apns.streams import Http2Stream

MAX_PUSH_BYTES: Final = 4096
MAX_BROADCAST_BYTES: Final = 5120
MAX_COLLAPSE_ID_BYTES: Final = 64
LIVE_ACTIVITY: Final = b"liveactivity"
_PUSH_TYPES: Final = frozenset(
    {
        LIVE_ACTIVITY,
        b"alert",
        b"background",
        b"voip",
        b"complication",
        b"fileprovider",
        b"mdm",
        b"location",
        b"pushtotalk",
    }
)
_PRIORITIES: Final = frozenset({b"10", b"5", b"1", b""})
_DEVICE_PATH: Final = b"/3/device/"
_BROADCAST_PATH: Final = b"/4/broadcasts/apps/"
_token_pattern: Final = re.compile(r"(?:[0-9a-f]{2}){32,100}", re.IGNORECASE)
# 16 bytes in Base64.
_channel_id_pattern: Final = re.compile(r"[A-Za-z0-9+/]{22}==")

# Status and reason.
PushError: TypeAlias = tuple[int, str]


class PushRequest(msgspec.Struct, frozen=True):
    """A push or broadcast request. One field per APNs header, so it has more than eight.

    `target` is the device token or, for a broadcast, the channel id.
    """

    path: str
    target: str
    is_broadcast: bool
    push_type: bytes
    priority: bytes
    expiration: bytes
    topic: bytes
    apns_id: bytes
    collapse_id: bytes


def parse_push(stream: Http2Stream) -> PushRequest:
    headers = stream.headers
    path = headers.get(b":path", b"")
    is_broadcast = path.startswith(_BROADCAST_PATH)
    token = path[len(_DEVICE_PATH) :] if path.startswith(_DEVICE_PATH) else b""
    target = headers.get(b"apns-channel-id", b"") if is_broadcast else token
    return PushRequest(
        path.decode("latin-1"),
        target.decode("latin-1"),
        is_broadcast,
        headers.get(b"apns-push-type", b""),
        headers.get(b"apns-priority", b""),
        headers.get(b"apns-expiration", b""),
        headers.get(b"apns-topic", b""),
        headers.get(b"apns-id", b"") or headers.get(b"apns-request-id", b""),
        headers.get(b"apns-collapse-id", b""),
    )


def validate_push(
    push: PushRequest, stream: Http2Stream, bundle_id: str, devices: DeviceRegistry
) -> PushError | None:
    """The first error of a request, not counting the provider token; None if it is valid."""
    if stream.headers.get(b":method") != b"POST":
        return 405, "MethodNotAllowed"
    if push.is_broadcast:
        error = _broadcast_error(push, bundle_id)
    else:
        error = _token_error(push) or _topic_error(push, bundle_id)
    error = (
        error
        or _header_error(push)
        or _size_error(stream.body, MAX_BROADCAST_BYTES if push.is_broadcast else MAX_PUSH_BYTES)
    )
    if error is None and not push.is_broadcast:
        return _registration_error(push, devices)
    return error


def _broadcast_error(push: PushRequest, bundle_id: str) -> PushError | None:
    if push.path != f"/4/broadcasts/apps/{bundle_id}":
        return 400, "TopicDisallowed"
    if not push.target:
        return 400, "MissingChannelId"
    if not is_channel_id(push.target):
        return 400, "BadChannelId"
    if not push.push_type:
        return 400, "MissingPushType"
    return (400, "InvalidPushType") if push.push_type != LIVE_ACTIVITY else None


def _token_error(push: PushRequest) -> PushError | None:
    if not push.path.startswith("/3/device/"):
        return 404, "BadPath"
    if not push.target:
        return 400, "MissingDeviceToken"
    return None if _token_pattern.fullmatch(push.target) else (400, "BadDeviceToken")


def _topic_error(push: PushRequest, bundle_id: str) -> PushError | None:
    if push.push_type not in _PUSH_TYPES:
        return 400, "InvalidPushType"
    if not push.topic:
        return 400, "MissingTopic"
    if not push.topic.startswith(bundle_id.encode()):
        return 400, "TopicDisallowed"
    expected = bundle_id + (".push-type.liveactivity" if push.push_type == LIVE_ACTIVITY else "")
    return None if push.topic == expected.encode() else (400, "BadTopic")


def _header_error(push: PushRequest) -> PushError | None:
    if push.priority not in _PRIORITIES:
        return 400, "BadPriority"
    if push.expiration and not push.expiration.isdigit():
        return 400, "BadExpirationDate"
    if len(push.collapse_id) > MAX_COLLAPSE_ID_BYTES:
        return 400, "BadCollapseId"
    return None if not push.apns_id or _is_uuid(push.apns_id) else (400, "BadMessageId")


def _size_error(body: bytes, limit: int) -> PushError | None:
    if not body:
        return 400, "PayloadEmpty"
    return (413, "PayloadTooLarge") if len(body) > limit else None


def _registration_error(push: PushRequest, devices: DeviceRegistry) -> PushError | None:
    token = devices.tokens.get(push.target)
    if token is None:
        return None if devices.accepts_any_token else (400, "BadDeviceToken")
    if token.retired_at_ms is not None:
        return 410, "Unregistered"
    is_for_activities = token.kind is not TokenKind.DEVICE
    return (
        None
        if is_for_activities == (push.push_type == LIVE_ACTIVITY)
        else (400, "DeviceTokenNotForTopic")
    )


def is_channel_id(text: str) -> bool:
    return _channel_id_pattern.fullmatch(text) is not None


def _is_uuid(text: bytes) -> bool:
    try:
        return bool(UUID(text.decode()))
    except ValueError:
        return False
