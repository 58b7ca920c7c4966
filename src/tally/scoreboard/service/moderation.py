"""Moderation: operators adjust scores and ban players; boards, Redis and streams follow."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tally.errors import NotFound
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.model.errors import PlayerBanned
from tally.scoreboard.model.scores import Adjustment, AppliedAdjustment
from tally.scoreboard.repository.moderation import ModerationRepository
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.boards import Boards
from tally.scoreboard.service.leaderboard import Leaderboard
from tally.scoreboard.service.leaderboard_writer import LeaderboardWriter

_log = logs.logger()


@dataclass(frozen=True, slots=True)
class Moderation:
    """Adjusts scores, bans and unbans; methods raise NotFound."""

    players: ModerationRepository
    scores: ScoreRepository
    leaderboard: Leaderboard
    writer: LeaderboardWriter
    boards: Boards
    clock: Clock

    async def adjust(self, adjustment: Adjustment) -> tuple[AppliedAdjustment, int | None]:
        """Return what was adjusted, and the player's current rank in the season of it.

        There is no rank if the player was banned or deleted since.
        """
        applied = await self.boards.after_due_seasons(
            partial(self.players.adjust, adjustment, self.clock.now())
        )
        await self._write_through(adjustment.user_id)
        _log.info(
            "Score adjusted",
            action="score_adjusted",
            player=adjustment.user_id,
            scoreDelta=applied.score_delta,
            newScore=applied.score_after,
            board=adjustment.board,
        )
        return applied, await self._rank(adjustment, applied)

    async def _rank(self, adjustment: Adjustment, applied: AppliedAdjustment) -> int | None:
        user_id = adjustment.user_id
        if adjustment.board is not None and applied.season is not None:
            return await self.boards.rank(adjustment.board, applied.season, user_id)
        with suppress(NotFound, PlayerBanned):
            return (await self.leaderboard.standing(user_id))[0].rank
        return None

    async def ban(self, user_id: str) -> None:
        """Hide the player from every leaderboard; the score is kept.

        A repeated request removes the player from Redis again: the process of the first one may
        have died before it did.
        """
        ban = await self.boards.after_due_seasons(
            partial(self.players.ban, user_id, self.clock.now())
        )
        await self.writer.remove_player(user_id, ban.revision)
        await self.boards.remove(user_id, ban.places)
        if ban.is_new:
            _log.warning("Player banned", action="player_banned", player=user_id)

    async def unban(self, user_id: str) -> None:
        """Show the player again, with the score from before the ban."""
        is_new = await self.boards.after_due_seasons(
            partial(self.players.unban, user_id, self.clock.now())
        )
        await self._write_through(user_id)
        if is_new:
            _log.info("Player unbanned", action="player_unbanned", player=user_id)

    async def _write_through(self, user_id: str) -> None:
        score = await self.scores.find(user_id)
        if score is not None:
            await self.writer.put_player(score)
        await self.boards.refresh(user_id)
