"""FollowManager: what the person follows, known at once after a launch; and the bell that shows it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tally.errors import RateLimited, TallyError, Unavailable
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.cricket_client import CricketClient
from tally.sim.phones.lifecycle import LifecycleManager
from tally.sim.phones.tokens import TokenManager, UserDefaults

_FOLLOWED: Final = "followedMatches"
_UNTOLD: Final = "untold"
_UNFOLLOW: Final = "unfollow"
_DISMISSED: Final = "dismissed"


class Bell(Enum):
    """The icon beside a match."""

    OUTLINE = "not following"
    FILLED = "following"
    WARNING = "following, Live Activities are off"
    LOADING = "pending"


@dataclass(slots=True)
class FollowManager:
    """The person's wishes are kept on the phone first; what the server could not be told is told at the next launch."""

    api: CricketClient
    kit: ActivityKit
    lifecycle: LifecycleManager
    tokens: TokenManager
    defaults: UserDefaults
    device_id: str
    pending: set[str] = field(default_factory=set)

    @property
    def followed(self) -> dict[str, str | None]:
        """The matches, each with the side that is taken, if one is."""
        return {
            match_id: team_id or None
            for match_id, team_id in self.defaults.texts(_FOLLOWED).items()
        }

    def bell(self, match_id: str) -> Bell:
        if match_id in self.pending:
            return Bell.LOADING
        if match_id not in self.followed:
            return Bell.OUTLINE
        return Bell.FILLED if self.kit.is_allowed else Bell.WARNING

    async def follow(self, match_id: str, team_id: str | None = None) -> bool:
        """Whether it worked.

        A live match is shown by a push, or by the app itself on a phone that no push can start one
        on.
        """
        self.pending.add(match_id)
        try:
            self.defaults.remove(_UNTOLD, match_id)
            display = await self.api.follow(match_id, team_id)
        except TallyError:
            return False
        finally:
            self.pending.discard(match_id)
        self.defaults.set(_FOLLOWED, match_id, team_id or "")
        if display is not None and self.kit.start_token is None:
            await self.lifecycle.start(match_id, team_id, display)
        return True

    async def unfollow(self, match_id: str) -> None:
        """At once on this phone; the server is told now, or when it can be."""
        self.pending.add(match_id)
        try:
            await self._give_up(match_id, _UNFOLLOW)
            await self.lifecycle.end(match_id)
            await self._tell(match_id, _UNFOLLOW)
        finally:
            self.pending.discard(match_id)

    async def dismissed(self, activity: PhoneActivity) -> None:
        """The person swiped the activity away: that is no wish for more of this match."""
        await self._give_up(activity.match_id, _DISMISSED)
        await self._tell(activity.match_id, _DISMISSED)

    async def tell_untold(self) -> None:
        for match_id, what in self.defaults.texts(_UNTOLD).items():
            await self._tell(match_id, what)

    async def refresh(self) -> None:
        """What the server knows, from all of the person's devices, but for what it has not been told yet."""
        try:
            known = await self.api.follows()
        except TallyError:
            return
        untold = self.defaults.texts(_UNTOLD)
        self.defaults.keep(
            _FOLLOWED, {match: team or "" for match, team in known.items() if match not in untold}
        )

    async def _give_up(self, match_id: str, what: str) -> None:
        self.defaults.remove(_FOLLOWED, match_id)
        self.defaults.set(_UNTOLD, match_id, what)
        self.tokens.forget(match_id)

    async def _tell(self, match_id: str, what: str) -> None:
        try:
            if what == _DISMISSED:
                await self.api.tell_dismissed(match_id, self.device_id)
            else:
                await self.api.unfollow(match_id)
        except (Unavailable, RateLimited):
            return  # it stays among the untold
        except TallyError:
            pass  # the server knows of no such follow, which is what was wanted
        self.defaults.remove(_UNTOLD, match_id)
