"""PlayerAccounts, sessions and completed actions in PostgreSQL."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from tally.errors import Invalid, NotFound
from tally.scoreboard.model import (
    ActionExists,
    ClientInfo,
    CompletedAction,
    EmailTaken,
    NewUser,
    PlayerSession,
    User,
    UsernameTaken,
    is_canonical_user_id,
    parse_user_id,
)
from tests.scoreboard.repository.harness import START, Repositories, at


def new_user(username: str, email: str) -> NewUser:
    return NewUser(str(uuid.uuid4()), username, email, "hash")


def session_of(user: User, number: int = 1, **changes: object) -> PlayerSession:
    made = PlayerSession(
        session_id=str(uuid.uuid4()),
        user_id=user.user_id,
        token_hash=f"{number:064x}",
        refresh_hash=f"{number + 1000:064x}",
        created_at=at(number),
        expires_at=at(3600),
        client=ClientInfo("2001:db8::1", "browser"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


async def test_an_account_has_a_place_on_the_board_from_the_first_moment(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    assert await repositories.accounts.find(player.user_id) == player
    place = await repositories.scores.standing(player.user_id)
    assert place is not None
    assert (place[0].rank, place[0].score, place[0].reached_at, place[1]) == (1, 0, START, 1)


async def test_names_and_addresses_are_unique_without_regard_to_case(
    repositories: Repositories,
) -> None:
    """And a login finds them in any case."""
    anna = await repositories.accounts.create(new_user("Anna", "Anna@Example.org"), START)
    with pytest.raises(UsernameTaken):
        await repositories.accounts.create(new_user("aNNA", "other@example.org"), START)
    with pytest.raises(EmailTaken):
        await repositories.accounts.create(new_user("Other", "ANNA@example.ORG"), START)
    for login in ("anna", "ANNA", "anna@example.org", "ANNA@EXAMPLE.ORG"):
        found = await repositories.accounts.find_credentials(login)
        assert found is not None
        assert found.user == anna
    assert await repositories.accounts.find_credentials("hannah") is None
    assert (await repositories.scores.top(10)).total_players == 1, (
        "an account that was refused leaves nothing behind"
    )


async def test_a_password_hash_can_be_changed_and_is_never_shown(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    await repositories.accounts.update_password_hash(player.user_id, "a better hash", at(9))
    found = await repositories.accounts.find_credentials(player.username)
    assert found is not None
    assert found.password_hash == "a better hash"
    assert found.user.updated_at == at(9)
    assert "better" not in repr(found)


async def test_a_deleted_account_takes_its_score_and_sessions_with_it_and_leaves_its_history_nameless(
    repositories: Repositories,
) -> None:
    player, other = await repositories.player(), await repositories.player()
    await repositories.add(player, 5, at(1))
    await repositories.sessions.create(session_of(player))
    assert await repositories.accounts.delete(player.user_id)
    assert not await repositories.accounts.delete(player.user_id)
    assert await repositories.accounts.find(player.user_id) is None
    assert await repositories.scores.find(player.user_id) is None
    assert await repositories.sessions.find(session_of(player).token_hash) is None
    assert (await repositories.events.find_by_user(player.user_id, 10)).events == ()
    row = await repositories.database.row(
        "event", "SELECT user_id, score_after, client_info FROM score_events"
    )
    assert dict(row or {}) == {"user_id": None, "score_after": 5, "client_info": {}}
    board = await repositories.scores.top(10)
    assert ([place.user_id for place in board.standings], board.total_players) == (
        [other.user_id],
        1,
    )


async def test_what_cannot_be_stored_is_the_callers_mistake(repositories: Repositories) -> None:
    """Text with a zero in it, an id that is none, and what is too long."""
    for account in (new_user("zero\0", "z@example.org"), new_user("x" * 51, "x@example.org")):
        with pytest.raises(Invalid):
            await repositories.accounts.create(account, START)
    with pytest.raises(Invalid):
        await repositories.accounts.find("not an id")


def test_an_id_has_one_spelling() -> None:
    spelt = "0a1b2c3d-0000-4000-8000-00000000000f"
    assert parse_user_id(spelt.upper()) == parse_user_id(f"{{{spelt}}}") == spelt
    assert is_canonical_user_id(spelt)
    assert not is_canonical_user_id(spelt.upper())
    with pytest.raises(Invalid, match="UUID"):
        parse_user_id("usr_abc123")


async def test_a_session_is_found_by_its_token_until_it_is_revoked_or_expires(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    session = session_of(player)
    await repositories.sessions.create(session)
    assert await repositories.sessions.find(session.token_hash) == session
    assert session.is_active(at(3599.9))
    assert not session.is_active(at(3600))
    assert await repositories.sessions.find_active(player.user_id, at(3600)) == []
    revoked = await repositories.sessions.revoke(session.session_id, player.user_id, at(10))
    assert revoked == replace(session, revoked_at=at(10))
    assert not revoked.is_active(at(11))
    assert await repositories.sessions.revoke(session.session_id, player.user_id, at(11)) is None
    assert await repositories.sessions.find_active(player.user_id, at(11)) == []


async def test_nobody_ends_the_session_of_another(repositories: Repositories) -> None:
    player, other = await repositories.player(), await repositories.player()
    session = session_of(player)
    await repositories.sessions.create(session)
    assert await repositories.sessions.revoke(session.session_id, other.user_id, at(1)) is None
    assert [
        each.session_id for each in await repositories.sessions.find_active(player.user_id, at(1))
    ] == [session.session_id]


async def test_a_refresh_token_works_once_and_ends_the_session_when_it_comes_again(
    repositories: Repositories,
) -> None:
    """Whoever comes second has a copy, or is the one it was copied from."""
    player = await repositories.player()
    session = session_of(player)
    await repositories.sessions.create(session)
    assert session.refresh_hash is not None
    renewal = await repositories.sessions.renew(session.refresh_hash, "a" * 64, "b" * 64, at(20))
    assert renewal.session == replace(session, token_hash="a" * 64, refresh_hash="b" * 64)
    assert renewal.revoked_hashes == (session.token_hash,)
    stolen = await repositories.sessions.renew(session.refresh_hash, "c" * 64, "d" * 64, at(21))
    assert (stolen.session, stolen.revoked_hashes, stolen.is_reuse) == (None, ("a" * 64,), True)
    assert (await repositories.sessions.renew("b" * 64, "e" * 64, "f" * 64, at(22))).session is None
    unknown = await repositories.sessions.renew("9" * 64, "e" * 64, "f" * 64, at(22))
    assert (unknown.session, unknown.is_reuse) == (None, False)


async def test_all_sessions_of_a_person_can_be_ended_and_old_ones_are_deleted(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    for number in range(5):
        await repositories.sessions.create(session_of(player, number, expires_at=at(100 + number)))
    newest_first = await repositories.sessions.find_active(player.user_id, at(50))
    assert [session.created_at for session in newest_first] == [
        at(number) for number in range(4, -1, -1)
    ]
    assert len(await repositories.sessions.revoke_all(player.user_id, at(50))) == 5
    assert await repositories.sessions.delete_expired(at(103), 2) == 2
    assert await repositories.sessions.delete_expired(at(103), 2) == 1
    assert await repositories.sessions.find(session_of(player, 4).token_hash) is not None


async def test_odd_clients_are_no_trouble(repositories: Repositories) -> None:
    """An address that is none is left out, and a long name of a browser is cut."""
    player = await repositories.player()
    await repositories.sessions.create(
        session_of(player, 1, client=ClientInfo("unix:", "x" * 9000))
    )
    found = await repositories.sessions.find(session_of(player, 1).token_hash)
    assert found is not None
    assert found.client.ip_address is None
    assert found.client.user_agent == "x" * 500


async def test_an_action_is_vouched_for_once_and_for_somebody(repositories: Repositories) -> None:
    player = await repositories.player()
    action = CompletedAction(
        "match-1", player.user_id, 100, START, START + timedelta(minutes=5), {"level": 1}
    )
    await repositories.actions.create(action)
    with pytest.raises(ActionExists):
        await repositories.actions.create(action)
    with pytest.raises(NotFound):
        await repositories.actions.create(
            replace(action, action_id="match-2", user_id=str(uuid.uuid4()))
        )
    assert await repositories.actions.delete_old(at(1), 10) == 1
    await repositories.actions.create(action)
