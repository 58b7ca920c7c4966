"""Console sessions: new IDs, hashes only, and every way in which a session ends."""

from datetime import timedelta
from typing import Any

import pytest

from tally.instance.console_sessions import ConsoleSession, ConsoleSessions
from tally.instance.operators import OperatorAccounts, open_operators
from tally.instance.repository.console_sessions import (
    CONSOLE_SESSIONS,
    ConsoleSessionRepository,
)
from tally.kit.clock import ManualClock
from tally.kit.operators import AUTOMATION, Operator, Role
from tally.settings import Secret, Settings
from tally.store.api import Scan
from tally.store.store import Store
from tests.instance.test_operators import new_name

IDLE_SECONDS = 600
LIFETIME_SECONDS = 3_600
# Accounts are cached for this long.
CACHE_SECONDS = 5


def make_sessions(store: Store, clock: ManualClock, **settings: Any) -> ConsoleSessions:
    """Build the sessions as one instance does."""
    operators = open_operators(Settings(**settings), store, clock)
    return ConsoleSessions(
        ConsoleSessionRepository(store),
        operators,
        clock,
        idle_timeout=IDLE_SECONDS,
        lifetime=LIFETIME_SECONDS,
    )


@pytest.fixture
def sessions(store: Store, clock: ManualClock) -> ConsoleSessions:
    return make_sessions(store, clock)


async def sign_in(
    operators: OperatorAccounts, clock: ManualClock, role: Role = Role.OPERATOR, days: int = 90
) -> Operator:
    """Create an operator and return it as its token authenticates it."""
    token = await operators.add(new_name(), role, clock.now() + timedelta(days=days))
    return await operators.authenticate(token)


async def found(sessions: ConsoleSessions, cookie: str) -> ConsoleSession:
    session = await sessions.find(cookie)
    assert session is not None
    return session


async def test_every_sign_in_has_a_new_cookie_and_only_hashes_are_stored(
    sessions: ConsoleSessions, store: Store, clock: ManualClock
) -> None:
    operator = await sign_in(sessions.operators, clock, Role.VIEWER)
    first, second = await sessions.start(operator), await sessions.start(operator)
    assert first != second
    for cookie in (first, second):
        assert (await found(sessions, cookie)).operator == operator
    page = await store._engine.scan(Scan(CONSOLE_SESSIONS))
    assert first not in str(page.items)
    assert second not in str(page.items)


async def test_an_unknown_cookie_is_not_a_session(sessions: ConsoleSessions) -> None:
    for cookie in ("", "planted", "x" * 10_000, "\x00ÿ"):
        assert await sessions.find(cookie) is None


async def test_sign_out_ends_one_session_on_every_instance(
    sessions: ConsoleSessions, store: Store, clock: ManualClock
) -> None:
    other_instance = make_sessions(store, clock)
    operator = await sign_in(sessions.operators, clock)
    first, second = await sessions.start(operator), await sessions.start(operator)
    session = await found(other_instance, first)
    await sessions.end(session)
    assert await other_instance.find(first) is None
    assert await other_instance.find(second) is not None
    await clock.advance(IDLE_SECONDS / 2)
    await other_instance.extend(session)
    assert await sessions.find(first) is None, "use does not revive an ended session"


async def test_removal_of_the_operator_ends_its_sessions(
    sessions: ConsoleSessions, store: Store, clock: ManualClock
) -> None:
    """Also on an instance that checks often, and if the name is used again."""
    other_instance = make_sessions(store, clock)
    operator = await sign_in(sessions.operators, clock)
    cookie = await sessions.start(operator)
    await found(other_instance, cookie)
    await sessions.operators.remove(operator.name)
    assert await sessions.find(cookie) is None
    await sessions.operators.add(operator.name, Role.OPERATOR, None)
    assert await sessions.find(cookie) is None
    for _ in range(CACHE_SECONDS):
        await found(other_instance, cookie)
        await clock.advance(1)
    assert await other_instance.find(cookie) is None


async def test_the_end_of_the_operators_token_ends_its_sessions(
    sessions: ConsoleSessions, clock: ManualClock
) -> None:
    operator = await sign_in(sessions.operators, clock, days=1)
    await clock.advance(86_400 - 60)
    cookie = await sessions.start(operator)
    await found(sessions, cookie)
    await clock.advance(60)
    assert await sessions.find(cookie) is None


async def test_another_automation_token_ends_the_sessions_of_the_first(
    store: Store, clock: ManualClock
) -> None:
    before = make_sessions(store, clock, operator_token=Secret("a" * 40))
    cookie = await before.start(await before.operators.authenticate("a" * 40))
    assert (await found(before, cookie)).operator.name == AUTOMATION
    after = make_sessions(store, clock, operator_token=Secret("b" * 40))
    assert await after.find(cookie) is None


async def test_an_unused_session_ends_after_the_idle_timeout(
    sessions: ConsoleSessions, clock: ManualClock
) -> None:
    cookie = await sessions.start(await sign_in(sessions.operators, clock))
    await clock.advance(IDLE_SECONDS - 1)
    session = await found(sessions, cookie)
    await clock.advance(1)
    assert await sessions.find(cookie) is None
    await sessions.extend(session)
    assert await sessions.find(cookie) is None, "use does not revive an ended session"


async def test_a_used_session_lasts_until_the_end_of_its_lifetime(
    sessions: ConsoleSessions, clock: ManualClock
) -> None:
    cookie = await sessions.start(await sign_in(sessions.operators, clock))
    for _ in range(LIFETIME_SECONDS // 500):
        await clock.advance(500)
        await sessions.extend(await found(sessions, cookie))
    await clock.advance(LIFETIME_SECONDS % 500)
    assert await sessions.find(cookie) is None


async def test_frequent_use_costs_few_writes(
    sessions: ConsoleSessions, store: Store, clock: ManualClock
) -> None:
    session = await found(sessions, await sessions.start(await sign_in(sessions.operators, clock)))
    seen = {session.expires_at}
    for _ in range(IDLE_SECONDS):
        await clock.advance(1)
        session = await sessions.extend(session)
        seen.add(session.expires_at)
    assert 5 <= len(seen) <= 12
