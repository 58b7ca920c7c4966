"""Builds the JSON payloads of Live Activities and notifications, as iOS reads them.

`content` is a display state that was fitted beforehand: `max_content_bytes(kind)` is the space for
it, independent of the rest of the payload. A content that does not fit raises `PayloadTooLarge`.
Alert texts are truncated to their share of the space.

    payload = update_payload(timestamp=now, content=state, alert=Alert("WICKET!", "Smith b Archer"))
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tally.errors import Invalid, TooLarge

# APNs limits, in bytes.
MAX_PAYLOAD_BYTES: Final = 4096
MAX_BROADCAST_BYTES: Final = 5120
# Limits of our own, in bytes of JSON.
MAX_ALERT_TITLE_BYTES: Final = 128
MAX_ALERT_BODY_BYTES: Final = 320
MAX_ATTRIBUTES_BYTES: Final = 512
MAX_CHANNEL_ID_BYTES: Final = 64
# The largest timestamp, so that the space for the content does not shrink with time.
_MAX_TIMESTAMP: Final = 9_999_999_999
_ELLIPSIS: Final = "…"

PayloadKind: TypeAlias = Literal["start", "update", "end", "broadcast"]
PayloadContent: TypeAlias = Mapping[str, Any]


class PayloadTooLarge(TooLarge):
    """The payload exceeds a limit; the details contain `size` and `limit` in bytes."""

    default_code = "payload_too_large"


class Alert(msgspec.Struct, frozen=True):
    """A title, a body and a sound that light the screen."""

    title: str
    body: str
    sound: str | None = "default"


def start_payload(
    *,
    timestamp: int,
    content: PayloadContent,
    attributes_type: str,
    attributes: PayloadContent,
    alert: Alert,
    channel_id: str | None = None,
    stale_at: int | None = None,
    relevance: float | None = None,
) -> bytes:
    """Build the payload that starts a Live Activity by a push-to-start token.

    The activity subscribes to the channel if there is one (iOS 18); otherwise it registers its
    own update token.
    """
    size = len(_encode(attributes))
    if size > MAX_ATTRIBUTES_BYTES:
        raise PayloadTooLarge(
            f"attributes has {size} bytes and must have at most {MAX_ATTRIBUTES_BYTES}",
            size=size,
            limit=MAX_ATTRIBUTES_BYTES,
        )
    source = (
        {"input-push-channel": channel_id} if channel_id is not None else {"input-push-token": 1}
    )
    aps = _activity_aps("start", timestamp, content, alert, stale_at=stale_at, relevance=relevance)
    return _encode_aps(
        aps | {"attributes-type": attributes_type, "attributes": attributes} | source,
        MAX_PAYLOAD_BYTES,
    )


def update_payload(
    *,
    timestamp: int,
    content: PayloadContent,
    alert: Alert | None = None,
    stale_at: int | None = None,
    relevance: float | None = None,
    to_channel: bool = False,
) -> bytes:
    """Build the payload that replaces the displayed state.

    A device ignores a payload that is older than the state it displays.
    """
    aps = _activity_aps("update", timestamp, content, alert, stale_at=stale_at, relevance=relevance)
    return _encode_aps(aps, MAX_BROADCAST_BYTES if to_channel else MAX_PAYLOAD_BYTES)


def end_payload(
    *,
    timestamp: int,
    content: PayloadContent,
    dismiss_at: int | None = None,
    alert: Alert | None = None,
    to_channel: bool = False,
) -> bytes:
    """Build the payload that ends a Live Activity with its final state.

    iOS removes it from the Lock Screen at `dismiss_at`: immediately if that is in the past, within
    four hours if it is None.
    """
    aps = _activity_aps("end", timestamp, content, alert)
    if dismiss_at is not None:
        aps["dismissal-date"] = dismiss_at
    return _encode_aps(aps, MAX_BROADCAST_BYTES if to_channel else MAX_PAYLOAD_BYTES)


def notification_payload(
    alert: Alert, *, thread_id: str | None = None, extra: Mapping[str, str] | None = None
) -> bytes:
    """Build a notification, grouped by `thread_id`; `extra` adds fields for the app."""
    truncated = _truncate_alert(alert)
    aps: dict[str, Any] = {"alert": {"title": truncated.title, "body": truncated.body}}
    if truncated.sound is not None:
        aps["sound"] = truncated.sound
    if thread_id is not None:
        aps["thread-id"] = thread_id
    return _encode_within({**(extra or {}), "aps": aps}, MAX_PAYLOAD_BYTES)


def max_content_bytes(kind: PayloadKind) -> int:
    """Return the space for the content in bytes of JSON, with all other fields at their limits."""
    alert = Alert("t" * MAX_ALERT_TITLE_BYTES, "b" * MAX_ALERT_BODY_BYTES)
    aps = _activity_aps(
        "update", _MAX_TIMESTAMP, {}, alert, stale_at=_MAX_TIMESTAMP, relevance=99.99999999999999
    )
    aps["dismissal-date"] = _MAX_TIMESTAMP
    if kind == "start":
        filled = {"a": "a" * (MAX_ATTRIBUTES_BYTES - len(b'{"a":""}'))}
        aps |= {
            "attributes-type": "t" * 64,
            "attributes": filled,
            "input-push-channel": "c" * MAX_CHANNEL_ID_BYTES,
        }
    limit = MAX_BROADCAST_BYTES if kind == "broadcast" else MAX_PAYLOAD_BYTES
    return limit - len(_encode({"aps": aps})) + len(b"{}")


def _activity_aps(
    event: str,
    timestamp: int,
    content: PayloadContent,
    alert: Alert | None,
    *,
    stale_at: int | None = None,
    relevance: float | None = None,
) -> dict[str, Any]:
    aps: dict[str, Any] = {"timestamp": timestamp, "event": event, "content-state": content}
    if alert is not None:
        aps["alert"] = {
            name: text
            for name, text in msgspec.structs.asdict(_truncate_alert(alert)).items()
            if text is not None
        }
    if stale_at is not None:
        aps["stale-date"] = stale_at
    if relevance is not None:
        aps["relevance-score"] = relevance
    return aps


def _truncate_alert(alert: Alert) -> Alert:
    return Alert(
        _truncate(alert.title, MAX_ALERT_TITLE_BYTES),
        _truncate(alert.body, MAX_ALERT_BODY_BYTES),
        alert.sound,
    )


def _truncate(text: str, limit: int) -> str:
    """Truncate `text` to `limit` bytes of JSON, with an ellipsis."""
    text = text.encode("utf-8", "replace").decode()
    if _json_bytes(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if _json_bytes(text[:middle].rstrip() + _ELLIPSIS) <= limit
            else (low, middle - 1)
        )
    return text[:low].rstrip() + _ELLIPSIS


def _json_bytes(text: str) -> int:
    """Return the bytes in JSON without the quotation marks; a control character takes six."""
    return len(msgspec.json.encode(text)) - 2


def _encode_aps(aps: dict[str, Any], limit: int) -> bytes:
    return _encode_within({"aps": aps}, limit)


def _encode_within(payload: Mapping[str, Any], limit: int) -> bytes:
    encoded = _encode(payload)
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"The payload has {len(encoded)} bytes and must have at most {limit}",
            size=len(encoded),
            limit=limit,
        )
    return encoded


def _encode(value: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, OverflowError, ValueError) as error:
        raise Invalid(f"The payload cannot be encoded as JSON: {error}") from error
