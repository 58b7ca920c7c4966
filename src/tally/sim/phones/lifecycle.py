"""LifecycleManager: starts, adopts, restores and ends Live Activities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.errors import Forbidden
from tally.kit.clock import Clock
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.tokens import TokenManager

MAX_SILENCE_SECONDS: Final = 30 * 60


@dataclass(slots=True)
class LifecycleManager:
    """Keeps at most one activity per match: the newest, whose token the server has."""

    activity_kit: ActivityKit
    tokens: TokenManager
    clock: Clock

    def find(self, match_id: str) -> PhoneActivity | None:
        running = [
            activity for activity in self.activity_kit.running() if activity.match_id == match_id
        ]
        return running[-1] if running else None

    async def start(self, match_id: str, team_id: str | None, content: Mapping[str, Any]) -> bool:
        """Start an activity unless one is running; False without permission."""
        if self.find(match_id) is not None:
            return True
        try:
            attributes = {"matchId": match_id, "teamId": team_id}
            await self.activity_kit.request(
                attributes, content, int(content.get("timestamp", self.clock.seconds()))
            )
        except Forbidden:
            return False
        return True

    async def adopt(self, activity: PhoneActivity) -> None:
        """Adopt a push-started activity; ends older ones of the same match."""
        for older in self.activity_kit.running():
            if older.match_id == activity.match_id and older is not activity:
                await self.activity_kit.end(older)

    async def restore(self, followed: Mapping[str, str | None]) -> None:
        """At launch: register changed tokens and end activities of matches no longer followed.

        Reports the followed ones that iOS has ended.
        """
        await self.activity_kit.apply_time_limits()
        for activity in self.activity_kit.running():
            if activity.match_id not in followed or not await self.tokens.register(
                activity, followed[activity.match_id]
            ):
                await self.activity_kit.end(activity)
        for match_id in self.tokens.registered():
            if match_id in followed:
                await self.tokens.report_missing(match_id)
            elif self.find(match_id) is None:
                self.tokens.forget(match_id)

    async def end(self, match_id: str) -> None:
        for activity in self.activity_kit.running():
            if activity.match_id == match_id:
                await self.activity_kit.end(activity)

    async def end_stale(self) -> int:
        """End activities without an update for 30 minutes; returns how many."""
        await self.activity_kit.apply_time_limits()
        now = self.clock.seconds()
        stale = [
            activity
            for activity in self.activity_kit.running()
            if now - activity.updated_at >= MAX_SILENCE_SECONDS
        ]
        for activity in stale:
            await self.activity_kit.end(activity)
        return len(stale)
