"""Ranks from counts per band equal those of PostgreSQL's window functions."""

import asyncio
import random
from datetime import timedelta

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.scoreboard.model.scores import MAX_SCORE, Score
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tests.scoreboard.repository.harness import START, Repositories

ORACLE = """
SELECT user_id, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS rank FROM scores
"""
# Two players per band, so that few players need many bands, splits and merges.
BAND_PLAYERS = 2
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("set"),
            st.integers(0, 30),
            st.one_of(st.integers(0, 3), st.sampled_from([MAX_SCORE - 1, MAX_SCORE])),
            st.integers(0, 2),
        ),
        st.tuples(st.just("add"), st.integers(0, 2)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("maintain")),
    ),
    min_size=10,
    max_size=40,
)


async def check_ranks(repositories: Repositories) -> None:
    """Check every rank, page and page around a player against the oracle."""
    rows = await repositories.database.rows("test", f"{ORACLE} ORDER BY rank")
    order = [str(row["user_id"]) for row in rows]
    for rank, user_id in enumerate(order, start=1):
        found = await repositories.scores.standing(user_id)
        assert found is not None
        assert (found[0].rank, found[1]) == (rank, len(order))
        around = await repositories.scores.around(user_id, 3)
        assert around is not None
        first = max(0, min(rank - 2, len(order) - 3))
        assert [(s.rank, s.user_id) for s in around.standings] == [
            *enumerate(order[first : first + 3], start=first + 1)
        ]
        page = await repositories.scores.top(2, rank - 1)
        assert [(s.rank, s.user_id) for s in page.standings] == [
            *enumerate(order[rank - 1 : rank + 1], start=rank)
        ]
        assert page.total_players == len(order)


@settings(max_examples=25)
@given(steps=STEPS)
async def test_ranks_from_bands_equal_the_window_function(
    shared_repositories: Repositories, steps: list[tuple[object, ...]]
) -> None:
    """After any changes in either direction, with many ties, counted or not yet."""
    await shared_repositories.clear()
    ranks = RankBandRepository(shared_repositories.database, BAND_PLAYERS)
    players = [await shared_repositories.player() for _ in range(4)]
    for revision, step in enumerate(steps, start=1):
        match step:
            case ("set", int(number), int(points), int(moment)) if players:
                player = players[number % len(players)]
                reached_at = START + timedelta(microseconds=moment)
                await shared_repositories.set_score(
                    Score(player.user_id, player.username, points, reached_at, revision)
                )
            case ("add", int(moment)):
                reached_at = START + timedelta(microseconds=moment)
                players.append(await shared_repositories.player(moment=reached_at))
            case ("delete", int(number)) if players:
                player = players.pop(number % len(players))
                await shared_repositories.accounts.delete(player.user_id, START)
            case ("maintain",):
                await ranks.maintain()
    await check_ranks(shared_repositories)
    await ranks.maintain()
    await check_ranks(shared_repositories)
    bands = await shared_repositories.database.rows("test", "SELECT players FROM rank_bands")
    assert sum(row["players"] for row in bands) == len(players)
    assert max(row["players"] for row in bands) <= 2 * BAND_PLAYERS


async def test_concurrent_updates_of_one_band_neither_deadlock_nor_lose_a_count(
    repositories: Repositories,
) -> None:
    """While two processes maintain the bands."""
    players = [await repositories.player() for _ in range(40)]
    one, two = (RankBandRepository(repositories.database, 5) for _ in range(2))
    is_over = asyncio.Event()

    async def maintain(ranks: RankBandRepository) -> None:
        while not is_over.is_set():
            await ranks.maintain()

    maintaining = [asyncio.create_task(maintain(ranks)) for ranks in (one, two)]
    chance = random.Random(7)
    try:
        for _ in range(5):
            order = chance.sample(players, len(players))
            await asyncio.gather(
                *(repositories.add(player, chance.choice([1, 2, 900])) for player in order)
            )
    finally:
        is_over.set()
        await asyncio.gather(*maintaining)
    await check_ranks(repositories)
    await one.maintain()
    await check_ranks(repositories)


async def test_a_writer_does_not_wait_for_another_one(repositories: Repositories) -> None:
    """A transaction that has changed a score blocks no change of another player's score."""
    held, other = await repositories.player(), await repositories.player()
    ranks = RankBandRepository(repositories.database)
    async with repositories.database.use("test") as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "UPDATE scores SET total_score = 5 WHERE user_id = $1", held.user_id
        )
        await repositories.add(other, 7)
        assert await ranks.maintain() > 0
        standing = await repositories.scores.standing(held.user_id)
        assert standing is not None
        assert (standing[0].rank, standing[0].score) == (2, 0)
        await transaction.commit()
    await check_ranks(repositories)


async def test_the_bands_of_many_players_with_one_score_are_small(
    repositories: Repositories,
) -> None:
    """As after an import in one transaction: same score, same time."""
    await repositories.database.value(
        "test",
        "WITH created AS (INSERT INTO users (username, email, password_hash)"
        " SELECT 'p' || n, n || '@example.com', '' FROM generate_series(1, 500) n RETURNING id)"
        " INSERT INTO scores (user_id) SELECT id FROM created",
    )
    assert await RankBandRepository(repositories.database, 20).maintain() >= 500
    sizes = await repositories.database.rows("test", "SELECT players FROM rank_bands")
    assert max(row["players"] for row in sizes) <= 40
    rows = await repositories.database.rows("test", f"{ORACLE} ORDER BY rank")
    standing = await repositories.scores.standing(str(rows[332]["user_id"]))
    assert standing is not None
    assert standing[0].rank == 333


async def test_an_action_id_is_unique_in_the_history(repositories: Repositories) -> None:
    """PostgreSQL rejects a second event, whatever the program does."""
    player = await repositories.player()
    await repositories.add(player, 5)
    with pytest.raises(asyncpg.UniqueViolationError, match="idx_score_events_action"):
        await repositories.database.value(
            "test",
            "INSERT INTO score_events (user_id, action_token_hash, action_id, score_delta,"
            " score_before, score_after) SELECT user_id, 'other', action_id, 1, 5, 6"
            " FROM score_events WHERE user_id = $1",
            player.user_id,
        )
