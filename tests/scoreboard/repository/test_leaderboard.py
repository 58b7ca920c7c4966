"""The leaderboard in Redis: late writes, removals, data loss, rebuild and drift."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from tally.scoreboard.model.errors import CacheUnavailable, LeaderboardNotCached, RebuildInProgress
from tally.scoreboard.model.scores import Score
from tally.scoreboard.repository.database import Row
from tally.scoreboard.repository.leaderboard import (
    CHANGED,
    LEADERBOARD,
    PLAYERS,
    REBUILDING,
    VERSION,
    CachedEntry,
)
from tally.scoreboard.repository.rebuild import MARKER_TTL_SECONDS, LeaderboardRebuilder
from tally.scoreboard.repository.scores import ScoreRepository
from tests.scoreboard.repository.harness import START, Repositories, at

# The keys of a complete leaderboard.
COMPLETE = (LEADERBOARD, PLAYERS, CHANGED, VERSION)


@dataclass(frozen=True, slots=True)
class InterruptedScores(ScoreRepository):
    """Scores that run a callback after the first page, when PostgreSQL's snapshot is fixed."""

    meanwhile: Callable[[], Awaitable[object]]

    async def entries(self, size: int) -> AsyncIterator[list[Row]]:
        is_called = False
        async for rows in ScoreRepository.entries(self, min(size, 1)):
            if not is_called:
                is_called = True
                await self.meanwhile()
            yield rows


def rebuilder_with(
    repositories: Repositories, meanwhile: Callable[[], Awaitable[object]]
) -> LeaderboardRebuilder:
    return LeaderboardRebuilder(
        repositories.redis,
        InterruptedScores(repositories.database, repositories.scores.clock, meanwhile),
    )


async def leaderboard_keys(repositories: Repositories) -> set[bytes]:
    return set(await repositories.redis.client.keys("leaderboard:*"))


async def test_put_returns_the_rank_and_ignores_older_revisions(
    repositories: Repositories,
) -> None:
    """A delayed write must not undo a newer one."""
    first, second = await repositories.player(), await repositories.player()
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 10, at(1), 1)) == 1
    assert await repositories.leaderboard.put(Score(second.user_id, "second", 20, at(2), 1)) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 30, at(3), 2)) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 10, at(1), 1)) == 1
    assert await repositories.leaderboard.put(Score(first.user_id, "first", 30, at(9), 2)) == 1
    page = await repositories.leaderboard.top(10)
    assert [
        (standing.username, standing.score, standing.reached_at) for standing in page.standings
    ] == [
        ("first", 30, at(3)),
        ("second", 20, at(2)),
    ]
    assert page.changed_at == at(3)
    assert (
        await repositories.redis.client.zcard(LEADERBOARD)
        == await repositories.redis.client.hlen(PLAYERS)
        == 2
    )


async def test_a_late_write_does_not_restore_a_removed_player(
    repositories: Repositories,
) -> None:
    player, other = await repositories.player(), await repositories.player()
    for user in (player, other):
        await repositories.add(user, 5, at(1))
        await repositories.write_through(user)
    assert await repositories.leaderboard.remove(player.user_id) is not None
    assert (
        await repositories.leaderboard.put(Score(player.user_id, player.username, 99, at(2), 2))
        is None
    )
    assert [
        standing.user_id for standing in (await repositories.leaderboard.top(10)).standings
    ] == [other.user_id]
    assert await repositories.leaderboard.remove(player.user_id) is None
    assert await repositories.leaderboard.standing(player.user_id) is None
    assert await repositories.leaderboard.around(player.user_id, 5) is None


async def test_an_emptied_redis_reports_that_the_leaderboard_is_missing(
    repositories: Repositories,
) -> None:
    """Until the rebuild, it would contain only the latest changes."""
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


async def test_changes_during_a_rebuild_are_in_the_new_leaderboard(
    repositories: Repositories,
) -> None:
    """A higher score, a new player and a deletion, all after the snapshot."""
    players = [await repositories.player() for _ in range(3)]
    for player in players:
        await repositories.add(player, 10, at(1))
        await repositories.write_through(player)

    async def meanwhile() -> None:
        await repositories.add(players[0], 5, at(2))
        await repositories.write_through(players[0])
        await repositories.write_through(await repositories.player(moment=at(3)))
        await repositories.accounts.delete(players[1].user_id, START)
        await repositories.leaderboard.remove(players[1].user_id)

    assert await rebuilder_with(repositories, meanwhile).rebuild() == 3
    page = await repositories.leaderboard.top(10)
    assert page == await repositories.scores.top(10)
    assert (page.standings[0].user_id, page.standings[0].score) == (players[0].user_id, 15)
    assert await leaderboard_keys(repositories) - {
        b"leaderboard:global:removed:" + players[1].user_id.encode()
    } == {key.encode() for key in COMPLETE}, "nothing is left over"
    assert [await repositories.redis.client.ttl(key) for key in COMPLETE] == [-1] * 4, (
        "nothing expires"
    )


async def test_reads_use_the_old_leaderboard_until_the_new_one_is_complete(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    await repositories.add(player, 10, at(1))
    await repositories.write_through(player)
    before = await repositories.leaderboard.top(10)
    pages = []

    async def meanwhile() -> None:
        pages.append(await repositories.leaderboard.top(10))

    await rebuilder_with(repositories, meanwhile).rebuild()
    assert pages == [before]


async def test_only_one_rebuild_runs_at_a_time(repositories: Repositories) -> None:
    await repositories.player()

    async def meanwhile() -> None:
        with pytest.raises(RebuildInProgress):
            await repositories.rebuilder.rebuild()

    assert await rebuilder_with(repositories, meanwhile).rebuild() == 1
    assert await repositories.rebuilder.rebuild() == 1


async def test_a_rebuild_that_redis_lost_fails_and_can_be_repeated(
    repositories: Repositories,
) -> None:
    await repositories.player()
    await repositories.player()
    with pytest.raises(CacheUnavailable, match="lost the leaderboard"):
        await rebuilder_with(repositories, repositories.redis.client.flushdb).rebuild()
    assert not await repositories.leaderboard.is_built()
    assert await repositories.rebuilder.rebuild() == 2


async def test_a_cancelled_rebuild_leaves_the_old_leaderboard_only(
    repositories: Repositories,
) -> None:
    """The partial keys have a TTL, in case they cannot be deleted."""
    player = await repositories.player()
    await repositories.write_through(player)
    reached, never = asyncio.Event(), asyncio.Event()

    async def meanwhile() -> None:
        await repositories.write_through(await repositories.player())
        reached.set()
        await never.wait()

    rebuilding = asyncio.create_task(rebuilder_with(repositories, meanwhile).rebuild())
    await reached.wait()
    assert 0 < await repositories.redis.client.ttl(REBUILDING) <= MARKER_TTL_SECONDS
    rebuilding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rebuilding
    assert await leaderboard_keys(repositories) == {key.encode() for key in COMPLETE}
    assert len((await repositories.leaderboard.top(10)).standings) == 2


async def test_a_leaderboard_without_players_is_complete_and_empty(
    repositories: Repositories,
) -> None:
    assert await repositories.rebuilder.rebuild() == 0
    page = await repositories.leaderboard.top(10)
    assert (page.standings, page.total_players, page.changed_at) == ((), 0, None)


async def test_a_rebuild_loads_all_pages(repositories: Repositories) -> None:
    """The entries that PostgreSQL formats equal those of single writes."""
    await repositories.database.value(
        "many",
        "WITH created AS (INSERT INTO users (username, email, password_hash)"
        " SELECT 'many_' || n, n || '@example.org', 'hash'"
        " FROM generate_series(1, 1203) n RETURNING id)"
        " INSERT INTO scores (user_id, total_score, score_first_reached_at)"
        " SELECT id, floor(random() * 9007199254740991), now() - random() * interval '20 years'"
        " FROM created",
    )
    assert await repositories.rebuilder.rebuild() == 1203
    assert (await repositories.leaderboard.top(100, 600)).standings == (
        await repositories.scores.top(100, 600)
    ).standings
    drift = await repositories.drift_checker.run(repair=False)
    assert (drift.compared, drift.differences) == (1203, 0)
    best = (await repositories.leaderboard.top(1)).standings[0]
    entry = (await repositories.leaderboard.read_entries([best.user_id]))[0]
    assert entry.matches(Score(best.user_id, best.username, best.score, best.reached_at))


async def test_drift_of_every_kind_is_reported_and_repaired(repositories: Repositories) -> None:
    """Missing players, wrong scores, times and names, unknown players and stray members."""
    players = [await repositories.player() for _ in range(7)]
    for number, player in enumerate(players):
        await repositories.add(player, 10 * (number + 1), at(number))
        await repositories.write_through(player)
    client = repositories.redis.client
    scores = await repositories.scores.find_many([player.user_id for player in players])
    missing, wrong, late, renamed, half = (scores[player.user_id] for player in players[:5])
    unknown = "ffffffff-0000-4000-8000-000000000000"
    await client.zrem(
        LEADERBOARD, (await client.hget(PLAYERS, missing.user_id))[:16] + missing.user_id.encode()
    )
    await client.hdel(PLAYERS, missing.user_id)
    for wrong_score in (
        replace(wrong, score=999, revision=9),
        replace(late, reached_at=at(50), revision=9),
        replace(renamed, username="old_name", revision=9),
    ):
        await repositories.leaderboard.put(wrong_score)
    await client.zrem(
        LEADERBOARD, (await client.hget(PLAYERS, half.user_id))[:16] + half.user_id.encode()
    )
    await repositories.leaderboard.put(Score(unknown, "unknown", 5, at(1)))
    await client.zadd(LEADERBOARD, {b"0" * 16 + missing.user_id.encode(): 77, b"rubbish": 1})
    await client.hset(PLAYERS, "not an id", "0" * 16 + "x")

    report = await repositories.drift_checker.run(repair=False)
    assert (
        report.compared,
        report.missing,
        report.wrong,
        report.extra,
        report.strays,
        report.repaired,
    ) == (
        7,
        2,
        3,
        2,
        2,
        0,
    )
    assert {missing.user_id, wrong.user_id, unknown} <= set(report.examples)
    repaired = await repositories.drift_checker.run(repair=True)
    assert repaired.differences == repaired.repaired == report.differences
    assert (await repositories.drift_checker.run(repair=True)).differences == 0
    assert (await repositories.leaderboard.top(10)).standings == (
        await repositories.scores.top(10)
    ).standings


async def test_a_repair_does_not_undo_a_concurrent_change(repositories: Repositories) -> None:
    """An entry is replaced only if it is unchanged since it was read."""
    player = await repositories.player()
    await repositories.write_through(player)
    entry = (await repositories.leaderboard.read_entries([player.user_id]))[0]
    newer = Score(player.user_id, player.username, 50, at(5), 1)
    await repositories.leaderboard.put(newer)
    assert not await repositories.leaderboard.repair(
        player.user_id, entry, Score(player.user_id, player.username, 20, at(2))
    )
    assert not await repositories.leaderboard.repair(player.user_id, entry, None)
    standing = await repositories.leaderboard.standing(player.user_id)
    assert standing is not None
    assert (standing[0].score, standing[0].reached_at) == (50, at(5))


async def test_a_late_removal_undoes_neither_a_later_score_nor_a_deletion(
    repositories: Repositories,
) -> None:
    """A ban that reaches Redis after the end of the ban, or after the deletion of the account."""
    leaderboard, player = repositories.leaderboard, await repositories.player()
    later = Score(player.user_id, player.username, 20, at(2), revision=4)

    async def unban_and_remove_late() -> None:
        await leaderboard.put(later)
        assert await leaderboard.remove(player.user_id, 2) is None

    await repositories.rebuilder.rebuild()
    await unban_and_remove_late()
    assert await leaderboard.standing(player.user_id) is not None
    assert await rebuilder_with(repositories, unban_and_remove_late).rebuild() == 1
    assert await leaderboard.remove(player.user_id) == 1
    assert await leaderboard.remove(player.user_id, 2) is None
    assert await leaderboard.put(later) is None
    assert await leaderboard.standing(player.user_id) is None


async def test_changes_during_a_rebuild_that_is_abandoned_expire(
    repositories: Repositories,
) -> None:
    """As when Redis does not respond at its end: nothing else deletes them."""
    player, gone, client = (
        await repositories.player(),
        await repositories.player(),
        repositories.redis.client,
    )
    await client.set(REBUILDING, "leaderboard:global:new:x", ex=MARKER_TTL_SECONDS)
    await repositories.leaderboard.put(Score(player.user_id, player.username, 20, at(2), 1))
    await repositories.leaderboard.remove(gone.user_id)
    keys = await client.keys("leaderboard:global:new:*")
    assert len(keys) == 4
    for key in keys:
        assert 0 < await client.ttl(key) <= MARKER_TTL_SECONDS


async def test_a_leaderboard_that_was_dropped_is_not_repaired(repositories: Repositories) -> None:
    """A repair that comes late leaves no key of a closed season."""
    player = await repositories.player()
    assert await repositories.rebuilder.rebuild() == 1
    await repositories.leaderboard.drop()
    score = Score(player.user_id, player.username, 20, at(2))
    assert not await repositories.leaderboard.repair(player.user_id, CachedEntry(b"", b""), score)
    assert await leaderboard_keys(repositories) == set()


async def test_drift_checks_during_changes_leave_no_difference(
    repositories: Repositories,
) -> None:
    """A change in progress has arrived by the second read, or is repaired to the same value."""
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
