"""LifecycleManager: starts activities, takes over those that a push has started, finds them again at launch, ends silent ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tally.errors import Forbidden
from tally.kit.clock import Clock
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.tokens import TokenManager

SILENT_SECONDS: Final = 30 * 60


@dataclass(slots=True)
class LifecycleManager:
    """At most one activity for a match: where there are two, the newer one stays, since the server knows its token."""

    kit: ActivityKit
    tokens: TokenManager
    clock: Clock

    def of(self, match_id: str) -> PhoneActivity | None:
        running = [activity for activity in self.kit.running() if activity.match_id == match_id]
        return running[-1] if running else None

    async def start(self, match_id: str, team_id: str | None, content: Mapping[str, Any]) -> bool:
        """Start one from the app; false without permission. One that is there already will do."""
        if self.of(match_id) is not None:
            return True
        try:
            attributes = {"matchId": match_id, "teamId": team_id}
            await self.kit.request(
                attributes, content, int(content.get("timestamp", self.clock.seconds()))
            )
        except Forbidden:
            return False
        return True

    async def adopt(self, activity: PhoneActivity) -> None:
        """Take over an activity that a push has started, in place of an older one for the same match."""
        for older in self.kit.running():
            if older.match_id == activity.match_id and older is not activity:
                await self.kit.end(older)

    async def restore(self, followed: Mapping[str, str | None]) -> None:
        """At launch: go on with what still runs, hand in tokens that changed meanwhile, end what nobody follows."""
        await self.kit.pass_time()
        for activity in self.kit.running():
            if activity.match_id not in followed or not await self.tokens.hand_in(
                activity, followed[activity.match_id]
            ):
                await self.kit.end(activity)

    async def end(self, match_id: str) -> None:
        for activity in self.kit.running():
            if activity.match_id == match_id:
                await self.kit.end(activity)

    async def end_silent(self) -> int:
        """End what has heard nothing for half an hour: an old score is worse than none.

        How many there were.
        """
        await self.kit.pass_time()
        now = self.clock.seconds()
        silent = [
            activity for activity in self.kit.running() if now - activity.heard_at >= SILENT_SECONDS
        ]
        for activity in silent:
            await self.kit.end(activity)
        return len(silent)
