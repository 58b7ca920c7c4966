"""PrematchNotification: notifies followers once, within half an hour of the start of a match.

A user who follows the match after the first notification is notified too.
"""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from tally.cricket.model.payloads import Alert, notification_payload
from tally.cricket.model.records import NEUTRAL, Fixture, NotificationKind, epoch_ms
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.match_payloads import match_title
from tally.cricket.service.activities.notifications import FollowerNotifier, MatchNotification
from tally.cricket.service.ports import ReadDisplay
from tally.cricket.service.queries.leagues import LeagueService
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

LEAD_TIME: Final = timedelta(minutes=30)
LOCK_SECONDS: Final = 10.0
# APNs delivers the notification until this long after the start of the match.
EXPIRES_AFTER_START_SECONDS: Final = 900

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrematchNotifier:
    """Notifies the followers of upcoming matches; one instance at a time handles a match."""

    fixtures: FixtureRepository
    leagues: LeagueService
    notifier: FollowerNotifier
    read_display: ReadDisplay
    locks: Locks
    clock: Clock

    async def run(self) -> None:
        """Notify the followers of every match that starts within the lead time."""
        codes = {league.code for league in await self.leagues.active()}
        now = self.clock.now()
        for fixture in await self.fixtures.starting_soon(
            sorted(codes), rfc3339(now), rfc3339(now + LEAD_TIME)
        ):
            if not fixture.is_held:
                await self._notify_locked(fixture)

    async def _notify_locked(self, fixture: Fixture) -> None:
        try:
            count = await run_with_lock(
                self.locks,
                self.clock,
                f"prematch:{fixture.match_id}",
                LOCK_SECONDS,
                partial(self.notify, fixture),
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "Prematch notification was taken over by another instance",
                action="prematch_lock_lost",
                match=fixture.match_id,
            )
            return
        except Exception:  # noqa: BLE001  (the other matches are notified all the same)
            _log.exception(
                "Prematch notification failed", action="prematch_failed", match=fixture.match_id
            )
            return
        if count:
            _log.info(
                "Followers notified of the start",
                action="prematch_notified",
                match=fixture.match_id,
                count=count,
            )

    async def notify(self, fixture: Fixture) -> int:
        """Notify all followers who have not been; return how many pushes APNs accepted."""
        starts_at = epoch_ms(fixture.start_time)
        minutes = max(1, -(-(starts_at - self.clock.milliseconds()) // 60_000))
        title = match_title(await self.read_display(fixture.match_id, NEUTRAL))
        alert = Alert(title, f"Starts in {minutes} minute{'s' if minutes > 1 else ''}")
        payload = notification_payload(
            alert, thread_id=f"match-{fixture.match_id}", extra={"matchId": fixture.match_id}
        )
        expiration = starts_at // 1000 + EXPIRES_AFTER_START_SECONDS
        return await self.notifier.notify(
            MatchNotification(fixture.match_id, NotificationKind.PREMATCH, payload, expiration)
        )
