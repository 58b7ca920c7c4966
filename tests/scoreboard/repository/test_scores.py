"""Score changes in PostgreSQL: exactly once, atomic, and with one stored response."""

import asyncio
import secrets

import pytest

from tally.errors import NotFound
from tally.scoreboard.model.accounts import User
from tally.scoreboard.model.errors import ForeignActionToken, ScoreOverflow
from tally.scoreboard.model.scores import MAX_SCORE, CompletedAction, Score
from tests.scoreboard.repository.harness import START, Repositories, at, score_change


async def test_a_score_change_records_when_the_score_was_reached(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    first = await repositories.add(player, 10, at(1))
    second = await repositories.add(player, 5, at(2))
    assert (first.score_before, first.score_after, first.is_replay, first.response) == (
        0,
        10,
        False,
        None,
    )
    assert (second.score_before, second.score_after, second.at) == (10, 15, at(2))
    assert (
        await repositories.scores.find(player.user_id)
        == second.score
        == Score(player.user_id, player.username, 15, at(2), revision=2)
    )
    page = await repositories.events.find_by_user(player.user_id, 10)
    assert [
        (event.score_delta, event.score_before, event.score_after) for event in page.events
    ] == [(5, 10, 15), (10, 0, 10)]


async def test_a_token_counts_once_and_keeps_its_response(
    repositories: Repositories,
) -> None:
    """Even with another score_delta, and later."""
    player = await repositories.player()
    token_hash = secrets.token_hex(32)
    first = await repositories.add(player, 10, at(1), token_hash)
    assert await repositories.scores.store_response(token_hash, b'{"rank":1}') == b'{"rank":1}'
    assert await repositories.scores.store_response(token_hash, b'{"rank":2}') == b'{"rank":1}', (
        "the first response is anonymous"
    )
    replay = await repositories.add(player, 9999, at(60), token_hash)
    assert replay.is_replay
    assert (replay.score_delta, replay.score_before, replay.score_after, replay.at) == (
        10,
        0,
        10,
        first.at,
    )
    assert replay.response == b'{"rank":1}'
    assert await repositories.scores.find_response(f"action-{token_hash[:8]}") == (
        player.user_id,
        b'{"rank":1}',
    )
    assert await repositories.scores.find_response("unknown") is None


async def test_a_hundred_concurrent_uses_of_one_token_add_once(
    repositories: Repositories,
) -> None:
    """Each proposes a response, and all return the one that was stored first."""
    player = await repositories.player()
    token_hash = secrets.token_hex(32)

    async def use(number: int) -> tuple[bool, bytes]:
        applied = await repositories.add(player, 7, at(number), token_hash)
        response = applied.response or await repositories.scores.store_response(
            token_hash, f"response {number}".encode()
        )
        return applied.is_replay, response

    results = await asyncio.gather(*(use(number) for number in range(100)))
    assert [is_replay for is_replay, _ in results].count(False) == 1
    assert len({response for _, response in results}) == 1
    score = await repositories.scores.find(player.user_id)
    assert score is not None
    assert score.score == 7
    assert len((await repositories.events.find_by_user(player.user_id, 10)).events) == 1


async def test_concurrent_tokens_of_one_player_all_count(repositories: Repositories) -> None:
    player = await repositories.player()
    applied = await asyncio.gather(
        *(repositories.add(player, number, at(number)) for number in range(1, 51))
    )
    assert sorted(change.score_after - change.score_before for change in applied) == list(
        range(1, 51)
    )
    score = await repositories.scores.find(player.user_id)
    assert score is not None
    assert score.score == sum(range(1, 51))


async def test_a_score_never_exceeds_the_maximum(repositories: Repositories) -> None:
    """A rejected token can still be used for less."""
    player = await repositories.player()
    await repositories.set_score(Score(player.user_id, player.username, MAX_SCORE - 5, START))
    token_hash = secrets.token_hex(32)
    with pytest.raises(ScoreOverflow):
        await repositories.add(player, 6, at(1), token_hash)
    assert (await repositories.add(player, 5, at(2), token_hash)).score_after == MAX_SCORE
    with pytest.raises(ScoreOverflow):
        await repositories.add(player, 1, at(3))


async def test_a_foreign_token_and_an_unknown_player_are_rejected(
    repositories: Repositories,
) -> None:
    """Nothing is stored."""
    player, other = await repositories.player(), await repositories.player()
    token_hash = secrets.token_hex(32)
    await repositories.add(player, 1, at(1), token_hash)
    with pytest.raises(ForeignActionToken):
        await repositories.add(other, 1, at(2), token_hash)
    unknown = User("00000000-0000-4000-8000-000000000000", "nobody", "n@example.org", START, START)
    unused_hash = secrets.token_hex(32)
    with pytest.raises(NotFound):
        await repositories.add(unknown, 1, at(1), unused_hash)
    assert await repositories.scores.find_response(f"action-{unused_hash[:8]}") is None


async def test_the_metadata_of_an_action_is_copied_to_its_event(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    change = score_change(player, 3, at(1))
    await repositories.actions.create(
        CompletedAction(
            change.action_id, player.user_id, 10, START, at(300), {"level": 4, "game": {"id": "ü"}}
        )
    )
    await repositories.scores.apply(change)
    (event,) = (await repositories.events.find_by_user(player.user_id, 10)).events
    assert event.metadata == {"level": 4, "game": {"id": "ü"}}
    assert event.action_id == change.action_id


async def test_score_changes_and_deletions_do_not_deadlock(
    repositories: Repositories,
) -> None:
    """Each change precedes the deletion or finds no player."""
    players = [await repositories.player() for _ in range(10)]

    async def add(player: User, number: int) -> bool:
        try:
            await repositories.add(player, 1, at(number))
        except NotFound:
            return False
        return True

    adding = [add(player, number) for number in range(5) for player in players]
    deleting = [repositories.accounts.delete(player.user_id, START) for player in players]
    results = await asyncio.gather(*adding, *deleting)
    assert None not in results[len(adding) :], "every deletion found its account"
    assert (await repositories.scores.top(100)).standings == ()
    anonymous = await repositories.database.value(
        "count", "SELECT count(*) FROM score_events WHERE user_id IS NULL"
    )
    assert anonymous == results[: len(adding)].count(True)


async def test_old_rows_are_deleted_in_batches(repositories: Repositories) -> None:
    """Oldest first, and nothing that is not old."""
    player = await repositories.player()
    for number in range(10):
        await repositories.add(player, 1, at(number))
    # The tokens are good for five minutes after the moment of their use.
    assert await repositories.scores.delete_expired_tokens(at(300 + 6), 4) == 4
    assert await repositories.scores.delete_expired_tokens(at(300 + 6), 4) == 2
    assert await repositories.scores.delete_expired_tokens(at(300 + 6), 4) == 0
    assert await repositories.events.delete_old(at(3), 100) == 3
    page = await repositories.events.find_by_user(player.user_id, 100)
    assert [event.created_at for event in page.events] == [at(number) for number in range(9, 2, -1)]


async def test_history_pages_neither_skip_nor_repeat_events(repositories: Repositories) -> None:
    """Even with equal times, and with new events in between."""
    player = await repositories.player()
    for number in range(11):
        await repositories.add(player, 1, at(number // 4))
    event_ids, key = [], None
    while True:
        page = await repositories.events.find_by_user(player.user_id, 3, key)
        event_ids += [event.event_id for event in page.events]
        await repositories.add(player, 1, at(100 + len(event_ids)))
        key = page.next_key
        if key is None:
            break
    assert len(event_ids) == len(set(event_ids)) == 11


async def test_the_leaderboard_has_the_time_of_the_last_change(repositories: Repositories) -> None:
    assert (await repositories.scores.top(10)).changed_at is None
    assert (await repositories.leaderboard.top(10)).changed_at is None
    player = await repositories.player()
    await repositories.add(player, 1, at(5))
    await repositories.write_through(player)
    assert (await repositories.scores.top(10)).changed_at == at(5)
    assert (await repositories.leaderboard.top(10)).changed_at == at(5)
