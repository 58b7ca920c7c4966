"""Completed actions: a game server reports one and receives the player's action token.

A repeated report returns a new token: the first one may have been lost, or have expired during an
outage. The action scores once, whichever token is used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tally.kit.clock import Clock
from tally.scoreboard.model.boards import GLOBAL_BOARD
from tally.scoreboard.model.scores import CompletedAction
from tally.scoreboard.repository.actions import ActionRepository
from tally.scoreboard.service.action_tokens import ActionTokens, truncate_to_second
from tally.scoreboard.service.boards import Boards

ACTION_TOKEN_LIFETIME: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Actions:
    """Records completed actions, each once, and issues tokens for them."""

    actions: ActionRepository
    tokens: ActionTokens
    boards: Boards
    clock: Clock

    async def complete(
        self,
        action_id: str,
        user_id: str,
        max_score: int,
        metadata: Mapping[str, Any],
        boards: Sequence[str] | None = None,
    ) -> tuple[str, datetime, bool]:
        """Return the action token, its expiry, and whether the action is new.

        `boards` are those that it counts on; by default only the global leaderboard. Raises
        ActionExists if it was reported with other content, or BoardNotFound.
        """
        targets = None if boards is None else tuple(sorted(set(boards)))
        if targets is not None:
            await self.boards.require(targets)
        now = self.clock.now()
        expires_at = truncate_to_second(now) + ACTION_TOKEN_LIFETIME
        action = CompletedAction(
            action_id, user_id, max_score, now, expires_at, metadata, _stored(targets)
        )
        is_new = await self.actions.create(action)
        return self.tokens.issue(action), action.expires_at, is_new


def _stored(boards: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the boards in the one form in which they are stored."""
    return None if boards == (GLOBAL_BOARD,) else boards
