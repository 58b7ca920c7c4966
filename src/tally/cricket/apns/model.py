"""What goes to Apple's push service, and what came of it: pushes, verdicts, channels, and the one table of Apple's reasons."""

from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec

PushType: TypeAlias = Literal["liveactivity", "alert"]
Priority: TypeAlias = Literal[5, 10]

NOT_CONFIGURED: Final = "NotConfigured"
NO_ANSWER: Final = "NoAnswer"


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """One payload for one token.

    Thousands share the same `payload` object, which is never copied.
    """

    token: str
    payload: bytes
    push_type: PushType = "liveactivity"
    # 10: at once, and with an alert it lights the screen. 5: when it suits the battery.
    priority: Priority = 10
    # Epoch seconds until which Apple keeps trying while the device is away; 0: now or never.
    expiration: int = 0
    # Alerts with the same id are shown as one.
    collapse_id: str | None = None
    # Echoed by Apple, and the same in every try; without one, Apple makes one up.
    apns_id: str | None = None
    # A state of something: if a newer push to the same token comes while this one waits for another
    # try, it is let go.
    is_state: bool = False
    # The caller's own; comes back untouched with the verdict.
    reference: object = None


class Outcome(Enum):
    """What became of a push, in the only words that its sender needs."""

    # Apple has taken it.
    DELIVERED = "delivered"
    # There is no such token, or no longer: forget it.
    TOKEN_INVALID = "token_invalid"  # noqa: S105  (an outcome, not a secret)
    # Not taken, however often it was tried within its patience; the same push may be taken later.
    RETRY = "retry"
    # Will never be taken: a mistake in the payload, the topic or the settings, which somebody has
    # to repair.
    REFUSED = "refused"
    # Let go for a newer state to the same token.
    SUPERSEDED = "superseded"


class Verdict(msgspec.Struct, frozen=True):
    """What became of one push.

    `status` is 0 where no answer came; `reason` is Apple's, or ours where Apple said nothing.
    """

    outcome: Outcome
    status: int = 0
    reason: str = ""
    apns_id: str | None = None
    # Seconds before which a RETRY is no use.
    retry_after: float = 0.0
    # With 410: the moment, in epoch milliseconds, since when Apple knows the token as gone. A token
    # registered later is good.
    invalid_since_ms: int | None = None
    tries: int = 1

    @property
    def is_delivered(self) -> bool:
        return self.outcome is Outcome.DELIVERED


class Channel(msgspec.Struct, frozen=True):
    """A broadcast channel: whoever subscribes gets what is sent to it; `keeps_latest` for those who were away for a moment."""

    channel_id: str
    keeps_latest: bool


# 400s that are about the token or the channel; the other 400s are about the request.
_TOKEN_REASONS: Final = frozenset(
    {
        "BadDeviceToken",
        "DeviceTokenNotForTopic",
        "Unregistered",
        "ExpiredToken",
        "BadChannelId",
        "ChannelNotRegistered",
    }
)
# Answers that may be another one with a token made anew, or after a while.
_PASSING_REASONS: Final = frozenset(
    {"ExpiredProviderToken", "TooManyProviderTokenUpdates", "IdleTimeout"}
)


def outcome_of(status: int, reason: str) -> Outcome:
    """What an answer of Apple's means; what is not known is judged by its status."""
    if 200 <= status < 300:
        return Outcome.DELIVERED
    if reason in _TOKEN_REASONS or status == 410:
        return Outcome.TOKEN_INVALID
    if reason in _PASSING_REASONS or status in {408, 429} or status >= 500:
        return Outcome.RETRY
    return Outcome.REFUSED
