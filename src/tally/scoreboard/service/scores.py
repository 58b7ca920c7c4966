"""Trading an action token for points, once: whoever sends it again gets the same answer, and nothing is added.

Redis is asked first whether the token was answered; PostgreSQL decides. There the token, the score
and the history change in one transaction, so of any number of requests with one token, at once or
later, with or without Redis, one adds the points. The answer is then kept beside the token; where
two requests made one at the same time, the first that was kept is given to both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from tally.errors import Invalid, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model import AppliedScoreChange, Score, ScoreChange
from tally.scoreboard.repository.cache import ResponseCache
from tally.scoreboard.repository.leaderboard import LeaderboardCache
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.action_tokens import ActionToken, ActionTokens, invalid_action_token
from tally.scoreboard.service.backlog import Backlog
from tally.scoreboard.service.broadcaster import LeaderboardBroadcaster
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.redis_breaker import RedisBreaker

_log = logs.logger()


class ScoreUpdateResponse(msgspec.Struct, frozen=True):
    """What came of an action token."""

    user_id: str
    new_score: int
    score_added: int
    rank: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreUpdates:
    """Adds points."""

    tokens: ActionTokens
    scores: ScoreRepository
    board: LeaderboardCache
    answers: ResponseCache
    leaderboard: Leaderboard
    broadcast: LeaderboardBroadcaster
    backlog: Backlog
    guard: RedisBreaker
    clock: Clock

    async def update(
        self, user_id: str, action_token: str, score_delta: int, client_info: Mapping[str, Any]
    ) -> bytes:
        """The answer, a `ScoreUpdateResponse` as JSON: the same, byte for byte, however often the token is sent."""
        token = self.tokens.open(action_token)
        if token.user_id != user_id:
            raise invalid_action_token("The action token is for another player")
        answer = await self.guard.ask(
            partial(self.answers.find, token.token_hash), otherwise=_unknown
        )
        if answer is not None:
            return answer
        now = self.clock.now()
        trouble = _trouble(token, score_delta, now)
        if trouble is not None:
            return await self._answered_before(token, trouble)
        change = ScoreChange(
            token.token_hash,
            token.action_id,
            user_id,
            score_delta,
            token.expires_at,
            at=now,
            client_info=client_info,
        )
        applied = await self.scores.apply(change)
        answer = applied.response or await self._settle(token, applied)
        await self._remember(token, answer)
        return answer

    async def _answered_before(self, token: ActionToken, trouble: Invalid) -> bytes:
        """What cannot be traded any more, or not for so much, may have been traded already: then that answer stands."""
        used = await self.scores.find_response(token.token_hash)
        if used is None or used[0] != token.user_id or used[1] is None:
            raise trouble
        return used[1]

    async def _settle(self, token: ActionToken, applied: AppliedScoreChange) -> bytes:
        """Show the score on the board, and keep the answer that says so."""
        rank = await self._show(
            Score(applied.user_id, applied.username, applied.score_after, applied.at)
        )
        answer = ScoreUpdateResponse(
            applied.user_id, applied.score_after, applied.score_delta, rank, applied.at
        )
        kept = await self.scores.store_response(token.token_hash, msgspec.json.encode(answer))
        if not applied.is_replay:
            told = {
                "scoreDelta": applied.score_delta,
                "newScore": applied.score_after,
                "rank": rank,
            }
            _log.info("Score updated successfully", action="score_update", **told)
        return kept

    async def _show(self, score: Score) -> int:
        """Write through to Redis, or leave it for later; the rank comes from wherever it is known."""
        try:
            rank = await self.guard.call(partial(self.board.put, score))
        except Unavailable:
            self.backlog.add_score(score)
            rank = None
        if rank is None:
            standing, _ = await self.leaderboard.place(score.user_id)
            rank = standing.rank
        self.broadcast.notify_rank(rank)
        return rank

    async def _remember(self, token: ActionToken, answer: bytes) -> None:
        await self.guard.tell(
            partial(
                self.answers.remember, token.token_hash, answer, token.expires_at, self.clock.now()
            )
        )


def _trouble(token: ActionToken, score_delta: int, now: datetime) -> Invalid | None:
    if token.expires_at <= now:
        return invalid_action_token("The action token has expired")
    if score_delta > token.max_score:
        message = f"score_delta must be at most {token.max_score}"
        return Invalid(
            message, code="score_exceeds_max", field="score_delta", max_score=token.max_score
        )
    return None


async def _unknown() -> None:
    return None
