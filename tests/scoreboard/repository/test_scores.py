"""Trading a token for points: once, whole, and with one answer."""

import asyncio
import secrets

import pytest

from tally.errors import NotFound
from tally.scoreboard.model import (
    MAX_SCORE,
    CompletedAction,
    ForeignActionToken,
    Score,
    ScoreOverflow,
    User,
)
from tests.scoreboard.repository.harness import START, Repositories, at, change


async def test_points_are_added_with_the_moment_the_score_was_reached(
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
    assert (second.score_before, second.score_after, second.at, second.username) == (
        10,
        15,
        at(2),
        player.username,
    )
    assert await repositories.scores.find(player.user_id) == Score(
        player.user_id, player.username, 15, at(2)
    )
    page = await repositories.events.find_by_user(player.user_id, 10)
    assert [
        (event.score_delta, event.score_before, event.score_after) for event in page.events
    ] == [(5, 10, 15), (10, 0, 10)]


async def test_a_token_counts_once_and_is_answered_the_same_ever_after(
    repositories: Repositories,
) -> None:
    """Also if it comes with other points, and later."""
    player = await repositories.player()
    used = secrets.token_hex(32)
    first = await repositories.add(player, 10, at(1), used)
    assert await repositories.scores.store_response(used, b'{"rank":1}') == b'{"rank":1}'
    assert await repositories.scores.store_response(used, b'{"rank":2}') == b'{"rank":1}', (
        "the first answer stands"
    )
    again = await repositories.add(player, 9999, at(60), used)
    assert again.is_replay
    assert (again.score_delta, again.score_before, again.score_after, again.at) == (
        10,
        0,
        10,
        first.at,
    )
    assert again.response == b'{"rank":1}'
    assert await repositories.scores.find_response(used) == (player.user_id, b'{"rank":1}')
    assert await repositories.scores.find_response("f" * 64) is None


async def test_a_hundred_uses_of_one_token_at_once_add_once_and_get_one_answer(
    repositories: Repositories,
) -> None:
    """Each of them makes up an answer; one of these is everybody's."""
    player = await repositories.player()
    used = secrets.token_hex(32)

    async def use(number: int) -> tuple[bool, bytes]:
        applied = await repositories.add(player, 7, at(number), used)
        answer = applied.response or await repositories.scores.store_response(
            used, f"answer {number}".encode()
        )
        return applied.is_replay, answer

    answers = await asyncio.gather(*(use(number) for number in range(100)))
    assert [is_replay for is_replay, _ in answers].count(False) == 1
    assert len({answer for _, answer in answers}) == 1
    score = await repositories.scores.find(player.user_id)
    assert score is not None
    assert score.score == 7
    assert len((await repositories.events.find_by_user(player.user_id, 10)).events) == 1


async def test_many_tokens_of_one_player_at_once_all_count(repositories: Repositories) -> None:
    player = await repositories.player()
    applied = await asyncio.gather(
        *(repositories.add(player, number, at(number)) for number in range(1, 51))
    )
    assert sorted(each.score_after - each.score_before for each in applied) == list(range(1, 51))
    score = await repositories.scores.find(player.user_id)
    assert score is not None
    assert score.score == sum(range(1, 51))


async def test_a_score_never_passes_the_greatest_safe_number(repositories: Repositories) -> None:
    """What would is refused, and the token can still be used for less."""
    player = await repositories.player()
    await repositories.set_score(Score(player.user_id, player.username, MAX_SCORE - 5, START))
    used = secrets.token_hex(32)
    with pytest.raises(ScoreOverflow):
        await repositories.add(player, 6, at(1), used)
    assert (await repositories.add(player, 5, at(2), used)).score_after == MAX_SCORE
    with pytest.raises(ScoreOverflow):
        await repositories.add(player, 1, at(3))


async def test_a_token_of_another_and_a_player_who_is_not_there_are_refused(
    repositories: Repositories,
) -> None:
    """Nothing of it stays."""
    player, other = await repositories.player(), await repositories.player()
    used = secrets.token_hex(32)
    await repositories.add(player, 1, at(1), used)
    with pytest.raises(ForeignActionToken):
        await repositories.add(other, 1, at(2), used)
    stranger = User("00000000-0000-4000-8000-000000000000", "nobody", "n@example.org", START, START)
    unused = secrets.token_hex(32)
    with pytest.raises(NotFound):
        await repositories.add(stranger, 1, at(1), unused)
    assert await repositories.scores.find_response(unused) is None


async def test_what_the_game_server_said_of_an_action_becomes_part_of_the_event(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    wanted = change(player, 3, at(1))
    await repositories.actions.create(
        CompletedAction(
            wanted.action_id, player.user_id, 10, START, at(300), {"level": 4, "game": {"id": "ü"}}
        )
    )
    await repositories.scores.apply(wanted)
    (event,) = (await repositories.events.find_by_user(player.user_id, 10)).events
    assert event.metadata == {"level": 4, "game": {"id": "ü"}}
    assert event.action_id == wanted.action_id


async def test_scores_change_while_accounts_are_deleted_without_a_deadlock(
    repositories: Repositories,
) -> None:
    """Each change is either before the deletion or finds nobody."""
    players = [await repositories.player() for _ in range(10)]

    async def add(player: User, number: int) -> bool:
        try:
            await repositories.add(player, 1, at(number))
        except NotFound:
            return False
        return True

    adding = [add(player, number) for number in range(5) for player in players]
    deleting = [repositories.accounts.delete(player.user_id) for player in players]
    results = await asyncio.gather(*adding, *deleting)
    assert all(results[len(adding) :]), "every deletion found its account"
    assert (await repositories.scores.top(100)).standings == ()
    kept = await repositories.database.value(
        "count", "SELECT count(*) FROM score_events WHERE user_id IS NULL"
    )
    assert kept == results[: len(adding)].count(True)


async def test_what_is_too_old_goes_in_small_batches(repositories: Repositories) -> None:
    """The oldest first; what is not too old stays."""
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


async def test_a_history_is_paged_without_gaps_or_repeats(repositories: Repositories) -> None:
    """Also where many events are of the same moment, and new ones come in between."""
    player = await repositories.player()
    for number in range(11):
        await repositories.add(player, 1, at(number // 4))
    seen, key = [], None
    while True:
        page = await repositories.events.find_by_user(player.user_id, 3, key)
        seen += [event.event_id for event in page.events]
        await repositories.add(player, 1, at(100 + len(seen)))
        key = page.next_key
        if key is None:
            break
    assert len(seen) == len(set(seen)) == 11


async def test_the_last_change_is_told(repositories: Repositories) -> None:
    assert (await repositories.scores.top(10)).changed_at is None
    assert (await repositories.leaderboard.top(10)).changed_at is None
    player = await repositories.player()
    await repositories.add(player, 1, at(5))
    await repositories.write_through(player)
    assert (await repositories.scores.top(10)).changed_at == at(5)
    assert (await repositories.leaderboard.top(10)).changed_at == at(5)
