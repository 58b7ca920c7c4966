"""Vouching for an action: a game server says that a player finished it, and gets the token that the player trades for points."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tally.kit.clock import Clock
from tally.scoreboard.model import CompletedAction
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.service.action_tokens import ActionTokens, truncate_to_second

TOKEN_TIME: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Actions:
    """Completes actions, each once."""

    actions: ActionRepository
    tokens: ActionTokens
    clock: Clock

    async def complete(
        self, action_id: str, user_id: str, max_score: int, metadata: Mapping[str, Any]
    ) -> tuple[str, datetime]:
        """The token of the action and when it expires; ActionExists if the action was vouched for before."""
        now = self.clock.now()
        action = CompletedAction(
            action_id, user_id, max_score, now, truncate_to_second(now) + TOKEN_TIME, metadata
        )
        await self.actions.complete(action)
        return self.tokens.make(action), action.expires_at
