"""PrematchNotification: whoever follows a match that starts within half an hour is told so, once, also if they follow late."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.cricket.model.payloads import Alert, notification_payload
from tally.cricket.model.records import Fixture, NotificationKind, epoch_ms
from tally.cricket.repository.fixtures import FixtureRepository
from tally.cricket.service.activities.alerts import Alerts, Message
from tally.cricket.service.activities.match_payloads import title_of
from tally.cricket.service.ports import Show
from tally.cricket.service.queries.leagues import LeagueService
from tally.kit import logs
from tally.kit.clock import Clock, rfc3339
from tally.kit.locks import LockedElsewhere, LockLost, Locks, run_with_lock

AHEAD: Final = timedelta(minutes=30)
LOCK_SECONDS: Final = 10.0

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrematchNotifier:
    """Each match is told of by one instance at a time."""

    fixtures: FixtureRepository
    leagues: LeagueService
    alerts: Alerts
    show: Show
    locks: Locks
    clock: Clock

    async def run(self) -> None:
        """Tell of every match that is about to start."""
        codes = {league.code for league in await self.leagues.active()}
        now = self.clock.now()
        for fixture in await self.fixtures.starting_soon(
            sorted(codes), rfc3339(now), rfc3339(now + AHEAD)
        ):
            await self._alone(fixture)

    async def _alone(self, fixture: Fixture) -> None:
        async def tell() -> int:
            return await self.tell(fixture)

        try:
            taken = await run_with_lock(
                self.locks, self.clock, f"prematch:{fixture.match_id}", LOCK_SECONDS, tell
            )
        except LockedElsewhere:
            return
        except LockLost:
            _log.warning(
                "Telling of a start was left to another instance",
                action="prematch",
                match=fixture.match_id,
            )
            return
        except Exception:  # noqa: BLE001  (the followers of the other matches want to be told, too)
            _log.exception(
                "A start could not be told of", action="prematch", match=fixture.match_id
            )
            return
        if taken:
            _log.info(
                "Followers were told of a start",
                action="prematch",
                match=fixture.match_id,
                count=taken,
            )

    async def tell(self, fixture: Fixture) -> int:
        """Tell all followers of one match who have not been told; how many notifications were taken."""
        starts_at = epoch_ms(fixture.start_time)
        minutes = max(1, -(-(starts_at - self.clock.milliseconds()) // 60_000))
        title = title_of(await self.show(fixture.match_id, "neutral"))
        alert = Alert(title, f"Starts in {minutes} minute{'s' if minutes > 1 else ''}")
        payload = notification_payload(
            alert, thread_id=f"match-{fixture.match_id}", extra={"matchId": fixture.match_id}
        )
        return await self.alerts.tell(
            Message(fixture.match_id, NotificationKind.PREMATCH, payload, starts_at // 1000 + 900)
        )
