"""Batched rank queries return the same ranks as single ones, and none is stale."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tally.errors import Unavailable
from tally.kit.ids import new_uuid
from tally.scoreboard.model import Standing
from tally.scoreboard.repository.scores import ScoreRepository
from tally.scoreboard.service.rank_batcher import RankBatcher
from tests.scoreboard.repository.harness import Repositories


@dataclass(frozen=True, slots=True)
class RecordingScores(ScoreRepository):
    """Scores that record the batch sizes and can fail."""

    batch_sizes: list[int] = field(default_factory=list)
    errors: list[Unavailable] = field(default_factory=list)

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        self._record(1)
        return await ScoreRepository.standing(self, user_id)

    async def standings(self, user_ids: Sequence[str]) -> dict[str, tuple[Standing, int]]:
        self._record(len(user_ids))
        return await ScoreRepository.standings(self, user_ids)

    def _record(self, players: int) -> None:
        self.batch_sizes.append(players)
        if self.errors:
            raise self.errors[0]


async def test_requests_during_a_query_share_the_next_one(
    repositories: Repositories,
) -> None:
    """There are fewer queries than players, and each rank includes the score just committed."""
    players = [await repositories.player() for _ in range(20)]
    scores = RecordingScores(repositories.database, repositories.scores.clock)
    ranks = RankBatcher(scores)

    async def play(number: int) -> int:
        await repositories.add(players[number], 100 - number)
        standing = await ranks.standing(players[number].user_id)
        assert standing is not None
        assert standing[0].score == 100 - number
        return standing[0].rank

    await asyncio.gather(*(play(number) for number in range(20)))
    assert len(scores.batch_sizes) < 20
    assert [
        standing and standing[0].rank
        for standing in await asyncio.gather(
            *(ranks.standing(player.user_id) for player in players)
        )
    ] == [*range(1, 21)]


async def test_an_unknown_player_has_no_rank(repositories: Repositories) -> None:
    player, ranks = await repositories.player(), RankBatcher(repositories.scores)
    standings = await asyncio.gather(
        ranks.standing(player.user_id), ranks.standing(new_uuid()), ranks.standing(player.user_id)
    )
    assert [standing and standing[0].rank for standing in standings] == [1, None, 1]


async def test_a_failed_query_fails_its_batch_only(
    repositories: Repositories,
) -> None:
    player, scores = (
        await repositories.player(),
        RecordingScores(repositories.database, repositories.scores.clock),
    )
    ranks = RankBatcher(scores)
    scores.errors.append(Unavailable("Unavailable"))
    failed = await asyncio.gather(
        *(ranks.standing(user) for user in (player.user_id, new_uuid())), return_exceptions=True
    )
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    scores.errors.clear()
    standing = await ranks.standing(player.user_id)
    assert standing is not None
    assert standing[0].rank == 1


async def test_a_cancelled_request_does_not_affect_others(repositories: Repositories) -> None:
    player, ranks = await repositories.player(), RankBatcher(repositories.scores)
    cancelled, waiting = (asyncio.create_task(ranks.standing(player.user_id)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    standing = await waiting
    assert standing is not None
    with pytest.raises(asyncio.CancelledError):
        await cancelled
