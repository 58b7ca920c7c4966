"""TossDetection: notifies the followers of a match once when a poll first reports the toss.

The fixture records that all followers have been notified, so that later polls cost nothing. A
record per follower prevents a second notification after a crash or by another instance.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.laws import balls_in
from tally.cricket.model.payloads import Alert, notification_payload
from tally.cricket.model.records import NotificationKind
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.notifications import FollowerNotifier, MatchNotification
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock
from tally.kit.ttl_cache import TTLCache

LOCK_SECONDS: Final = 10.0
TOSS_EXPIRATION_SECONDS: Final = 1_800
NOTIFIED_CACHE_SECONDS: Final = 86_400.0
MAX_NOTIFIED_CACHED: Final = 1_000
# After ten overs the toss is no longer news.
MAX_BALLS: Final = 60

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TossNotifier:
    """Notifies followers of the toss; `notified` caches the matches that are done."""

    fixtures: FixtureRepository
    notifier: FollowerNotifier
    locks: Locks
    clock: Clock
    notified: TTLCache[str, bool]

    async def check(self, feed: MatchFeed) -> None:
        """Notify the followers if this poll reports the toss and they have not been notified."""
        if feed.toss is None or self.notified.get(feed.match_id) is not None:
            return
        try:
            await run_with_lock(
                self.locks,
                self.clock,
                f"toss:{feed.match_id}",
                LOCK_SECONDS,
                partial(self._notify_once, feed),
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "Toss notification was taken over by another instance",
                action="toss_lock_lost",
                match=feed.match_id,
            )

    async def _notify_once(self, feed: MatchFeed) -> None:
        fixture = await self.fixtures.get(feed.match_id)
        if fixture is None or fixture.is_held:
            return
        if fixture.toss_notified_at is None:
            if not is_old_news(feed):
                await self._notify(feed)
            await self.fixtures.update(feed.match_id, toss_notified_at=self.clock.milliseconds())
        self.notified.put(feed.match_id, True)

    async def _notify(self, feed: MatchFeed) -> None:
        title = " v ".join(side.name for side in feed.teams)
        payload = notification_payload(
            Alert(title, toss_text(feed)),
            thread_id=f"match-{feed.match_id}",
            extra={"matchId": feed.match_id},
        )
        expiration = self.clock.seconds() + TOSS_EXPIRATION_SECONDS
        count = await self.notifier.notify(
            MatchNotification(feed.match_id, NotificationKind.TOSS, payload, expiration)
        )
        _log.info(
            "Followers notified of the toss",
            action="toss_notified",
            match=feed.match_id,
            count=count,
        )


def toss_text(feed: MatchFeed) -> str:
    """Describe the toss as far as it is known: `India won the toss and chose to bat`."""
    if feed.toss is None:
        return ""
    chose = {"batting": "chose to bat", "bowling": "chose to bowl"}.get(feed.toss.elected, "")
    side = feed.side(feed.toss.team_id)
    if side is None or not side.name:
        return f"The toss was won by the side that {chose}" if chose else "The toss has been made"
    return f"{side.name} won the toss and {chose}" if chose else f"{side.name} won the toss"


def is_old_news(feed: MatchFeed) -> bool:
    """Return whether the match has progressed too far for a notification of the toss."""
    return len(feed.innings) > 1 or any(
        balls_in(innings.overs) >= MAX_BALLS for innings in feed.innings
    )
