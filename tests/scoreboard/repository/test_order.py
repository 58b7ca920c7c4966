"""The order of the board: Redis has the same as PostgreSQL, whatever happens to the scores."""

import asyncio
import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.scoreboard.model import MAX_SCORE, LeaderboardPage, Score, User, percentile
from tests.scoreboard.repository.harness import START, Repositories

# Many that are equal, the first that the composite score of a double loses (901), and those next to
# the last exact one.
POINTS = st.one_of(
    st.sampled_from([1, 1, 2, 900, 901, 9_007_199, MAX_SCORE // 2, MAX_SCORE - 1, MAX_SCORE]),
    st.integers(1, MAX_SCORE),
)
MICROSECONDS = st.one_of(
    st.integers(0, 3), st.sampled_from([999, 1000, 10**6]), st.integers(0, 10**14)
)
PLAYER = st.integers(0, 5)
RAISE = st.tuples(st.just("raise"), PLAYER, POINTS, MICROSECONDS)
TELL = st.tuples(st.just("tell"), st.integers(0, 20))
RARE = st.one_of(
    st.tuples(st.just("remove"), PLAYER),
    st.tuples(st.just("rebuild"), PLAYER, POINTS, MICROSECONDS),
    st.tuples(st.just("heal")),
    st.tuples(st.just("forget")),
)
STEPS = st.lists(st.one_of(RAISE, RAISE, RAISE, TELL, TELL, RARE), min_size=5, max_size=25)
# The bits that decide between equal times are those at either end.
ID = st.one_of(
    st.uuids().map(str), st.integers(0, 3).map(lambda low: f"00000000-0000-0000-0000-{low:012x}")
)
IDS = st.lists(ID, min_size=2, max_size=5, unique=True)


@dataclass
class World:
    """The players who are left, and what has been committed and not yet been told to Redis."""

    repositories: Repositories
    players: list[User]
    chance: random.Random
    late: list[Score] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    async def take(self, step: tuple[object, ...]) -> None:
        match step:
            case ("raise", int(number), int(points), int(moment)) if self.players:
                await self.raise_by(self.players[number % len(self.players)], points, moment)
            case ("tell", int(number)) if self.late:
                # News come late, in any order, and some of them twice.
                await self.repositories.leaderboard.put(self.late[number % len(self.late)])
            case ("remove", int(number)) if self.players:
                gone = self.players.pop(number % len(self.players))
                await self.repositories.accounts.delete(gone.user_id)
                await self.repositories.leaderboard.remove(gone.user_id)
                self.removed.append(gone.user_id)
            case ("rebuild", int(number), int(points), int(moment)) if self.players:
                player = self.players[number % len(self.players)]
                await asyncio.gather(
                    self.repositories.rebuilder.rebuild(),
                    self.raise_and_tell(player, points, moment),
                )
            case ("heal",):
                await self.repositories.drift_checker.run(repair=True)
            case ("forget",):
                await self.repositories.redis.client.flushdb()
                await self.repositories.rebuilder.rebuild()

    async def raise_by(self, player: User, points: int, moment: int) -> None:
        """A score as the transaction leaves it: greater than before, unless there is no greater one."""
        before = await self.repositories.scores.find(player.user_id)
        assert before is not None
        total = min(MAX_SCORE, before.score + points)
        if total > before.score:
            after = replace(before, score=total, reached_at=START + timedelta(microseconds=moment))
            await self.repositories.set_score(after)
            self.late.append(after)

    async def raise_and_tell(self, player: User, points: int, moment: int) -> None:
        """As a request does it: what it has committed it tells at once, and only once."""
        waiting = len(self.late)
        await self.raise_by(player, points, moment)
        for news in self.late[waiting:]:
            await self.repositories.leaderboard.put(news)
        del self.late[waiting:]

    async def settle(self) -> None:
        self.chance.shuffle(self.late)
        for score in self.late:
            await self.repositories.leaderboard.put(score)
        # A Redis that was emptied no longer knows who was removed before; late news of them are
        # found by comparing.
        await self.repositories.drift_checker.refresh(self.removed)


async def check_same_order(repositories: Repositories, players: list[User]) -> LeaderboardPage:
    """PostgreSQL, Redis and the rule itself agree on every place."""
    known = [await repositories.scores.find(player.user_id) for player in players]
    ruled = sorted((score for score in known if score is not None), key=lambda score: score.order)
    told, shown = await repositories.scores.top(100), await repositories.leaderboard.top(100)
    assert [(place.user_id, place.score, place.reached_at) for place in told.standings] == [
        (score.user_id, score.score, score.reached_at) for score in ruled
    ]
    assert shown.standings == told.standings
    assert shown.total_players == told.total_players == len(players)
    for place in told.standings:
        assert await repositories.scores.standing(place.user_id) == (place, len(players))
        assert await repositories.leaderboard.standing(place.user_id) == (place, len(players))
    together = await repositories.scores.standings([place.user_id for place in told.standings])
    assert together == {place.user_id: (place, len(players)) for place in told.standings}
    return shown


@settings(max_examples=30)
@given(ids=IDS, steps=STEPS, seed=st.integers(0, 2**32))
async def test_redis_has_the_order_of_postgres(
    shared: Repositories, ids: list[object], steps: list[tuple[object, ...]], seed: int
) -> None:
    """Any scores up to 2^53 - 1, equal ones, equal times, removals, late news, rebuilds and healing on the way."""
    await shared.clear()
    players = [await shared.player(str(user_id)) for user_id in ids]
    for player in players:
        await shared.write_through(player)
    world = World(shared, players, random.Random(seed))
    for step in steps:
        await world.take(step)
    await world.settle()
    await check_same_order(shared, world.players)
    assert (await shared.drift_checker.run(repair=False)).differences == 0


@settings(max_examples=15)
@given(
    count=st.integers(1, 12), limit=st.integers(1, 9), offset=st.integers(0, 14), same=st.booleans()
)
async def test_stretches_of_the_board_are_the_same(
    shared: Repositories, count: int, limit: int, offset: int, same: bool
) -> None:
    """From the top, from further down, beyond the end, and around each player."""
    await shared.clear()
    players = [await shared.player() for _ in range(count)]
    for number, player in enumerate(players):
        await shared.add(player, 5 if same else 1 + number // 2)
        await shared.write_through(player)
    assert await shared.leaderboard.top(limit, offset) == await shared.scores.top(limit, offset)
    for player in players:
        told = await shared.scores.around(player.user_id, limit)
        assert await shared.leaderboard.around(player.user_id, limit) == told
        assert told is not None
        assert len(told.standings) == min(limit, count)
        assert player.user_id in {place.user_id for place in told.standings}


async def test_a_score_beyond_901_keeps_its_tie_break(repositories: Repositories) -> None:
    """Where a composite score in a double would say that the later one came first, or lose whole points."""
    early, late = await repositories.player(), await repositories.player()
    for points in (902, 10**6, MAX_SCORE):
        for player, to_microseconds in ((late, 1), (early, 0)):
            score = Score(
                player.user_id,
                player.username,
                points,
                START + timedelta(microseconds=to_microseconds),
            )
            await repositories.set_score(score)
            await repositories.leaderboard.put(score)
        board = await check_same_order(repositories, [early, late])
        assert [place.user_id for place in board.standings] == [early.user_id, late.user_id]
        assert {place.score for place in board.standings} == {points}


@pytest.mark.parametrize(
    ("rank", "players", "expected"),
    [(1, 1, 100.0), (1, 101, 100.0), (101, 101, 0.0), (51, 101, 50.0)],
)
def test_a_percentile_is_the_share_of_the_others_who_are_behind(
    rank: int, players: int, expected: float
) -> None:
    assert percentile(rank, players) == expected
