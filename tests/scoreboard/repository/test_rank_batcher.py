"""Ranks that PostgreSQL counts for many at once are those of each, and none is older than the question."""

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
class Counted(ScoreRepository):
    """Scores that note which players are counted together, and can be away."""

    counts: list[int] = field(default_factory=list)
    away: list[Unavailable] = field(default_factory=list)

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        self._note(1)
        return await ScoreRepository.standing(self, user_id)

    async def standings(self, user_ids: Sequence[str]) -> dict[str, tuple[Standing, int]]:
        self._note(len(user_ids))
        return await ScoreRepository.standings(self, user_ids)

    def _note(self, players: int) -> None:
        self.counts.append(players)
        if self.away:
            raise self.away[0]


async def test_all_who_ask_during_a_count_share_the_next_and_each_sees_its_own_points(
    repositories: Repositories,
) -> None:
    """Far fewer counts than players, and the rank is that of the score just committed."""
    players = [await repositories.player() for _ in range(20)]
    scores = Counted(repositories.database, repositories.scores.clock)
    ranks = RankBatcher(scores)

    async def play(number: int) -> int:
        await repositories.add(players[number], 100 - number)
        found = await ranks.standing(players[number].user_id)
        assert found is not None
        assert found[0].score == 100 - number
        return found[0].rank

    await asyncio.gather(*(play(number) for number in range(20)))
    assert len(scores.counts) < 20
    assert [
        found and found[0].rank
        for found in await asyncio.gather(*(ranks.standing(each.user_id) for each in players))
    ] == [*range(1, 21)]


async def test_nobody_is_told_of_a_player_who_is_not_there(repositories: Repositories) -> None:
    player, ranks = await repositories.player(), RankBatcher(repositories.scores)
    found = await asyncio.gather(
        ranks.standing(player.user_id), ranks.standing(new_uuid()), ranks.standing(player.user_id)
    )
    assert [place and place[0].rank for place in found] == [1, None, 1]


async def test_a_count_that_fails_fails_all_who_wait_for_it_and_nobody_after(
    repositories: Repositories,
) -> None:
    player, scores = (
        await repositories.player(),
        Counted(repositories.database, repositories.scores.clock),
    )
    ranks = RankBatcher(scores)
    scores.away.append(Unavailable("Away"))
    failed = await asyncio.gather(
        *(ranks.standing(user) for user in (player.user_id, new_uuid())), return_exceptions=True
    )
    assert [type(error) for error in failed] == [Unavailable, Unavailable]
    scores.away.clear()
    found = await ranks.standing(player.user_id)
    assert found is not None
    assert found[0].rank == 1


async def test_one_who_gives_up_takes_nothing_from_the_others(repositories: Repositories) -> None:
    player, ranks = await repositories.player(), RankBatcher(repositories.scores)
    impatient, patient = (asyncio.create_task(ranks.standing(player.user_id)) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    found = await patient
    assert found is not None
    with pytest.raises(asyncio.CancelledError):
        await impatient
