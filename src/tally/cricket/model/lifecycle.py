"""Rules for starting Live Activities: immediately at first, then with exponential back-off.

A start without a response from the app may still be in delivery, and a second one would display the
match twice. So the first back-off is a minute and doubles each time. A token that APNs rejects
means that the device displays nothing, so the first back-off after it is shorter than an interval
of the orchestrator.
"""

from collections.abc import Collection
from typing import Final

from tally.cricket.model.records import ActivityStatus, EndReason, LiveActivity

PENDING_BACKOFF_MS: Final = 60_000
REJECTED_BACKOFF_MS: Final = 20_000
MAX_BACKOFF_MS: Final = 1_800_000
# While a match is live, an activity that ended for these reasons may be started again.
RESTARTABLE_REASONS: Final = frozenset({EndReason.TOKEN_INVALID, EndReason.MATCH_END})
# A new follow starts the activity again, regardless of why it ended.
ANY_REASON: Final = frozenset(EndReason)


def start_backoff_ms(starts: int, *, is_rejected: bool = False) -> int:
    """Return the milliseconds to wait after a number of consecutive starts."""
    initial = REJECTED_BACKOFF_MS if is_rejected else PENDING_BACKOFF_MS
    return min(initial << min(max(starts - 1, 0), 16), MAX_BACKOFF_MS)


def consecutive_starts(activity: LiveActivity | None, now: int) -> int:
    """Return the number of recent starts; old ones do not count."""
    if (
        activity is None
        or activity.started_at is None
        or activity.started_at + MAX_BACKOFF_MS < now
    ):
        return 0
    return activity.starts


def is_start_due(
    activity: LiveActivity | None, now: int, restartable: Collection[EndReason]
) -> bool:
    """Whether to send a start now; `restartable` lists the end reasons to restart after."""
    if activity is None:
        return True
    if activity.status is ActivityStatus.ACTIVE:
        return False
    is_rejected = activity.end_reason is EndReason.TOKEN_INVALID
    if activity.status is ActivityStatus.ENDED and activity.end_reason not in restartable:
        return False
    if activity.started_at is None or (activity.status is ActivityStatus.ENDED and not is_rejected):
        return True
    return (
        activity.started_at
        + start_backoff_ms(consecutive_starts(activity, now), is_rejected=is_rejected)
        <= now
    )


def is_end_undelivered(activity: LiveActivity) -> bool:
    """Whether the activity has ended and its device has not received the end."""
    return activity.status is ActivityStatus.ENDED and activity.update_token is not None
