"""Redis and PostgreSQL rank players in the same order after any sequence of changes."""

import asyncio
import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.kit.clock import SystemClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import SlidingWindow, User
from tally.scoreboard.model.errors import ScoreOverflow, ScoreUnderflow
from tally.scoreboard.model.scores import MAX_SCORE, Adjustment, LeaderboardPage, Score, percentile
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tally.scoreboard.repository.rate_limits import RateLimitRepository, VersionedPage
from tests.scoreboard.repository.harness import START, Repositories

# Many equal scores, the first that a composite score in a double loses (901), and the largest.
POINTS = st.one_of(
    st.sampled_from([1, 1, 2, 900, 901, 9_007_199, MAX_SCORE // 2, MAX_SCORE - 1, MAX_SCORE]),
    st.integers(1, MAX_SCORE),
)
MICROSECONDS = st.one_of(
    st.integers(0, 3), st.sampled_from([999, 1000, 10**6]), st.integers(0, 10**14)
)
ORACLE = """
SELECT user_id, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS rank FROM scores
"""
PLAYER = st.integers(0, 5)
RAISE = st.tuples(st.just("raise"), PLAYER, POINTS, MICROSECONDS)
WRITE = st.tuples(st.just("write"), st.integers(0, 20))
RARE = st.one_of(
    st.tuples(st.just("remove"), PLAYER),
    st.tuples(st.just("rebuild"), PLAYER, POINTS, MICROSECONDS),
    st.tuples(st.just("adjust"), PLAYER, st.integers(-5, 5), MICROSECONDS),
    st.tuples(st.just("ban"), PLAYER),
    st.tuples(st.just("unban"), PLAYER),
    st.tuples(st.just("maintain")),
    st.tuples(st.just("repair")),
    st.tuples(st.just("flush")),
)
STEPS = st.lists(st.one_of(RAISE, RAISE, RAISE, WRITE, WRITE, RARE), min_size=5, max_size=25)
# Ids that differ in their last digits only, besides random ones.
ID = st.one_of(
    st.uuids().map(str), st.integers(0, 3).map(lambda low: f"00000000-0000-0000-0000-{low:012x}")
)
IDS = st.lists(ID, min_size=2, max_size=5, unique=True)


@dataclass
class RankingModel:
    """The remaining players, and committed scores that Redis may lack."""

    repositories: Repositories
    players: list[User]
    chance: random.Random
    pending: list[Score] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    banned: list[User] = field(default_factory=list)

    async def apply_step(self, step: tuple[object, ...]) -> None:
        match step:
            case ("raise", int(number), int(points), int(moment)) if self.players:
                await self.raise_score(self.players[number % len(self.players)], points, moment)
            case ("write", int(number)) if self.pending:
                # Writes arrive late, in any order, and some twice.
                await self.repositories.leaderboard.put(self.pending[number % len(self.pending)])
            case ("remove", int(number)) if self.players:
                player = self.players.pop(number % len(self.players))
                await self.repositories.accounts.delete(player.user_id, START)
                await self.repositories.leaderboard.remove(player.user_id)
                self.removed.append(player.user_id)
            case ("rebuild", int(number), int(points), int(moment)) if self.players:
                player = self.players[number % len(self.players)]
                await asyncio.gather(
                    self.repositories.rebuilder.rebuild(),
                    self.raise_and_write_through(player, points, moment),
                )
            case ("adjust" | "ban" | "unban", int(number), *_):
                await self.moderate(step, number)
            case ("maintain",):
                await RankBandRepository(self.repositories.database, 2).maintain()
            case ("repair",):
                await self.repositories.drift_checker.run(repair=True)
            case ("flush",):
                await self.repositories.redis.client.flushdb()
                await self.repositories.rebuilder.rebuild()

    async def moderate(self, step: tuple[object, ...], number: int) -> None:
        """Adjust, ban or unban in PostgreSQL, and write a removal to Redis."""
        moderation = self.repositories.moderation
        match step:
            case ("adjust", _, int(delta), int(moment)) if self.players and delta:
                player = self.players[number % len(self.players)]
                adjustment = Adjustment(new_uuid(), player.user_id, delta, "a test")
                try:
                    await moderation.adjust(adjustment, START + timedelta(microseconds=moment))
                except (ScoreOverflow, ScoreUnderflow):
                    return
                await self.queue(player)
            case ("ban", _) if self.players:
                player = self.players.pop(number % len(self.players))
                self.banned.append(player)
                ban = await moderation.ban(player.user_id, START)
                assert ban.is_new
                await self.repositories.leaderboard.remove(player.user_id, ban.revision)
            case ("unban", _) if self.banned:
                player = self.banned.pop(number % len(self.banned))
                self.players.append(player)
                assert await moderation.unban(player.user_id, START)
                await self.queue(player)

    async def queue(self, player: User) -> None:
        """Queue the committed score for Redis."""
        score = await self.repositories.scores.find(player.user_id)
        assert score is not None
        self.pending.append(score)

    async def raise_score(self, player: User, points: int, moment: int) -> None:
        """Commit a score as the transaction does: higher than before, up to the maximum."""
        before = await self.repositories.scores.find(player.user_id)
        assert before is not None
        total = min(MAX_SCORE, before.score + points)
        if total > before.score:
            after = replace(
                before,
                score=total,
                reached_at=START + timedelta(microseconds=moment),
                revision=before.revision + 1,
            )
            await self.repositories.set_score(after)
            self.pending.append(after)

    async def raise_and_write_through(self, player: User, points: int, moment: int) -> None:
        """Commit a score and write it to Redis once, as a request does."""
        count = len(self.pending)
        await self.raise_score(player, points, moment)
        for score in self.pending[count:]:
            await self.repositories.leaderboard.put(score)
        del self.pending[count:]

    async def write_pending(self) -> None:
        self.chance.shuffle(self.pending)
        for score in self.pending:
            await self.repositories.leaderboard.put(score)
        # An emptied Redis has lost the removal marks, so a late write may restore a player;
        # the drift check removes it.
        absent = [*self.removed, *(player.user_id for player in self.banned)]
        await self.repositories.drift_checker.refresh(absent)


class PageReader:
    """A process that keeps the latest page and reads it only if its version has changed."""

    def __init__(self, repositories: Repositories) -> None:
        self._leaderboard = repositories.leaderboard
        self._limits = RateLimitRepository(repositories.redis, SystemClock())
        self._latest = VersionedPage(b"", None)

    async def check(self) -> None:
        """Check that the page is the one in Redis."""
        window = SlidingWindow("board", "reader", 1_000)
        _, found = await self._limits.hit_and_top(window, 100, 0, self._latest.version)
        assert found is not None
        assert found.version
        if found.page is not None:
            self._latest = found
        assert self._latest.page == await self._leaderboard.top(100)


async def check_same_order(repositories: Repositories, players: list[User]) -> LeaderboardPage:
    """Check that Redis, the bands, PostgreSQL's window function and `Score.order` agree."""
    scores = [await repositories.scores.find(player.user_id) for player in players]
    expected = sorted(
        (score for score in scores if score is not None), key=lambda score: score.order
    )
    stored, cached = await repositories.scores.top(100), await repositories.leaderboard.top(100)
    assert [
        (standing.user_id, standing.score, standing.reached_at) for standing in stored.standings
    ] == [(score.user_id, score.score, score.reached_at) for score in expected]
    oracle = await repositories.database.rows("test", ORACLE)
    ranks = {str(row["user_id"]): row["rank"] for row in oracle}
    assert ranks == {standing.user_id: standing.rank for standing in stored.standings}
    assert cached.standings == stored.standings
    assert cached.total_players == stored.total_players == len(players)
    for standing in stored.standings:
        assert await repositories.scores.standing(standing.user_id) == (standing, len(players))
        assert await repositories.leaderboard.standing(standing.user_id) == (standing, len(players))
    return cached


@settings(max_examples=30)
@given(ids=IDS, steps=STEPS, seed=st.integers(0, 2**32))
async def test_redis_and_postgresql_have_the_same_order(
    shared_repositories: Repositories, ids: list[object], steps: list[tuple[object, ...]], seed: int
) -> None:
    """Any scores and times, with moderation, removals, late writes, rebuilds and repairs."""
    await shared_repositories.clear()
    players = [await shared_repositories.player(str(user_id)) for user_id in ids]
    for player in players:
        await shared_repositories.write_through(player)
    model = RankingModel(shared_repositories, players, random.Random(seed))
    reader = PageReader(shared_repositories)
    for step in steps:
        await model.apply_step(step)
        await reader.check()
    await model.write_pending()
    await reader.check()
    await check_same_order(shared_repositories, model.players)
    assert (await shared_repositories.drift_checker.run(repair=False)).differences == 0


@settings(max_examples=15)
@given(
    count=st.integers(1, 12), limit=st.integers(1, 9), offset=st.integers(0, 14), same=st.booleans()
)
async def test_pages_are_the_same(
    shared_repositories: Repositories, count: int, limit: int, offset: int, same: bool
) -> None:
    """From the top, from further down, beyond the end, and around each player."""
    await shared_repositories.clear()
    players = [await shared_repositories.player() for _ in range(count)]
    for number, player in enumerate(players):
        await shared_repositories.add(player, 5 if same else 1 + number // 2)
        await shared_repositories.write_through(player)
    assert await shared_repositories.leaderboard.top(
        limit, offset
    ) == await shared_repositories.scores.top(limit, offset)
    for player in players:
        stored = await shared_repositories.scores.around(player.user_id, limit)
        assert await shared_repositories.leaderboard.around(player.user_id, limit) == stored
        assert stored is not None
        assert len(stored.standings) == min(limit, count)
        assert player.user_id in {standing.user_id for standing in stored.standings}


async def test_scores_above_901_keep_their_tie_break(repositories: Repositories) -> None:
    """A composite score in a double would lose the order or whole points."""
    early, late = await repositories.player(), await repositories.player()
    for revision, points in enumerate((902, 10**6, MAX_SCORE), start=1):
        for player, microseconds in ((late, 1), (early, 0)):
            score = Score(
                player.user_id,
                player.username,
                points,
                START + timedelta(microseconds=microseconds),
                revision,
            )
            await repositories.set_score(score)
            await repositories.leaderboard.put(score)
        page = await check_same_order(repositories, [early, late])
        assert [standing.user_id for standing in page.standings] == [early.user_id, late.user_id]
        assert {standing.score for standing in page.standings} == {points}


@pytest.mark.parametrize(
    ("rank", "players", "expected"),
    [(1, 1, 100.0), (1, 101, 100.0), (101, 101, 0.0), (51, 101, 50.0)],
)
def test_the_percentile_is_the_share_of_other_players_with_a_lower_rank(
    rank: int, players: int, expected: float
) -> None:
    assert percentile(rank, players) == expected
