"""Completed actions: a game server reports one and receives the player's action token."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tally.kit.clock import Clock
from tally.scoreboard.model import CompletedAction
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.service.action_tokens import ActionTokens, truncate_to_second

ACTION_TOKEN_LIFETIME: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Actions:
    """Records completed actions, each once, and issues their tokens."""

    actions: ActionRepository
    tokens: ActionTokens
    clock: Clock

    async def complete(
        self, action_id: str, user_id: str, max_score: int, metadata: Mapping[str, Any]
    ) -> tuple[str, datetime]:
        """Return the action token and its expiry; raises ActionExists for a reported action."""
        now = self.clock.now()
        expires_at = truncate_to_second(now) + ACTION_TOKEN_LIFETIME
        action = CompletedAction(action_id, user_id, max_score, now, expires_at, metadata)
        await self.actions.create(action)
        return self.tokens.issue(action), action.expires_at
