"""Rules for starting Live Activities.

A start counts as unconfirmed until the device reports the activity. It may still be in delivery, so
it expires before the next one is due: five minutes later. A token that APNs rejects means that the
device displays nothing, so the wait after it is shorter than an interval of the orchestrator. A
device gets at most three of these restarts in an hour.
"""

from collections.abc import Collection, Sequence
from typing import Final

from tally.cricket.model.records import ActivityStatus, EndReason, LiveActivity

RESTART_AFTER_MS: Final = 300_000
REJECTED_BACKOFF_MS: Final = 20_000
MAX_RESTARTS: Final = 3
RESTART_WINDOW_MS: Final = 3_600_000
# iOS ends a Live Activity after eight hours. APNs reports that for a token, not for a channel.
MAX_ACTIVE_MS: Final = 8 * 3_600_000
# While a match is live, an activity that ended for these reasons may be started again.
RESTARTABLE_REASONS: Final = frozenset({EndReason.TOKEN_INVALID, EndReason.MATCH_END})
# A new follow starts the activity again, regardless of why it ended.
ANY_REASON: Final = frozenset(EndReason)


def is_start_due(
    activity: LiveActivity | None, now: int, restartable: Collection[EndReason]
) -> bool:
    """Whether to send a start now; `restartable` lists the end reasons to restart after."""
    if activity is None:
        return True
    if activity.status is ActivityStatus.ACTIVE:
        return activity.channel_id is not None and _has_passed(activity, MAX_ACTIVE_MS, now)
    if activity.status is ActivityStatus.PENDING:
        return _has_passed(activity, RESTART_AFTER_MS, now)
    return activity.end_reason in restartable and (
        activity.end_reason is not EndReason.TOKEN_INVALID
        or _has_passed(activity, REJECTED_BACKOFF_MS, now)
    )


def is_restart(activity: LiveActivity | None) -> bool:
    """Whether a start replaces one that its device did not confirm, or whose token is invalid."""
    return (
        activity is not None
        and activity.started_at is not None
        and (
            activity.status is ActivityStatus.PENDING
            or activity.end_reason is EndReason.TOKEN_INVALID
        )
    )


def next_restarts(restarts: Sequence[int], now: int) -> tuple[int, ...] | None:
    """Return the times of a device's recent restarts with a new one; None if it has too many."""
    recent = tuple(time for time in restarts if time + RESTART_WINDOW_MS > now)
    return None if len(recent) >= MAX_RESTARTS else (*recent, now)


def is_end_undelivered(activity: LiveActivity) -> bool:
    """Whether the activity has ended and its device has not received the end."""
    return activity.status is ActivityStatus.ENDED and activity.update_token is not None


def _has_passed(activity: LiveActivity, milliseconds: int, now: int) -> bool:
    return activity.started_at is None or activity.started_at + milliseconds <= now
