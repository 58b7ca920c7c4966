"""Score updates: exchange an action token for points, exactly once.

Redis may hold the response of an earlier use; PostgreSQL decides. One transaction consumes the
token, raises the score and writes the event, so of any number of requests with tokens of one
action exactly one adds points, with or without Redis. The response is then stored with the token.
If concurrent requests each built a response, all of them return the one that was stored first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from tally.errors import Invalid, NotFound
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model.scores import AppliedScoreChange, ScoreChange
from tally.scoreboard.repository.cache import ResponseCache
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.action_tokens import ActionToken, ActionTokens, invalid_action_token
from tally.scoreboard.service.boards import BoardResult, Boards
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter
from tally.scoreboard.service.redis_breaker import RedisBreaker

_log = logs.logger()


class ScoreUpdateResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The response to a score update, which is stored for replays.

    The score and rank are those of the global leaderboard; `boards` has those of named boards.
    """

    user_id: str
    new_score: int
    score_added: int
    rank: int
    updated_at: datetime
    boards: tuple[BoardResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreUpdates:
    """Adds points to scores."""

    tokens: ActionTokens
    scores: ScoreRepository
    responses: ResponseCache
    writer: LeaderboardWriter
    boards: Boards
    breaker: RedisBreaker
    clock: Clock

    def verify(self, action_token: str, user_id: str) -> ActionToken:
        """Return the claims of a token of this player; raises Invalid."""
        token = self.tokens.verify(action_token)
        if token.user_id != user_id:
            raise invalid_action_token("The action token was issued to another player")
        return token

    async def update(
        self,
        token: ActionToken,
        score_delta: int,
        client_info: Mapping[str, Any],
    ) -> tuple[bytes, bool]:
        """Return a `ScoreUpdateResponse` as JSON, and whether it is a replay.

        It is byte for byte the same for every replay.
        """
        now = self.clock.now()
        error = _validate(token, score_delta, now)
        if error is not None:
            return await self._replay_or_raise(token, error), True
        change = ScoreChange(
            token.token_hash,
            token.action_id,
            token.user_id,
            score_delta,
            token.expires_at,
            at=now,
            client_info=client_info,
        )
        applied = await self.boards.after_due_seasons(partial(self.scores.apply, change))
        response = applied.response or await self._complete(token.user_id, applied)
        # The deletion of the account finds only the response of the token that was used first.
        if applied.token_hash == token.token_hash:
            await self._cache_response(token, response)
        return response, applied.is_replay

    async def _replay_or_raise(self, token: ActionToken, error: Invalid) -> bytes:
        """Return the stored response if the action was scored before the token became invalid."""
        used = await self.scores.find_response(token.action_id)
        if used is None or used[0] != token.user_id or used[1] is None:
            raise error
        return used[1]

    async def _complete(self, user_id: str, applied: AppliedScoreChange) -> bytes:
        """Write the score through to the leaderboard, then build and store the response."""
        # The process of the first use may have died before it wrote the score to Redis.
        score = applied.score or await self.scores.find(user_id)
        if score is None:
            raise NotFound("User does not exist", code="user_not_found")
        rank = await self.writer.put_score(score)
        boards = [
            await self.boards.write(user_id, applied.score, change) for change in applied.boards
        ]
        response = ScoreUpdateResponse(
            user_id,
            applied.score_after,
            applied.score_after - applied.score_before,
            rank,
            applied.at,
            tuple(boards),
        )
        stored = await self.scores.store_response(applied.token_hash, msgspec.json.encode(response))
        if not applied.is_replay:
            _log.info(
                "Score updated successfully",
                action="score_update",
                scoreDelta=applied.score_delta,
                newScore=applied.score_after,
                rank=rank,
            )
        return stored

    async def _cache_response(self, token: ActionToken, response: bytes) -> None:
        await self.breaker.try_call(
            partial(
                self.responses.store,
                token.token_hash,
                response,
                token.expires_at,
                self.clock.now(),
            )
        )


def _validate(token: ActionToken, score_delta: int, now: datetime) -> Invalid | None:
    if token.expires_at <= now:
        return invalid_action_token("The action token has expired")
    if score_delta > token.max_score:
        message = f"score_delta must be at most {token.max_score}"
        return Invalid(
            message, code="score_exceeds_max", field="score_delta", max_score=token.max_score
        )
    return None
