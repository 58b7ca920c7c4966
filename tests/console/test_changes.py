"""Changes from a page: only by operators whose session has not ended, and always audited."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nicegui import Client, ui
from starlette.requests import Request

from tally.app import Application, open_application
from tally.console.access import SESSION, Changes
from tally.errors import Forbidden, Unauthenticated
from tally.instance.console_sessions import ConsoleSession, ConsoleSessions
from tally.kit.clock import ManualClock
from tally.kit.operators import Role
from tally.settings import Settings
from tests.instance.test_console_sessions import IDLE_SECONDS, found, make_sessions, sign_in


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def application(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Application]:
    settings = Settings(data_dir=tmp_path / "data", backends=("devices",))
    async with open_application(settings, clock) as application:
        yield application


@pytest.fixture
def sessions(application: Application, clock: ManualClock) -> ConsoleSessions:
    return make_sessions(application.store, clock)


@pytest.fixture
def changes(sessions: ConsoleSessions) -> Changes:
    return Changes(sessions, sessions.operators)


async def start_session(
    sessions: ConsoleSessions, clock: ManualClock, role: Role
) -> ConsoleSession:
    return await found(
        sessions, await sessions.start(await sign_in(sessions.operators, clock, role))
    )


@contextmanager
def open_page(session: ConsoleSession) -> Iterator[None]:
    """Run in the context of a page that was opened with this session."""
    scope = {"type": "http", "path": "/test", "headers": [], "query_string": b""}
    with Client(ui.page("/test"), request=Request(scope | {"state": {SESSION: session}})) as client:
        yield
    client.delete()


async def test_a_change_of_an_operator_is_audited(
    changes: Changes, sessions: ConsoleSessions, clock: ManualClock
) -> None:
    session = await start_session(sessions, clock, Role.OPERATOR)
    with open_page(session):
        async with changes.audited("device_rename", "devices/devices/AA", name="attic"):
            pass
    [record] = (await sessions.operators.changes(session.operator.name, 10))[0]
    assert (record.action, record.target) == ("device_rename", "devices/devices/AA")
    assert (record.outcome, dict(record.details)) == ("succeeded", {"name": "attic"})


async def test_a_viewer_cannot_change_anything(
    changes: Changes, sessions: ConsoleSessions, clock: ManualClock
) -> None:
    session = await start_session(sessions, clock, Role.VIEWER)
    ran = False
    with open_page(session), pytest.raises(Forbidden, match="may only read") as refused:
        async with changes.audited("device_rename", "devices/devices/AA"):
            ran = True
    assert (ran, refused.value.code) == (False, "read_only_operator")
    assert (await sessions.operators.changes(session.operator.name, 10))[0] == []


@pytest.mark.parametrize("end", ["sign_out", "removal", "idle"])
async def test_a_page_that_is_still_open_changes_nothing_after_its_session(
    changes: Changes, sessions: ConsoleSessions, clock: ManualClock, end: str
) -> None:
    session = await start_session(sessions, clock, Role.OPERATOR)
    if end == "sign_out":
        await sessions.end(session)
    elif end == "removal":
        await sessions.operators.remove(session.operator.name)
    else:
        await clock.advance(IDLE_SECONDS)
    ran = False
    with open_page(session), pytest.raises(Unauthenticated, match="session has ended"):
        async with changes.audited("device_rename", "devices/devices/AA"):
            ran = True
    assert not ran
