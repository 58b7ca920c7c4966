"""The bodies of pushes, as ActivityKit and the notification centre of a device read them.

Pure: no clock, no I/O.

`content` is the display state, fitted beforehand: `room_for_content(kind)` says how many bytes it
may take as JSON, whatever the rest of the payload holds. One that does not fit all the same is a
`PayloadTooLarge`, never a broken payload on a device. Texts of alerts are shortened to their share
of the room, since a person would not see more of them anyway.

    payload = update(timestamp=clock.seconds(), content=state, alert=Alert("WICKET!", "Smith c Root b Archer 31 (40)"))
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tally.errors import Invalid, TooLarge

# Bytes, by Apple's rules.
MAX_PUSHED: Final = 4096
MAX_BROADCAST: Final = 5120
# Bytes of an alert's title and of its body, and of the attributes at a start, as JSON.
MAX_TITLE: Final = 128
MAX_BODY: Final = 320
MAX_ATTRIBUTES: Final = 512
MAX_CHANNEL_ID: Final = 64
# The largest numbers that will be seen, so that the room does not shrink with time.
_LONG_AFTER: Final = 9_999_999_999
_ELLIPSIS: Final = "…"

Kind: TypeAlias = Literal["start", "update", "end", "broadcast"]
Content: TypeAlias = Mapping[str, Any]


class PayloadTooLarge(TooLarge):
    """The payload is larger than Apple takes; `size` and `limit` in the details, in bytes."""

    default_code = "payload_too_large"


class Alert(msgspec.Struct, frozen=True):
    """What lights the screen: two lines, and a sound."""

    title: str
    body: str
    sound: str | None = "default"


def start(
    *,
    timestamp: int,
    content: Content,
    attributes_type: str,
    attributes: Content,
    alert: Alert,
    channel_id: str | None = None,
    stale_at: int | None = None,
    relevance: float | None = None,
) -> bytes:
    """Create a Live Activity on a device that has handed in a push-to-start token.

    The activity takes its updates from the channel where one is given (iOS 18); otherwise it is
    asked for a token of its own.
    """
    taken = len(_encoded(attributes))
    if taken > MAX_ATTRIBUTES:
        raise PayloadTooLarge(
            f"The attributes have {taken} bytes, {MAX_ATTRIBUTES} at most",
            size=taken,
            limit=MAX_ATTRIBUTES,
        )
    source = (
        {"input-push-channel": channel_id} if channel_id is not None else {"input-push-token": 1}
    )
    aps = _activity("start", timestamp, content, alert, stale_at=stale_at, relevance=relevance)
    return _fitted(
        aps | {"attributes-type": attributes_type, "attributes": attributes} | source, MAX_PUSHED
    )


def update(
    *,
    timestamp: int,
    content: Content,
    alert: Alert | None = None,
    stale_at: int | None = None,
    relevance: float | None = None,
    to_channel: bool = False,
) -> bytes:
    """Show a new state.

    A device ignores one whose timestamp is older than that of the state it shows.
    """
    aps = _activity("update", timestamp, content, alert, stale_at=stale_at, relevance=relevance)
    return _fitted(aps, MAX_BROADCAST if to_channel else MAX_PUSHED)


def end(
    *,
    timestamp: int,
    content: Content,
    dismiss_at: int | None = None,
    alert: Alert | None = None,
    to_channel: bool = False,
) -> bytes:
    """Show the final state, and take it away at `dismiss_at`: a past moment is at once, none is up to four hours later."""
    aps = _activity("end", timestamp, content, alert)
    if dismiss_at is not None:
        aps["dismissal-date"] = dismiss_at
    return _fitted(aps, MAX_BROADCAST if to_channel else MAX_PUSHED)


def notification(
    alert: Alert, *, thread_id: str | None = None, extra: Mapping[str, str] | None = None
) -> bytes:
    """A plain notification, grouped by `thread_id`; `extra` is for the app, beside `aps`."""
    shown = _shortened(alert)
    aps: dict[str, Any] = {"alert": {"title": shown.title, "body": shown.body}}
    if shown.sound is not None:
        aps["sound"] = shown.sound
    if thread_id is not None:
        aps["thread-id"] = thread_id
    return _sized({**(extra or {}), "aps": aps}, MAX_PUSHED)


def room_for_content(kind: Kind) -> int:
    """How many bytes of JSON the content of such a payload may take, with an alert and attributes as large as they may be."""
    alert = Alert("t" * MAX_TITLE, "b" * MAX_BODY)
    aps = _activity(
        "update", _LONG_AFTER, {}, alert, stale_at=_LONG_AFTER, relevance=99.99999999999999
    )
    aps["dismissal-date"] = _LONG_AFTER
    if kind == "start":
        filled = {"a": "a" * (MAX_ATTRIBUTES - len(b'{"a":""}'))}
        aps |= {
            "attributes-type": "t" * 64,
            "attributes": filled,
            "input-push-channel": "c" * MAX_CHANNEL_ID,
        }
    limit = MAX_BROADCAST if kind == "broadcast" else MAX_PUSHED
    return limit - len(_encoded({"aps": aps})) + len(b"{}")


def size_of_content(content: Content) -> int:
    """How many bytes a display state takes in a payload."""
    return len(_encoded(content))


def _activity(
    event: str,
    timestamp: int,
    content: Content,
    alert: Alert | None,
    *,
    stale_at: int | None = None,
    relevance: float | None = None,
) -> dict[str, Any]:
    aps: dict[str, Any] = {"timestamp": timestamp, "event": event, "content-state": content}
    if alert is not None:
        aps["alert"] = {
            name: text
            for name, text in msgspec.structs.asdict(_shortened(alert)).items()
            if text is not None
        }
    if stale_at is not None:
        aps["stale-date"] = stale_at
    if relevance is not None:
        aps["relevance-score"] = relevance
    return aps


def _shortened(alert: Alert) -> Alert:
    return Alert(_cut(alert.title, MAX_TITLE), _cut(alert.body, MAX_BODY), alert.sound)


def _cut(text: str, most: int) -> str:
    """As much of `text` as takes `most` bytes in JSON, with an ellipsis where something is missing."""
    text = text.encode("utf-8", "replace").decode()
    if _length(text) <= most:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high)
            if _length(text[:middle].rstrip() + _ELLIPSIS) <= most
            else (low, middle - 1)
        )
    return text[:low].rstrip() + _ELLIPSIS


def _length(text: str) -> int:
    """In JSON, without the quotation marks: control characters take six bytes there."""
    return len(msgspec.json.encode(text)) - 2


def _fitted(aps: dict[str, Any], limit: int) -> bytes:
    return _sized({"aps": aps}, limit)


def _sized(payload: Mapping[str, Any], limit: int) -> bytes:
    encoded = _encoded(payload)
    if len(encoded) > limit:
        raise PayloadTooLarge(
            f"The payload has {len(encoded)} bytes, {limit} at most", size=len(encoded), limit=limit
        )
    return encoded


def _encoded(value: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, OverflowError, ValueError) as error:
        raise Invalid(f"The payload cannot be written as JSON: {error}") from error
