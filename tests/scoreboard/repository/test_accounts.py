"""Accounts, sessions and completed actions in PostgreSQL."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from tally.errors import Invalid, NotFound
from tally.scoreboard.model.accounts import (
    ClientInfo,
    NewUser,
    PlayerSession,
    RefreshState,
    User,
    is_canonical_user_id,
    parse_user_id,
)
from tally.scoreboard.model.errors import ActionExists, EmailTaken, UsernameTaken
from tally.scoreboard.model.scores import CompletedAction
from tests.scoreboard.repository.harness import START, Repositories, at


def new_user(username: str, email: str) -> NewUser:
    return NewUser(str(uuid.uuid4()), username, email, "hash")


def new_session(user: User, number: int = 1, **changes: object) -> PlayerSession:
    session = PlayerSession(
        session_id=str(uuid.uuid4()),
        user_id=user.user_id,
        token_hash=f"{number:064x}",
        refresh=RefreshState(f"{number + 1000:064x}", uuid.uuid4().bytes, 0, at(number)),
        created_at=at(number),
        expires_at=at(3600),
        client=ClientInfo("2001:db8::1", "browser"),
    )
    return replace(session, **changes)  # type: ignore[arg-type]


async def test_a_new_account_has_a_rank(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    assert await repositories.accounts.find(player.user_id) == player
    standing = await repositories.scores.standing(player.user_id)
    assert standing is not None
    assert (standing[0].rank, standing[0].score, standing[0].reached_at, standing[1]) == (
        1,
        0,
        START,
        1,
    )


async def test_usernames_and_emails_are_unique_regardless_of_case(
    repositories: Repositories,
) -> None:
    """A login finds them in any case."""
    anna = await repositories.accounts.create(new_user("Anna", "Anna@Example.org"), START)
    with pytest.raises(UsernameTaken):
        await repositories.accounts.create(new_user("aNNA", "other@example.org"), START)
    with pytest.raises(EmailTaken):
        await repositories.accounts.create(new_user("Other", "ANNA@example.ORG"), START)
    for login in ("anna", "ANNA", "anna@example.org", "ANNA@EXAMPLE.ORG"):
        credentials = await repositories.accounts.find_credentials(login)
        assert credentials is not None
        assert credentials.user == anna
    assert await repositories.accounts.find_credentials("hannah") is None
    assert (await repositories.scores.top(10)).total_players == 1, (
        "a rejected account leaves nothing behind"
    )


async def test_a_password_hash_can_be_changed_and_is_not_in_the_repr(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    await repositories.accounts.update_password_hash(player.user_id, "hash", "a better hash", at(9))
    credentials = await repositories.accounts.find_credentials(player.username)
    assert credentials is not None
    assert credentials.password_hash == "a better hash"
    assert credentials.user.updated_at == at(9)
    assert "better" not in repr(credentials)


async def test_deleting_an_account_deletes_score_and_sessions_and_keeps_its_history(
    repositories: Repositories,
) -> None:
    player, other = await repositories.player(), await repositories.player()
    await repositories.add(player, 5, at(1))
    session = new_session(player)
    await repositories.sessions.create(session)
    deleted = await repositories.accounts.delete(player.user_id, START)
    assert deleted is not None
    assert (deleted.places, deleted.access_token_hashes) == ([], [session.token_hash])
    assert len(deleted.action_token_hashes) == 1
    assert await repositories.accounts.delete(player.user_id, START) is None
    assert await repositories.accounts.find(player.user_id) is None
    assert await repositories.scores.find(player.user_id) is None
    assert await repositories.sessions.find(new_session(player).token_hash) is None
    assert (await repositories.events.find_by_user(player.user_id, 10)).events == ()
    row = await repositories.database.row(
        "event", "SELECT user_id, score_after, client_info FROM score_events"
    )
    assert dict(row or {}) == {"user_id": None, "score_after": 5, "client_info": {}}
    page = await repositories.scores.top(10)
    assert ([standing.user_id for standing in page.standings], page.total_players) == (
        [other.user_id],
        1,
    )


async def test_values_that_cannot_be_stored_are_invalid(repositories: Repositories) -> None:
    """A NUL character, a malformed id, and a value that is too long."""
    for account in (new_user("zero\0", "z@example.org"), new_user("x" * 51, "x@example.org")):
        with pytest.raises(Invalid):
            await repositories.accounts.create(account, START)
    with pytest.raises(Invalid):
        await repositories.accounts.find("not an id")


def test_user_ids_have_a_canonical_form() -> None:
    canonical = "0a1b2c3d-0000-4000-8000-00000000000f"
    assert parse_user_id(canonical.upper()) == parse_user_id(f"{{{canonical}}}") == canonical
    assert is_canonical_user_id(canonical)
    assert not is_canonical_user_id(canonical.upper())
    with pytest.raises(Invalid, match="UUID"):
        parse_user_id("usr_abc123")


async def test_a_session_is_active_until_it_is_revoked_or_expires(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    session = new_session(player)
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


async def test_a_player_cannot_revoke_the_session_of_another(repositories: Repositories) -> None:
    player, other = await repositories.player(), await repositories.player()
    session = new_session(player)
    await repositories.sessions.create(session)
    assert await repositories.sessions.revoke(session.session_id, other.user_id, at(1)) is None
    assert [
        active.session_id
        for active in await repositories.sessions.find_active(player.user_id, at(1))
    ] == [session.session_id]


async def test_only_the_current_refresh_token_renews_a_session(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    session = new_session(player)
    assert await repositories.sessions.create(session)
    assert session.refresh.token_hash is not None
    renewed = replace(
        session,
        token_hash="a" * 64,
        refresh=replace(session.refresh, token_hash="b" * 64, generation=1, renewed_at=at(20)),
    )
    sessions = repositories.sessions
    assert await sessions.renew(renewed, session.refresh.token_hash) == renewed
    assert await sessions.renew(renewed, session.refresh.token_hash) is None
    assert await sessions.find_by_id(session.session_id) == renewed
    assert await sessions.revoke(session.session_id, player.user_id, at(21)) is not None
    assert await sessions.renew(renewed, "b" * 64) is None


async def test_a_session_needs_the_password_that_was_verified(repositories: Repositories) -> None:
    player = await repositories.player()
    credentials = await repositories.accounts.find_credentials(player.username)
    assert credentials is not None
    assert not await repositories.sessions.create(new_session(player), "another hash")
    assert await repositories.sessions.create(new_session(player), credentials.password_hash)


async def test_all_sessions_of_a_player_can_be_revoked_and_expired_ones_deleted(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    for number in range(5):
        await repositories.sessions.create(new_session(player, number, expires_at=at(100 + number)))
    newest_first = await repositories.sessions.find_active(player.user_id, at(50))
    assert [session.created_at for session in newest_first] == [
        at(number) for number in range(4, -1, -1)
    ]
    assert len(await repositories.sessions.revoke_all(player.user_id, at(50))) == 5
    assert await repositories.sessions.delete_expired(at(103), 2) == 2
    assert await repositories.sessions.delete_expired(at(103), 2) == 1
    assert await repositories.sessions.find(new_session(player, 4).token_hash) is not None


async def test_unusual_client_data_is_stored(repositories: Repositories) -> None:
    """An invalid address becomes NULL, and a long user agent is truncated."""
    player = await repositories.player()
    await repositories.sessions.create(
        new_session(player, 1, client=ClientInfo("unix:", "x" * 9000))
    )
    stored = await repositories.sessions.find(new_session(player, 1).token_hash)
    assert stored is not None
    assert stored.client.ip_address is None
    assert stored.client.user_agent == "x" * 500


async def test_an_action_can_be_repeated_but_not_changed(
    repositories: Repositories,
) -> None:
    player = await repositories.player()
    action = CompletedAction(
        "match-1", player.user_id, 100, START, START + timedelta(minutes=5), {"level": 1}
    )
    assert await repositories.actions.create(action)
    assert not await repositories.actions.create(action)
    other = await repositories.player()
    for changed in (replace(action, max_score=99), replace(action, user_id=other.user_id)):
        with pytest.raises(ActionExists):
            await repositories.actions.create(changed)
    with pytest.raises(NotFound):
        await repositories.actions.create(
            replace(action, action_id="match-2", user_id=str(uuid.uuid4()))
        )
    later = replace(action, expires_at=at(900))
    assert not await repositories.actions.create(later)
    assert await repositories.actions.delete_old(at(900), 10) == 0
    assert await repositories.actions.delete_old(at(901), 10) == 1
    assert await repositories.actions.create(action)
