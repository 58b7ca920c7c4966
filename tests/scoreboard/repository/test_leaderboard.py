"""The board in Redis: late news, removals, a Redis that forgot, and rebuilding while scores change."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from tally.scoreboard.model import CacheUnavailable, LeaderboardNotCached, RebuildInProgress, Score
from tally.scoreboard.repository.database import Row
from tally.scoreboard.repository.leaderboard import CHANGED, LEADERBOARD, PLAYERS, REBUILDING
from tally.scoreboard.repository.rebuild import MARKER_TTL_SECONDS, LeaderboardRebuilder
from tally.scoreboard.repository.scores import ScoreRepository
from tests.scoreboard.repository.harness import START, Repositories, at


@dataclass(frozen=True, slots=True)
class Interrupted(ScoreRepository):
    """Scores that are read as ever, but something happens after the first page, when PostgreSQL's moment is fixed."""

    meanwhile: Callable[[], Awaitable[object]]

    async def entries(self, size: int) -> AsyncIterator[list[Row]]:
        happened = False
        async for rows in ScoreRepository.entries(self, min(size, 1)):
            if not happened:
                happened = True
                await self.meanwhile()
            yield rows


def builder_with(
    repositories: Repositories, meanwhile: Callable[[], Awaitable[object]]
) -> LeaderboardRebuilder:
    return LeaderboardRebuilder(
        repositories.redis, Interrupted(repositories.database, repositories.scores.clock, meanwhile)
    )


async def keys_of(repositories: Repositories) -> set[bytes]:
    return set(await repositories.redis.client.keys("leaderboard:*"))


async def test_a_score_is_shown_with_its_rank_and_old_news_change_nothing(
    repositories: Repositories,
) -> None:
    """A write that was held up must not undo a newer one."""
    first, second = await repositories.player(), await repositories.player()
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 10, at(1))) == 1
    assert await repositories.leaderboard.put(Score(second.user_id, "second", 20, at(2))) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 30, at(3))) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 10, at(1))) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 30, at(9))) == 1
    board = await repositories.leaderboard.top(10)
    assert [(place.username, place.score, place.reached_at) for place in board.standings] == [
        ("first", 30, at(3)),
        ("second", 20, at(2)),
    ]
    assert board.changed_at == at(3)
    assert (
        await repositories.redis.client.zcard(LEADERBOARD)
        == await repositories.redis.client.hlen(PLAYERS)
        == 2
    )


async def test_whoever_was_removed_does_not_come_back_by_late_news(
    repositories: Repositories,
) -> None:
    player, other = await repositories.player(), await repositories.player()
    for user in (player, other):
        await repositories.add(user, 5, at(1))
        await repositories.write_through(user)
    assert await repositories.leaderboard.remove(player.user_id) is not None
    assert (
        await repositories.leaderboard.put(Score(player.user_id, player.username, 99, at(2)))
        is None
    )
    assert [place.user_id for place in (await repositories.leaderboard.top(10)).standings] == [
        other.user_id
    ]
    assert await repositories.leaderboard.remove(player.user_id) is None
    assert await repositories.leaderboard.standing(player.user_id) is None
    assert await repositories.leaderboard.around(player.user_id, 5) is None


async def test_a_redis_that_forgot_says_so_instead_of_showing_a_part(
    repositories: Repositories,
) -> None:
    """Until it is rebuilt, a board with only the latest changes would be a lie."""
    player = await repositories.player()
    await repositories.redis.client.flushdb()
    assert await repositories.leaderboard.put(Score(player.user_id, "x", 1, START)) is None
    assert not await repositories.leaderboard.is_built()
    for read in (
        repositories.leaderboard.top(10),
        repositories.leaderboard.around(player.user_id, 3),
        repositories.leaderboard.standing(player.user_id),
    ):
        with pytest.raises(LeaderboardNotCached):
            await read
    with pytest.raises(LeaderboardNotCached):
        await repositories.drift_checker.run(repair=True)
    assert await repositories.rebuilder.rebuild() == 1
    assert await repositories.leaderboard.is_built()
    assert (await repositories.leaderboard.top(10)).standings == (
        await repositories.scores.top(10)
    ).standings


async def test_changes_made_during_a_rebuild_are_on_the_new_board(
    repositories: Repositories,
) -> None:
    """A score that rose, a new player and one who was deleted, all after PostgreSQL was read."""
    players = [await repositories.player() for _ in range(3)]
    for player in players:
        await repositories.add(player, 10, at(1))
        await repositories.write_through(player)

    async def meanwhile() -> None:
        await repositories.add(players[0], 5, at(2))
        await repositories.write_through(players[0])
        await repositories.write_through(await repositories.player(moment=at(3)))
        await repositories.accounts.delete(players[1].user_id)
        await repositories.leaderboard.remove(players[1].user_id)

    assert await builder_with(repositories, meanwhile).rebuild() == 3
    board = await repositories.leaderboard.top(10)
    assert board == await repositories.scores.top(10)
    assert (board.standings[0].user_id, board.standings[0].score) == (players[0].user_id, 15)
    assert await keys_of(repositories) - {
        b"leaderboard:global:removed:" + players[1].user_id.encode()
    } == {LEADERBOARD.encode(), PLAYERS.encode(), CHANGED.encode()}, "nothing is left over"
    assert [
        await repositories.redis.client.ttl(key) for key in (LEADERBOARD, PLAYERS, CHANGED)
    ] == [
        -1,
        -1,
        -1,
    ], "nothing expires"


async def test_readers_have_the_old_board_until_the_new_one_is_whole(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    await repositories.add(player, 10, at(1))
    await repositories.write_through(player)
    before = await repositories.leaderboard.top(10)
    seen = []

    async def meanwhile() -> None:
        seen.append(await repositories.leaderboard.top(10))

    await builder_with(repositories, meanwhile).rebuild()
    assert seen == [before]


async def test_only_one_rebuilds_at_a_time(repositories: Repositories) -> None:
    await repositories.player()

    async def meanwhile() -> None:
        with pytest.raises(RebuildInProgress):
            await repositories.rebuilder.rebuild()

    assert await builder_with(repositories, meanwhile).rebuild() == 1
    assert await repositories.rebuilder.rebuild() == 1


async def test_a_rebuild_that_redis_forgot_fails_and_can_be_begun_again(
    repositories: Repositories,
) -> None:
    await repositories.player()
    await repositories.player()
    with pytest.raises(CacheUnavailable, match="lost the leaderboard"):
        await builder_with(repositories, repositories.redis.client.flushdb).rebuild()
    assert not await repositories.leaderboard.is_built()
    assert await repositories.rebuilder.rebuild() == 2


async def test_a_rebuild_that_is_cut_off_leaves_the_old_board_and_nothing_else(
    repositories: Repositories,
) -> None:
    """What cannot clean up after itself expires."""
    player = await repositories.player()
    await repositories.write_through(player)
    reached, never = asyncio.Event(), asyncio.Event()

    async def meanwhile() -> None:
        await repositories.write_through(await repositories.player())
        reached.set()
        await never.wait()

    rebuilding = asyncio.create_task(builder_with(repositories, meanwhile).rebuild())
    await reached.wait()
    assert 0 < await repositories.redis.client.ttl(REBUILDING) <= MARKER_TTL_SECONDS
    rebuilding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rebuilding
    assert await keys_of(repositories) == {LEADERBOARD.encode(), PLAYERS.encode(), CHANGED.encode()}
    assert len((await repositories.leaderboard.top(10)).standings) == 2


async def test_a_board_without_players_is_whole_and_empty(repositories: Repositories) -> None:
    assert await repositories.rebuilder.rebuild() == 0
    board = await repositories.leaderboard.top(10)
    assert (board.standings, board.total_players, board.changed_at) == ((), 0, None)


async def test_more_players_than_fit_a_page_are_all_loaded(repositories: Repositories) -> None:
    """And what Redis then has, in PostgreSQL's own digits, is what a single write would have put."""
    await repositories.database.value(
        "many",
        "WITH made AS (INSERT INTO users (username, email, password_hash)"
        " SELECT 'many_' || n, n || '@example.org', 'hash' FROM generate_series(1, 1203) n RETURNING id)"
        " INSERT INTO scores (user_id, total_score, score_first_reached_at)"
        " SELECT id, floor(random() * 9007199254740991), now() - random() * interval '20 years' FROM made",
    )
    assert await repositories.rebuilder.rebuild() == 1203
    assert (await repositories.leaderboard.top(100, 600)).standings == (
        await repositories.scores.top(100, 600)
    ).standings
    drift = await repositories.drift_checker.run(repair=False)
    assert (drift.compared, drift.differences) == (1203, 0)
    best = (await repositories.leaderboard.top(1)).standings[0]
    seen = (await repositories.leaderboard.read_entries([best.user_id]))[0]
    assert seen.matches(Score(best.user_id, best.username, best.score, best.reached_at))


async def test_drift_of_every_kind_is_found_told_and_healed(repositories: Repositories) -> None:
    """Missing, wrong score, wrong time, wrong name, nobody's entry, and a place that belongs to nobody."""
    players = [await repositories.player() for _ in range(7)]
    for number, player in enumerate(players):
        await repositories.add(player, 10 * (number + 1), at(number))
        await repositories.write_through(player)
    client = repositories.redis.client
    right = await repositories.scores.find_many([player.user_id for player in players])
    missing, wrong, late, renamed, half = (right[player.user_id] for player in players[:5])
    stranger = "ffffffff-0000-4000-8000-000000000000"
    await client.zrem(
        LEADERBOARD, (await client.hget(PLAYERS, missing.user_id))[:16] + missing.user_id.encode()
    )
    await client.hdel(PLAYERS, missing.user_id)
    for spoilt in (
        replace(wrong, score=999),
        replace(late, reached_at=at(50), score=late.score + 1),
        replace(renamed, username="old_name", score=renamed.score + 1),
    ):
        await repositories.leaderboard.put(spoilt)
    await client.zrem(
        LEADERBOARD, (await client.hget(PLAYERS, half.user_id))[:16] + half.user_id.encode()
    )
    await repositories.leaderboard.put(Score(stranger, "stranger", 5, at(1)))
    await client.zadd(LEADERBOARD, {b"0" * 16 + missing.user_id.encode(): 77, b"rubbish": 1})
    await client.hset(PLAYERS, "not an id", "0" * 16 + "x")

    told = await repositories.drift_checker.run(repair=False)
    assert (told.compared, told.missing, told.wrong, told.extra, told.strays, told.repaired) == (
        7,
        2,
        3,
        2,
        2,
        0,
    )
    assert {missing.user_id, wrong.user_id, stranger} <= set(told.examples)
    repaired = await repositories.drift_checker.run(repair=True)
    assert repaired.differences == repaired.repaired == told.differences
    assert (await repositories.drift_checker.run(repair=True)).differences == 0
    assert (await repositories.leaderboard.top(10)).standings == (
        await repositories.scores.top(10)
    ).standings


async def test_healing_never_undoes_what_came_after_it_was_seen(repositories: Repositories) -> None:
    """Redis is set right only if it is still as it was seen."""
    player = await repositories.player()
    await repositories.write_through(player)
    seen = (await repositories.leaderboard.read_entries([player.user_id]))[0]
    newer = Score(player.user_id, player.username, 50, at(5))
    await repositories.leaderboard.put(newer)
    assert not await repositories.leaderboard.repair(
        player.user_id, seen, Score(player.user_id, player.username, 20, at(2))
    )
    assert not await repositories.leaderboard.repair(player.user_id, seen, None)
    place = await repositories.leaderboard.standing(player.user_id)
    assert place is not None
    assert (place[0].score, place[0].reached_at) == (50, at(5))


async def test_comparing_while_scores_change_finds_nothing_that_stays(
    repositories: Repositories,
) -> None:
    """What was on its way has arrived by the second look, or is healed to what it was on its way to."""
    players = [await repositories.player() for _ in range(5)]
    for player in players:
        await repositories.write_through(player)

    async def play() -> None:
        for number in range(20):
            player = players[number % 5]
            await repositories.add(player, 1 + number, START + timedelta(seconds=number))
            await repositories.write_through(player)

    async def compare() -> None:
        for _ in range(5):
            await repositories.drift_checker.run(repair=True)

    await asyncio.gather(play(), compare())
    assert (await repositories.drift_checker.run(repair=False)).differences == 0
    assert await repositories.leaderboard.top(10) == await repositories.scores.top(10)
