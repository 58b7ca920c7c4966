"""TokenManager: hands the phone's tokens in to the server, each once, and again only when it has changed or did not arrive."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tally.errors import Conflict, NotFound, RateLimited, Unavailable
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.sim.phones.activitykit import ActivityKit, PhoneActivity
from tally.sim.phones.cricket_client import CricketClient


class UserDefaults:
    """A few values by name, in memory or in a file that is written whole with every change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        if path is not None and path.exists():
            self._values = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])

    def texts(self, name: str) -> dict[str, str]:
        """A copy of the texts kept under a name; none if there are none."""
        return dict(self._values.get(name, {}))

    def keep(self, name: str, texts: dict[str, str]) -> None:
        self._values[name] = dict(texts)
        if self._path is not None:
            draft = self._path.with_suffix(".new")
            draft.write_bytes(msgspec.json.encode(self._values))
            draft.replace(self._path)

    def set(self, name: str, key: str, text: str) -> None:
        self.keep(name, self.texts(name) | {key: text})

    def remove(self, name: str, key: str) -> None:
        texts = self.texts(name)
        if texts.pop(key, None) is not None:
            self.keep(name, texts)


TOKEN_RETRY_POLICY: Final = RetryPolicy(attempts=5, base=1.0, cap=30, deadline=120)
_HANDED_IN: Final = "handedInTokens"
_START: Final = "pushToStart"


@dataclass(slots=True)
class TokenManager:
    """What was handed in last is remembered on the phone, so that a launch does not hand it in again."""

    api: CricketClient
    kit: ActivityKit
    defaults: UserDefaults
    clock: Clock
    device_id: str
    retry_policy: RetryPolicy = TOKEN_RETRY_POLICY
    # Those that did not arrive: tried again at the next launch, or when the network is back.
    unsent: set[str] = field(default_factory=set)

    async def hand_in_start_token(self) -> None:
        token = self.kit.start_token
        if token is not None and self.defaults.texts(_HANDED_IN).get(_START) != token:
            await self._hand_in(_START, token, None)

    async def hand_in(self, activity: PhoneActivity, team_id: str | None) -> bool:
        """Whether the server wants this activity: it may have ended it already."""
        if (
            activity.token is None
            or self.defaults.texts(_HANDED_IN).get(activity.match_id) == activity.token
        ):
            return True
        return await self._hand_in(activity.match_id, activity.token, team_id)

    def forget(self, match_id: str) -> None:
        """The activity is over: the next one has another token."""
        self.defaults.remove(_HANDED_IN, match_id)
        self.unsent.discard(match_id)

    async def _hand_in(self, name: str, token: str, team_id: str | None) -> bool:
        async def send() -> None:
            if name == _START:
                await self.api.hand_in_start_token(token, self.device_id)
            elif self._is_current(name, token):
                await self.api.hand_in_update_token(name, self.device_id, token, team_id)

        self.unsent.add(name)
        try:
            await self.retry_policy.call(send, self.clock)
        except (Unavailable, RateLimited):
            return True  # it stays among the unsent
        except (Conflict, NotFound):
            self.unsent.discard(name)
            return False
        self.unsent.discard(name)
        if name == _START or self._is_current(name, token):
            self.defaults.set(_HANDED_IN, name, token)
        return True

    def _is_current(self, match_id: str, token: str) -> bool:
        """Whether the activity still has this token: while it was tried, iOS may have given it another."""
        return any(
            activity.token == token
            for activity in self.kit.running()
            if activity.match_id == match_id
        )
