"""TokenManager registers push tokens and running activities; UserDefaults persists app data."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tally.errors import Conflict, NotFound, RateLimited, TallyError, Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.cricket_client import CricketClient


class UserDefaults:
    """Persistent key-value data of the app, in memory or in a file."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        if path is not None and path.exists():
            self._values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])

    def values(self, name: str) -> dict[str, str]:
        """A copy of the values stored under a name."""
        return dict(self._values.get(name, {}))

    def store(self, name: str, values: dict[str, str]) -> None:
        self._values[name] = dict(values)
        if self._path is not None:
            draft = self._path.with_suffix(".new")
            draft.write_bytes(msgspec.json.encode(self._values))
            draft.replace(self._path)

    def set(self, name: str, key: str, value: str) -> None:
        self.store(name, self.values(name) | {key: value})

    def remove(self, name: str, key: str) -> None:
        values = self.values(name)
        if values.pop(key, None) is not None:
            self.store(name, values)

    def clear(self) -> None:
        for name in tuple(self._values):
            self.store(name, {})


TOKEN_RETRY_POLICY: Final = RetryPolicy(attempts=5, base=1.0, cap=30, deadline=120)
_REGISTERED: Final = "handedInTokens"
_START: Final = "pushToStart"


@dataclass(slots=True)
class TokenManager:
    """Registers each token once, and each activity on a channel, which has no token.

    What is registered is persisted across launches, so that the app notices at the next launch
    which activities iOS has ended.
    """

    api: CricketClient
    activity_kit: ActivityKit
    defaults: UserDefaults
    clock: Clock
    device_id: str
    retry_policy: RetryPolicy = TOKEN_RETRY_POLICY
    # Tokens that failed to register; retried at the next launch or reconnect.
    unsent: set[str] = field(default_factory=set)

    async def register_start_token(self) -> None:
        token = self.activity_kit.start_token
        if token is not None and self.defaults.values(_REGISTERED).get(_START) != token:
            await self._send(_START, token, None)

    async def register(self, activity: PhoneActivity, team_id: str | None) -> bool:
        """Register a running activity; False if the server already ended it."""
        if activity.token is None and activity.channel is None:
            return True  # iOS has not issued the token yet
        if self.defaults.values(_REGISTERED).get(activity.match_id) == _identity(activity):
            return True
        return await self._send(activity.match_id, _identity(activity), team_id)

    async def report_missing(self, match_id: str) -> None:
        """Report that a registered activity has ended, so that the server starts it again."""
        if match_id not in self.registered() or match_id in self._running():
            return
        try:
            await self.api.report_ended(match_id, self.device_id)
        except (Unavailable, RateLimited):
            return  # it stays registered; the next launch reports it
        except TallyError:
            pass  # the match no longer exists
        self.forget(match_id)

    def registered(self) -> list[str]:
        """The matches with a registered activity."""
        return [name for name in self.defaults.values(_REGISTERED) if name != _START]

    def forget(self, match_id: str) -> None:
        """Forget the token of an ended activity."""
        self.defaults.remove(_REGISTERED, match_id)
        self.unsent.discard(match_id)

    async def _send(self, name: str, token: str, team_id: str | None) -> bool:
        async def send() -> None:
            if name == _START:
                await self.api.register_start_token(token, self.device_id)
            elif (activity := self._running().get(name)) is None or _identity(activity) != token:
                return  # it has ended, or iOS has rotated its token
            elif activity.token is None:
                await self.api.confirm_activity(name, self.device_id)
            else:
                await self.api.register_update_token(name, self.device_id, token, team_id)

        self.unsent.add(name)
        try:
            await self.retry_policy.call(send, self.clock)
        except (Unavailable, RateLimited):
            return True  # it stays unsent
        except (Conflict, NotFound):
            self.unsent.discard(name)
            return False
        self.unsent.discard(name)
        activity = self._running().get(name)
        if name == _START or (activity is not None and _identity(activity) == token):
            self.defaults.set(_REGISTERED, name, token)
        return True

    def _running(self) -> dict[str, PhoneActivity]:
        """The newest running activity of each match."""
        return {activity.match_id: activity for activity in self.activity_kit.running()}


def _identity(activity: PhoneActivity) -> str:
    return activity.token or activity.activity_id
