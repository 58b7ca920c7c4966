"""Requests to the push port, read and checked as Apple checks them: what is wrong first decides the answer."""

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
_DEVICE: Final = b"/3/device/"
_BROADCAST: Final = b"/4/broadcasts/apps/"
_hexadecimal: Final = re.compile(r"(?:[0-9a-f]{2}){32,100}", re.IGNORECASE)
# Sixteen bytes in Base64.
_channel_id: Final = re.compile(r"[A-Za-z0-9+/]{22}==")

PushError: TypeAlias = tuple[int, str]


class PushRequest(msgspec.Struct, frozen=True):
    """What a request to the push port is about.

    `target` is a token, or a channel where `is_broadcast`.
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


def parse_push(exchange: Http2Stream) -> PushRequest:
    headers = exchange.headers
    path = headers.get(b":path", b"")
    is_broadcast = path.startswith(_BROADCAST)
    token = path[len(_DEVICE) :] if path.startswith(_DEVICE) else b""
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
    asked: PushRequest, exchange: Http2Stream, bundle_id: str, devices: DeviceRegistry
) -> PushError | None:
    """The first thing that is wrong apart from the provider's token, or None."""
    if exchange.headers.get(b":method") != b"POST":
        return 405, "MethodNotAllowed"
    if asked.is_broadcast:
        found = _broadcast_trouble(asked, bundle_id)
    else:
        found = _token_trouble(asked) or _topic_trouble(asked, bundle_id)
    found = (
        found
        or _header_trouble(asked)
        or _size_trouble(
            exchange.body, MAX_BROADCAST_BYTES if asked.is_broadcast else MAX_PUSH_BYTES
        )
    )
    if found is None and not asked.is_broadcast:
        return _registration_trouble(asked, devices)
    return found


def _broadcast_trouble(asked: PushRequest, bundle_id: str) -> PushError | None:
    if asked.path != f"/4/broadcasts/apps/{bundle_id}":
        return 400, "TopicDisallowed"
    if not asked.target:
        return 400, "MissingChannelId"
    if not is_channel_id(asked.target):
        return 400, "BadChannelId"
    if not asked.push_type:
        return 400, "MissingPushType"
    return (400, "InvalidPushType") if asked.push_type != LIVE_ACTIVITY else None


def _token_trouble(asked: PushRequest) -> PushError | None:
    if not asked.path.startswith("/3/device/"):
        return 404, "BadPath"
    if not asked.target:
        return 400, "MissingDeviceToken"
    return None if _hexadecimal.fullmatch(asked.target) else (400, "BadDeviceToken")


def _topic_trouble(asked: PushRequest, bundle_id: str) -> PushError | None:
    if asked.push_type not in _PUSH_TYPES:
        return 400, "InvalidPushType"
    if not asked.topic:
        return 400, "MissingTopic"
    if not asked.topic.startswith(bundle_id.encode()):
        return 400, "TopicDisallowed"
    wanted = bundle_id + (".push-type.liveactivity" if asked.push_type == LIVE_ACTIVITY else "")
    return None if asked.topic == wanted.encode() else (400, "BadTopic")


def _header_trouble(asked: PushRequest) -> PushError | None:
    if asked.priority not in _PRIORITIES:
        return 400, "BadPriority"
    if asked.expiration and not asked.expiration.isdigit():
        return 400, "BadExpirationDate"
    if len(asked.collapse_id) > MAX_COLLAPSE_ID_BYTES:
        return 400, "BadCollapseId"
    return None if not asked.apns_id or _is_uuid(asked.apns_id) else (400, "BadMessageId")


def _size_trouble(body: bytes, most: int) -> PushError | None:
    if not body:
        return 400, "PayloadEmpty"
    return (413, "PayloadTooLarge") if len(body) > most else None


def _registration_trouble(asked: PushRequest, devices: DeviceRegistry) -> PushError | None:
    token = devices.tokens.get(asked.target)
    if token is None:
        return None if devices.takes_any_token else (400, "BadDeviceToken")
    if token.gone_since_ms is not None:
        return 410, "Unregistered"
    is_for_activities = token.kind is not TokenKind.DEVICE
    return (
        None
        if is_for_activities == (asked.push_type == LIVE_ACTIVITY)
        else (400, "DeviceTokenNotForTopic")
    )


def is_channel_id(text: str) -> bool:
    return _channel_id.fullmatch(text) is not None


def _is_uuid(text: bytes) -> bool:
    try:
        return bool(UUID(text.decode()))
    except ValueError:
        return False
