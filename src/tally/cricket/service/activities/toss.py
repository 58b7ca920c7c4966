"""TossDetection: when a poll first says who won the toss, everybody who follows the match is told, once.

The fixture notes when all have been told, so that later polls cost nothing; each person is noted on
their own, so that neither a crash nor another instance tells anybody twice.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from tally.cricket.model.feed import MatchFeed
from tally.cricket.model.laws import balls_in
from tally.cricket.model.payloads import Alert, notification_payload
from tally.cricket.model.records import NotificationKind
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.alerts import Alerts, Message
from tally.kit import logs
from tally.kit.clock import Clock
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock
from tally.kit.ttl_cache import TTLCache

LOCK_SECONDS: Final = 10.0
KEPT_SECONDS: Final = 1_800
TOLD_SECONDS: Final = 86_400.0
MAX_TOLD: Final = 1_000
# With ten overs gone, nobody wants to hear of the toss any more.
MAX_BALLS: Final = 60

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TossAnnouncer:
    """`told` remembers which matches need not be looked up again."""

    fixtures: FixtureRepository
    alerts: Alerts
    locks: Locks
    clock: Clock
    told: TTLCache[str, bool]

    async def check(self, feed: MatchFeed) -> None:
        """Tell of the toss if this poll has it, and it has not been told."""
        if feed.toss is None or self.told.get(feed.match_id) is not None:
            return
        try:
            await run_with_lock(
                self.locks,
                self.clock,
                f"toss:{feed.match_id}",
                LOCK_SECONDS,
                partial(self._tell, feed),
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "Telling of a toss was left to another instance", action="toss", match=feed.match_id
            )

    async def _tell(self, feed: MatchFeed) -> None:
        fixture = await self.fixtures.get(feed.match_id)
        if fixture is None:
            return
        if fixture.toss_notified_at is None:
            if not is_long_ago(feed):
                await self._alert(feed)
            await self.fixtures.update(feed.match_id, toss_notified_at=self.clock.milliseconds())
        self.told.put(feed.match_id, True)

    async def _alert(self, feed: MatchFeed) -> None:
        words = sentence_of(feed)
        title = " v ".join(side.name for side in feed.teams)
        payload = notification_payload(
            Alert(title, words),
            thread_id=f"match-{feed.match_id}",
            extra={"matchId": feed.match_id},
        )
        expiration = self.clock.seconds() + KEPT_SECONDS
        taken = await self.alerts.tell(
            Message(feed.match_id, NotificationKind.TOSS, payload, expiration)
        )
        _log.info(
            "Followers were told of the toss", action="toss", match=feed.match_id, count=taken
        )


def sentence_of(feed: MatchFeed) -> str:
    """`India won the toss and chose to bat`; where it is not known what they chose, only who won."""
    if feed.toss is None:
        return ""
    chose = {"batting": "chose to bat", "bowling": "chose to bowl"}.get(feed.toss.elected, "")
    side = feed.side(feed.toss.team_id)
    if side is None or not side.name:
        return f"The toss was won by the side that {chose}" if chose else "The toss has been made"
    return f"{side.name} won the toss and {chose}" if chose else f"{side.name} won the toss"


def is_long_ago(feed: MatchFeed) -> bool:
    """Whether so much has been played that the toss is no news."""
    return len(feed.innings) > 1 or any(
        balls_in(innings.overs) >= MAX_BALLS for innings in feed.innings
    )
