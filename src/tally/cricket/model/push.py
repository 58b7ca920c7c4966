"""Push requests to devices, their results, and broadcast channels."""

from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

PushType: TypeAlias = Literal["liveactivity", "alert"]
Priority: TypeAlias = Literal[5, 10]

# Reasons of results that no response of APNs stands behind.
NOT_CONFIGURED: Final = "NotConfigured"
NO_ANSWER: Final = "NoAnswer"


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """One payload for one token.

    It has one field per APNs request header, and `reference`. Thousands of pushes share the same
    `payload` object, which is never copied.
    """

    token: str
    payload: bytes
    push_type: PushType = "liveactivity"
    # 10: deliver immediately; an alert lights the screen. 5: deliver when it suits the battery.
    priority: Priority = 10
    # Epoch seconds until which APNs retries an offline device; 0: try once.
    expiration: int = 0
    # The device merges alerts with the same id.
    collapse_id: str | None = None
    # Identical in every attempt and echoed by APNs, which generates one if it is missing.
    apns_id: str | None = None
    # False: an attempt without a response is not repeated, because APNs may have accepted it.
    is_repeatable: bool = True
    # A newer push to the same token supersedes this one while it waits for its next attempt.
    is_replaceable: bool = False
    # Opaque to the gateway, which returns it with the result.
    reference: object = None


class PushOutcome(Enum):
    """What a sender does next depends only on this."""

    # APNs accepted the push.
    DELIVERED = "delivered"
    # The token does not exist, or no longer exists: delete it.
    TOKEN_INVALID = "token_invalid"  # noqa: S105  (an outcome, not a secret)
    # Every attempt failed; a later one may succeed.
    RETRY = "retry"
    # No attempt can succeed: the payload, the topic or the settings are wrong.
    REJECTED = "rejected"
    # Dropped in favour of a newer push to the same token.
    SUPERSEDED = "superseded"


class PushResult(msgspec.Struct, frozen=True):
    """The result of one push.

    `status` is 0 if there was no response. `reason` is APNs' reason, `NOT_CONFIGURED` or
    `NO_ANSWER`, with which APNs may have accepted the push.
    """

    outcome: PushOutcome
    status: int = 0
    reason: str = ""
    apns_id: str | None = None
    # Seconds to wait before a RETRY can succeed.
    retry_after: float = 0.0
    # Only with status 410: epoch milliseconds at which the token became invalid. A token that was
    # registered later is valid.
    invalid_since_ms: int | None = None
    attempts: int = 1

    @property
    def is_delivered(self) -> bool:
        return self.outcome is PushOutcome.DELIVERED


class BroadcastChannel(msgspec.Struct, frozen=True):
    """A broadcast channel; with `stores_latest`, a device that reconnects gets the latest push."""

    channel_id: str
    stores_latest: bool
