"""Payloads have the fields that ActivityKit requires and never exceed the limits of APNs."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.cricket.model.payloads import (
    MAX_ALERT_BODY_BYTES,
    MAX_ALERT_TITLE_BYTES,
    MAX_ATTRIBUTES_BYTES,
    MAX_BROADCAST_BYTES,
    MAX_PAYLOAD_BYTES,
    Alert,
    PayloadTooLarge,
    end_payload,
    max_content_bytes,
    notification_payload,
    start_payload,
    update_payload,
)
from tally.errors import Invalid

ALERT = Alert("WICKET!", "Root c Smith b Starc 31")
TEXTS = st.text(max_size=2000)


def aps(payload: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(payload)["aps"]
    return found


def test_a_start_has_attributes_an_alert_and_requests_a_token() -> None:
    """A device creates an activity from these fields alone."""
    payload = start_payload(
        timestamp=100,
        content={"score": "12/1"},
        attributes_type="MatchAttributes",
        attributes={"matchId": "7"},
        alert=ALERT,
        stale_at=200,
        relevance=50.0,
    )
    assert aps(payload) == {
        "timestamp": 100,
        "event": "start",
        "content-state": {"score": "12/1"},
        "attributes-type": "MatchAttributes",
        "attributes": {"matchId": "7"},
        "alert": {"title": "WICKET!", "body": "Root c Smith b Starc 31", "sound": "default"},
        "input-push-token": 1,
        "stale-date": 200,
        "relevance-score": 50.0,
    }


def test_a_start_with_a_channel_subscribes_instead_of_requesting_a_token() -> None:
    payload = start_payload(
        timestamp=1, content={}, attributes_type="M", attributes={}, alert=ALERT, channel_id="abc=="
    )
    assert aps(payload)["input-push-channel"] == "abc=="
    assert "input-push-token" not in aps(payload)


def test_an_update_has_only_the_given_fields() -> None:
    assert aps(update_payload(timestamp=5, content={"a": 1})) == {
        "timestamp": 5,
        "event": "update",
        "content-state": {"a": 1},
    }


def test_an_end_has_its_dismissal_date() -> None:
    assert aps(end_payload(timestamp=5, content={"a": 1}, dismiss_at=9)) == {
        "timestamp": 5,
        "event": "end",
        "content-state": {"a": 1},
        "dismissal-date": 9,
    }
    assert "dismissal-date" not in aps(end_payload(timestamp=5, content={}))


def test_a_notification_has_extra_fields_for_the_app() -> None:
    payload = json.loads(
        notification_payload(
            Alert("Toss", "India bat", None), thread_id="match-7", extra={"matchId": "7"}
        )
    )
    assert payload == {
        "matchId": "7",
        "aps": {"alert": {"title": "Toss", "body": "India bat"}, "thread-id": "match-7"},
    }


@pytest.mark.parametrize(
    ("to_channel", "limit"), [(False, MAX_PAYLOAD_BYTES), (True, MAX_BROADCAST_BYTES)]
)
def test_a_payload_that_is_too_large_is_rejected_with_its_size(
    to_channel: bool, limit: int
) -> None:
    """APNs would respond with 413 for every device."""
    with pytest.raises(PayloadTooLarge, match=f"at most {limit}") as caught:
        update_payload(timestamp=1, content={"text": "x" * limit}, to_channel=to_channel)
    assert caught.value.details["limit"] == limit


def test_attributes_beyond_their_limit_are_rejected() -> None:
    with pytest.raises(PayloadTooLarge, match="attributes"):
        start_payload(
            timestamp=1,
            content={},
            attributes_type="M",
            attributes={"a": "x" * MAX_ATTRIBUTES_BYTES},
            alert=ALERT,
        )


def test_content_that_is_not_json_is_rejected() -> None:
    with pytest.raises(Invalid, match="JSON"):
        update_payload(timestamp=1, content={"text": "\ud800"})


@given(title=TEXTS, body=TEXTS, text=TEXTS)
def test_content_within_its_limit_fits_with_any_alert(title: str, body: str, text: str) -> None:
    """The payload of a display state within the limit is never too large."""
    alert = Alert(title, body)
    for kind in ("start", "update", "end", "broadcast"):
        content = {"text": text, "filled": ""}
        free = max_content_bytes(kind) - len(msgspec.json.encode(content))
        content["filled"] = "x" * free if free > 0 else ""
        content["text"] = text if free >= 0 else ""
        assert len(msgspec.json.encode(content)) <= max_content_bytes(kind)
        payload = {
            "start": lambda c: start_payload(
                timestamp=1_800_000_000,
                content=c,
                attributes_type="MatchAttributes",
                attributes={"a": "x" * (MAX_ATTRIBUTES_BYTES - 8)},
                alert=alert,
                channel_id="x" * 24,
                stale_at=1_800_000_000,
                relevance=33.333333333333336,
            ),
            "update": lambda c: update_payload(
                timestamp=1_800_000_000,
                content=c,
                alert=alert,
                stale_at=1_800_000_000,
                relevance=1 / 3,
            ),
            "end": lambda c: end_payload(
                timestamp=1_800_000_000, content=c, alert=alert, dismiss_at=1_800_000_000
            ),
            "broadcast": lambda c: update_payload(
                timestamp=1_800_000_000, content=c, alert=alert, to_channel=True
            ),
        }[kind](content)
        assert aps(payload)["content-state"] == content
        alert_text = aps(payload)["alert"]
        assert (
            len(json.dumps(alert_text["title"], ensure_ascii=False).encode()) - 2
            <= MAX_ALERT_TITLE_BYTES
        )
        assert (
            len(json.dumps(alert_text["body"], ensure_ascii=False).encode()) - 2
            <= MAX_ALERT_BODY_BYTES
        )


@given(st.text(min_size=1, max_size=40))
def test_short_alerts_are_not_truncated(text: str) -> None:
    alert_text = aps(update_payload(timestamp=1, content={}, alert=Alert("t", text[:50])))["alert"][
        "body"
    ]
    assert alert_text == text[:50]


def test_a_long_text_is_truncated_between_characters_with_an_ellipsis() -> None:
    alert_text = aps(update_payload(timestamp=1, content={}, alert=Alert("é" * 500, "x")))["alert"][
        "title"
    ]
    assert alert_text == "é" * ((MAX_ALERT_TITLE_BYTES - 3) // 2) + "…"
