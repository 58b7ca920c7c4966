"""Password resets by mail: single-use tokens, and responses that do not tell who has an account."""

import asyncio
import io
import re
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tally.kit.clock import ManualClock
from tally.settings import Secret
from tally.sim.mail.simulator import MailSimulator
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    PLAYER_PASSWORD,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
    wait_until,
)
from tests.scoreboard.api.servers import SharedServers

NEW_PASSWORD = "four quite unusual words"
TABLES = ("password_reset_tokens", "password_reset_requests", "failed_sign_ins")

UNUSUAL = (
    ".!<=",
    "(?;.).",
    "():(#",
    "a,b",
    '_"<?',
    "=?utf-8?q?c=40example.net=2C?=",
    "=?a?b?'._.?=",
)
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
async def mail() -> AsyncIterator[MailSimulator]:
    async with MailSimulator(ManualClock()).serving() as simulator:
        yield simulator


@pytest.fixture
async def server(
    shared_servers: SharedServers, tmp_path: Path, mail: MailSimulator
) -> AsyncIterator[ScoreboardHarness]:
    """A server whose clock tests move; the tests send the mails."""
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_smtp_url=Secret(mail.smtp_url)
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        yield harness


async def forget(harness: ScoreboardHarness, email: str) -> ApiResponse:
    return await harness.send("POST", "/auth/password/forgot", {"email": email})


async def reset(harness: ScoreboardHarness, token: str, password: str) -> ApiResponse:
    body = {"token": token, "new_password": password}
    return await harness.send("POST", "/auth/password/reset", body)


async def login(harness: ScoreboardHarness, player: Player, password: str) -> ApiResponse:
    body = {"login": player.username, "password": password}
    return await harness.send("POST", "/auth/login", body)


async def request_token(harness: ScoreboardHarness, mail: MailSimulator, player: Player) -> str:
    """Request a mail and return its token."""
    assert (await forget(harness, f"{player.username}@Example.com")).status == 202
    await harness.scoreboard.services.password_resets.send_due()
    [newest, *_] = mail.find(f"{player.username}@example.com")
    found = re.search(r"^\S{43}$", newest.text, re.MULTILINE)
    assert found is not None, newest.text
    return found[0]


async def count_rows(harness: ScoreboardHarness, *tables: str) -> int:
    return sum(
        [
            await harness.scoreboard.database.value("test", f"SELECT count(*) FROM {table}")  # noqa: S608
            for table in tables
        ]
    )


async def test_a_token_works_once_and_ends_all_sessions(
    server: ScoreboardHarness, mail: MailSimulator, log: io.StringIO
) -> None:
    ana = await server.player("ana")
    first = await request_token(server, mail, ana)
    token = await request_token(server, mail, ana)
    stored = await server.scoreboard.database.rows("test", "SELECT * FROM password_reset_tokens")
    assert token not in str(stored)
    assert "ana" in mail.mails[0].text
    assert mail.mails[0].subject == "Reset your password"
    weak = await reset(server, token, "password1234")
    expect_error(weak, 400, "weak_password", field="new_password")
    assert (await reset(server, token, NEW_PASSWORD)).status == 204
    for used in (token, first):
        expect_error(await reset(server, used, NEW_PASSWORD), 400, "invalid_reset_token")
    own = await server.send("GET", "/scores/me", token=ana.token)
    expect_error(own, 401, "session_revoked")
    refreshed = await server.send("POST", "/auth/refresh", {"refresh_token": ana.refresh_token})
    assert refreshed.status == 401
    assert (await login(server, ana, PLAYER_PASSWORD)).status == 401
    assert (await login(server, ana, NEW_PASSWORD)).status == 200
    assert token not in log.getvalue()


async def test_the_response_does_not_tell_whether_an_account_exists(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    """Not even by throttling: an unknown address waits as long."""
    ana = await server.player("ana")
    responses: dict[str, list[Any]] = {}
    for email in (f"{ana.username}@example.com", "nobody@example.com"):
        answers = [await forget(server, email) for _ in range(6)]
        responses[email] = [
            (answer.status, answer.headers.get("retry-after")) for answer in answers
        ]
        expect_error(answers[-1], 429, "too_many_resets")
    known, unknown = responses.values()
    assert known == unknown
    await server.scoreboard.services.password_resets.send_due()
    assert [received.to for received in mail.mails] == [("ana@example.com",)]
    expect_error(await forget(server, "no address"), 400, "invalid_field", field="email")


async def test_a_token_expires(server: ScoreboardHarness, mail: MailSimulator) -> None:
    token = await request_token(server, mail, await server.player("ana"))
    server.skip_time(30 * 60)
    expect_error(await reset(server, token, NEW_PASSWORD), 400, "invalid_reset_token")
    server.skip_time(1)
    await server.scoreboard.services.retention.run()
    assert await count_rows(server, "password_reset_tokens") == 0


async def test_two_tokens_used_at_once_set_one_password(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    """The second one waits for the first, and then finds its token gone."""
    ana, database = await server.player("ana"), server.scoreboard.database
    tokens = [await request_token(server, mail, ana) for _ in range(2)]
    async with database.use("test") as connection, connection.transaction():
        await connection.execute("SELECT FROM users WHERE id = $1 FOR UPDATE", ana.user_id)
        resets = [asyncio.create_task(reset(server, token, NEW_PASSWORD)) for token in tokens]

        async def are_waiting() -> bool:
            return bool(await database.value("test", WAITING) == 2)

        await wait_until(are_waiting)
    responses = await asyncio.gather(*resets)
    assert sorted(response.status for response in responses) == [204, 400]
    assert (await login(server, ana, NEW_PASSWORD)).status == 200


async def test_an_address_that_no_mail_can_have_delays_no_other_mail(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    """Registration accepts these addresses; Python's parser of headers fails at some of them."""
    for number, local in enumerate(UNUSUAL):
        player = await server.player(f"unusual_{number}")
        body = {"email": f"{local}@example.org", "current_password": PLAYER_PASSWORD}
        changed = await server.send("PATCH", "/users/me", body, token=player.token)
        assert changed.status == 200, local
        assert (await forget(server, f"{local}@example.org")).status == 202
    ben = await server.player("ben")
    token = await request_token(server, mail, ben)
    assert (await reset(server, token, NEW_PASSWORD)).status == 204
    recipients = {received.to for received in mail.mails} - {("ben@example.com",)}
    assert recipients <= {(f"{local}@example.org",) for local in UNUSUAL}


async def test_a_mail_has_the_headers_that_mail_servers_require(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    ana = await server.player("ana")
    first, second = [
        (await request_token(server, mail, ana), mail.mails[0].headers)[1] for _ in range(2)
    ]
    assert first["To"] == "ana@example.com"
    assert parsedate_to_datetime(first["Date"]) == server.clock.now().replace(microsecond=0)
    assert re.fullmatch(r"<\S+@localhost\.localdomain>", first["Message-ID"])
    assert first["Message-ID"] != second["Message-ID"]


async def test_a_change_of_the_address_or_of_the_account_ends_tokens(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    ana = await server.player("ana")
    token = await request_token(server, mail, ana)
    body = {"email": "a@example.org", "current_password": PLAYER_PASSWORD}
    assert (await server.send("PATCH", "/users/me", body, token=ana.token)).status == 200
    expect_error(await reset(server, token, NEW_PASSWORD), 400, "invalid_reset_token")
    ben = await server.player("ben")
    token = await request_token(server, mail, ben)
    body = {"current_password": PLAYER_PASSWORD, "new_password": NEW_PASSWORD}
    assert (await server.send("POST", "/auth/password", body, token=ben.token)).status == 204
    expect_error(await reset(server, token, NEW_PASSWORD), 400, "invalid_reset_token")
    cem = await server.player("cem")
    token = await request_token(server, mail, cem)
    before = await count_rows(server, *TABLES)
    assert (await server.send("DELETE", "/users/me", token=cem.token)).status == 204
    expect_error(await reset(server, token, NEW_PASSWORD), 400, "invalid_reset_token")
    assert await count_rows(server, *TABLES) == before - 2, "the token and the count of requests"


async def test_no_token_is_sent_to_an_address_that_is_being_changed(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    """Whoever has the old address must not get the account."""
    ana, services = await server.player("ana"), server.scoreboard.services
    assert (await forget(server, "ana@example.com")).status == 202
    database = server.scoreboard.database
    async with database.use("test") as connection, connection.transaction():
        await connection.execute("UPDATE users SET email = 'new@example.com'")
        await connection.execute("DELETE FROM password_reset_tokens")
        sending = asyncio.create_task(services.password_resets.send_due())

        async def is_decided() -> bool:
            return sending.done() or bool(await database.value("test", WAITING))

        await wait_until(is_decided)
    await sending
    assert mail.find(f"{ana.username}@example.com") == []
    assert await count_rows(server, "password_reset_tokens") == 0


async def test_a_mail_is_sent_when_the_mail_server_works_again(
    server: ScoreboardHarness, mail: MailSimulator
) -> None:
    ana, resets = await server.player("ana"), server.scoreboard.services.password_resets
    mail.is_failing = True
    assert (await forget(server, "ana@example.com")).status == 202
    await resets.send_due()
    assert not mail.mails
    mail.is_failing = False
    await resets.send_due()
    assert not mail.mails, "the next attempt is in half a minute"
    server.skip_time(31)
    await resets.send_due()
    assert mail.find(f"{ana.username}@example.com")
    assert await count_rows(server, "password_reset_requests") == 0


async def test_without_a_mail_server_resets_are_disabled(harness: ScoreboardHarness) -> None:
    expect_error(await forget(harness, "ana@example.com"), 403, "password_reset_disabled")
