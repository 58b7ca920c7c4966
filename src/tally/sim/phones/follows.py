"""FollowManager: the followed matches and the bell icon of each match."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tally.errors import RateLimited, TallyError, Unavailable
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.lifecycle import LifecycleManager
from tally.sim.phones.tokens import TokenManager, UserDefaults

_FOLLOWED: Final = "followedMatches"
_PENDING_REPORTS: Final = "untold"
_UNFOLLOW: Final = "unfollow"
_DISMISSED: Final = "dismissed"


class Bell(Enum):
    """The follow icon next to a match."""

    OUTLINE = "not following"
    FILLED = "following"
    WARNING = "following, Live Activities are off"
    LOADING = "pending"


@dataclass(slots=True)
class FollowManager:
    """Stores changes on the phone first; failed reports to the server repeat at the next launch."""

    api: CricketClient
    activity_kit: ActivityKit
    lifecycle: LifecycleManager
    tokens: TokenManager
    defaults: UserDefaults
    device_id: str
    pending: set[str] = field(default_factory=set)

    @property
    def followed(self) -> dict[str, str | None]:
        """The followed matches with the selected team."""
        return {
            match_id: team_id or None
            for match_id, team_id in self.defaults.values(_FOLLOWED).items()
        }

    def bell(self, match_id: str) -> Bell:
        if match_id in self.pending:
            return Bell.LOADING
        if match_id not in self.followed:
            return Bell.OUTLINE
        return Bell.FILLED if self.activity_kit.is_allowed else Bell.WARNING

    async def follow(self, match_id: str, team_id: str | None = None) -> bool:
        """Follow a match; whether the server accepted it.

        A push starts the activity of a live match; without a push-to-start token the app starts it.
        """
        self.pending.add(match_id)
        try:
            self.defaults.remove(_PENDING_REPORTS, match_id)
            display = await self.api.follow(match_id, team_id)
        except TallyError:
            return False
        finally:
            self.pending.discard(match_id)
        self.defaults.set(_FOLLOWED, match_id, team_id or "")
        if display is not None and self.activity_kit.start_token is None:
            await self.lifecycle.start(match_id, team_id, display)
        return True

    async def unfollow(self, match_id: str) -> None:
        """Unfollow immediately on this phone; report it now or at the next launch."""
        self.pending.add(match_id)
        try:
            await self._remove(match_id, _UNFOLLOW)
            await self.lifecycle.end(match_id)
            await self._report(match_id, _UNFOLLOW)
        finally:
            self.pending.discard(match_id)

    async def on_dismissed(self, activity: PhoneActivity) -> None:
        """Unfollow the match of a dismissed activity."""
        await self._remove(activity.match_id, _DISMISSED)
        await self._report(activity.match_id, _DISMISSED)

    async def send_pending_reports(self) -> None:
        for match_id, report in self.defaults.values(_PENDING_REPORTS).items():
            await self._report(match_id, report)

    async def refresh(self) -> None:
        """Load the follows from the server, except those with pending reports."""
        try:
            follows = await self.api.follows()
        except TallyError:
            return
        pending = self.defaults.values(_PENDING_REPORTS)
        self.defaults.store(
            _FOLLOWED,
            {match: team or "" for match, team in follows.items() if match not in pending},
        )

    async def _remove(self, match_id: str, report: str) -> None:
        self.defaults.remove(_FOLLOWED, match_id)
        self.defaults.set(_PENDING_REPORTS, match_id, report)
        self.tokens.forget(match_id)

    async def _report(self, match_id: str, report: str) -> None:
        try:
            if report == _DISMISSED:
                await self.api.report_dismissed(match_id, self.device_id)
            else:
                await self.api.unfollow(match_id)
        except (Unavailable, RateLimited):
            return  # the report stays pending
        except TallyError:
            pass  # the server has no such follow; nothing is left to do
        self.defaults.remove(_PENDING_REPORTS, match_id)
