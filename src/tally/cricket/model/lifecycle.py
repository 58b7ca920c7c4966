"""When a Live Activity may be started: at once where there is none, and after a while that grows where a start came to nothing.

A start that nobody answers may still be on its way, and a second one would show the match twice; so
the wait before the next one is a minute at first, and twice as long each time. A token that Apple
refuses says that nothing is shown any more: that is healed within one round of the orchestrator,
unless it happens over and over.
"""

from collections.abc import Collection
from typing import Final

from tally.cricket.model.records import ActivityStatus, EndReason, LiveActivity

PENDING_BACKOFF_MS: Final = 60_000
REJECTED_BACKOFF_MS: Final = 20_000
MAX_BACKOFF_MS: Final = 1_800_000
# While a match is on, these are no last word: a new start may follow by itself.
RESTARTABLE_REASONS: Final = frozenset({EndReason.TOKEN_INVALID, EndReason.MATCH_END})
# Who follows again wants to see it again, whatever they did before.
ANY_REASON: Final = frozenset(EndReason)


def start_backoff_ms(starts: int, *, is_refused: bool = False) -> int:
    """Milliseconds to wait after so many starts in a row."""
    first = REJECTED_BACKOFF_MS if is_refused else PENDING_BACKOFF_MS
    return min(first << min(max(starts - 1, 0), 16), MAX_BACKOFF_MS)


def consecutive_starts(activity: LiveActivity | None, now: int) -> int:
    """How many starts there were lately; what is long ago does not count."""
    if (
        activity is None
        or activity.started_at is None
        or activity.started_at + MAX_BACKOFF_MS < now
    ):
        return 0
    return activity.starts


def is_start_due(
    activity: LiveActivity | None, now: int, anew_after: Collection[EndReason]
) -> bool:
    """Whether a device that shows nothing, as far as is known, should be sent a start now."""
    if activity is None:
        return True
    if activity.status is ActivityStatus.ACTIVE:
        return False
    is_refused = activity.end_reason is EndReason.TOKEN_INVALID
    if activity.status is ActivityStatus.ENDED and activity.end_reason not in anew_after:
        return False
    if activity.started_at is None or (activity.status is ActivityStatus.ENDED and not is_refused):
        return True
    return (
        activity.started_at
        + start_backoff_ms(consecutive_starts(activity, now), is_refused=is_refused)
        <= now
    )


def is_end_undelivered(activity: LiveActivity) -> bool:
    """Whether it has ended, and its device does not know."""
    return activity.status is ActivityStatus.ENDED and activity.update_token is not None
