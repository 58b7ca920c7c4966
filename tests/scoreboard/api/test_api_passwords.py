"""Passwords: their strength, throttled guesses, change, and signing out everywhere."""

import asyncio
import io
import json
from collections import Counter
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tally.scoreboard.model.accounts import ClientInfo
from tests.api_response import ApiResponse, expect_error
from tests.scoreboard.api.harness import (
    PLAYER_HASH,
    Json,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers
from tests.scoreboard.api.test_api_accounts import PASSWORD, me, register, registration

NEW_PASSWORD = "an entirely different phrase"


async def login(
    harness: ScoreboardHarness, name: str, password: str, address: str | None = None
) -> ApiResponse:
    """Log in from any address: the trusted proxy of the tests names it."""
    headers = {} if address is None else {"X-Forwarded-For": address}
    return await harness.send(
        "POST", "/auth/login", {"login": name, "password": password}, headers=headers
    )


@pytest.mark.parametrize(
    "password",
    ["password123", "qwertyuiop", "1234567890", "aaaaaaaaaaaa", "iloveyou12", "P@ssw0rd123"],
)
async def test_a_common_password_is_rejected(harness: ScoreboardHarness, password: str) -> None:
    response = await harness.send(
        "POST", "/auth/register", registration("fresh_name", password=password)
    )
    expect_error(response, 400, "weak_password", field="password")


@pytest.mark.parametrize("password", ["my Benjamin77 secret", "BENJAMIN77 and more words"])
async def test_a_password_must_not_contain_the_username(
    harness: ScoreboardHarness, password: str
) -> None:
    response = await harness.send(
        "POST", "/auth/register", registration("benjamin77", password=password)
    )
    expect_error(response, 400, "weak_password", field="password")


async def test_a_player_with_a_short_password_can_still_log_in(
    harness: ScoreboardHarness,
) -> None:
    player = await harness.player()
    services = harness.scoreboard.services.accounts
    short = await services.passwords.hash("8 chars!")
    await services.accounts.update_password_hash(
        player.user_id, PLAYER_HASH, short, harness.clock.now()
    )
    assert (await login(harness, player.username, "8 chars!")).status == 200


async def test_guesses_from_many_addresses_are_throttled(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Of 150 guesses from 150 addresses, five reach the password, whichever name they use."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        name, _ = await register(harness)
        responses: list[ApiResponse] = []
        for logins in ((name, name.upper(), f"{name}@example.com"), ("nobody", "Nobody", "NOBODY")):
            responses = await asyncio.gather(
                *(
                    login(harness, logins[number % 3], "wrong", f"198.51.100.{number}")
                    for number in range(150)
                )
            )
            assert Counter(response.status for response in responses) == {401: 5, 429: 145}
        rejected = next(response for response in responses if response.status == 429)
        expect_error(rejected, 429, "too_many_sign_ins")
        assert rejected.headers["retry-after"] == "1"
        metrics = harness.application.metrics.registry.get_sample_value
        for reason, count in (("invalid_credentials", 10), ("throttled", 290)):
            labels = {"backend": "scoreboard", "reason": reason}
            assert metrics("tally_failed_sign_ins_total", labels) == count


async def test_the_wait_doubles_up_to_a_quarter_of_an_hour(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        name, _ = await register(harness)
        waits: list[int] = []
        for _ in range(17):
            assert (await login(harness, name, "wrong", "198.51.100.1")).status == 401
            if len(waits) < 4:
                waits.append(0)
                continue
            # Even a correct password has to wait, or each guess would be answered.
            rejected = await login(harness, name, PASSWORD, "198.51.100.2")
            assert rejected.status == 429
            waits.append(int(rejected.headers["retry-after"]))
            harness.skip_time(waits[-1])
        assert waits == [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900]
        assert (await login(harness, name, PASSWORD, "198.51.100.2")).status == 200
        assert (await login(harness, name, "wrong", "198.51.100.1")).status == 401


async def test_an_attacker_does_not_lock_out_the_owner(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """At an address where the player has signed in before, the attacker's guesses do not count."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings, ManualClock()) as harness:
        name = "victim_of_guesses"
        owner = {"X-Forwarded-For": "2001:db8:0:7::1"}
        created = await harness.send("POST", "/auth/register", registration(name), headers=owner)
        assert created.status == 201
        for number in range(50):
            await login(harness, name, "wrong", f"203.0.113.{number}")
        assert (await login(harness, name, PASSWORD, "192.0.2.1")).status == 429
        # Another address of the same /64 network.
        assert (await login(harness, name, PASSWORD, "2001:db8:0:7:ffff::2")).status == 200
        assert (await login(harness, name, PASSWORD, "2001:db8:0:8::1")).status == 429
        # Elsewhere, the correct password works after the wait.
        harness.skip_time(15 * 60)
        assert (await login(harness, name, PASSWORD, "192.0.2.1")).status == 200


async def test_ipv6_addresses_of_one_network_share_a_rate_limit(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    settings = server_settings(await shared_servers.allocate(), tmp_path, scoreboard_auth_limit=10)
    async with run_scoreboard(settings, ManualClock()) as harness:
        statuses = [
            (await login(harness, f"name_{number}", "wrong", f"2001:db8::{number:x}")).status
            for number in range(12)
        ]
        assert statuses == [401] * 10 + [429] * 2
        assert (await login(harness, "name_13", "wrong", "2001:db8:0:1::1")).status == 401


async def test_failed_sign_ins_are_logged_without_the_login(
    harness: ScoreboardHarness, log: io.StringIO
) -> None:
    name, data = await register(harness)
    await login(harness, name, "wrong guess")
    await login(harness, "somebody@example.com", "wrong guess")
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    failed = [line for line in lines if line["action"] == "sign_in_failed"]
    assert [line.get("userId") for line in failed] == [data["user"]["user_id"], None]
    for text in (name, "somebody", "wrong guess"):
        assert text not in json.dumps(failed)


async def change(harness: ScoreboardHarness, token: str, current: str, new: str) -> ApiResponse:
    body = {"current_password": current, "new_password": new}
    return await harness.send("POST", "/auth/password", body, token=token)


async def test_a_new_password_replaces_the_old_one_and_ends_other_sessions(
    harness: ScoreboardHarness,
) -> None:
    name, first = await register(harness)
    second: Json = (await login(harness, name, PASSWORD)).result
    token = second["tokens"]["access_token"]
    assert (await change(harness, token, PASSWORD, NEW_PASSWORD)).status == 204
    assert (await me(harness, token)).status == 200
    expect_error(await me(harness, first["tokens"]["access_token"]), 401, "session_revoked")
    refresh = {"refresh_token": first["tokens"]["refresh_token"]}
    assert (await harness.send("POST", "/auth/refresh", refresh)).status == 401
    assert (await login(harness, name, PASSWORD)).status == 401
    assert (await login(harness, name, NEW_PASSWORD)).status == 200


async def test_a_change_of_password_requires_the_current_one(harness: ScoreboardHarness) -> None:
    """A stolen access token cannot guess it: attempts are throttled."""
    name, data = await register(harness)
    token = data["tokens"]["access_token"]
    for _ in range(5):
        expect_error(
            await change(harness, token, "wrong", NEW_PASSWORD),
            403,
            "wrong_password",
            field="current_password",
        )
    expect_error(await change(harness, token, PASSWORD, NEW_PASSWORD), 429, "too_many_sign_ins")
    assert (await login(harness, name, PASSWORD)).status == 200


async def test_the_new_password_must_be_strong(harness: ScoreboardHarness) -> None:
    name, data = await register(harness)
    for weak in ("password123", f"long {name} phrase"):
        response = await change(harness, data["tokens"]["access_token"], PASSWORD, weak)
        expect_error(response, 400, "weak_password", field="new_password")
    assert (await login(harness, name, PASSWORD)).status == 200


async def test_concurrent_logins_with_the_old_password_do_not_outlive_the_change(
    harness: ScoreboardHarness,
) -> None:
    """Whichever order they take, no session of the old password remains."""
    name, data = await register(harness)
    token = data["tokens"]["access_token"]
    _, *logins = await asyncio.gather(
        change(harness, token, PASSWORD, NEW_PASSWORD),
        *(login(harness, name, PASSWORD) for _ in range(4)),
    )
    for response in logins:
        if response.status == 200:
            late = response.result["tokens"]["access_token"]
            expect_error(await me(harness, late), 401, "session_revoked")
    listed = (await harness.send("GET", "/auth/sessions", token=token)).result["items"]
    assert [session["is_current"] for session in listed] == [True]


async def test_signing_out_everywhere_ends_all_sessions(harness: ScoreboardHarness) -> None:
    player = await harness.player()
    services = harness.scoreboard.services
    user = await services.accounts.accounts.find(player.user_id)
    assert user is not None
    other = await services.sessions.open(user, ClientInfo())
    assert (await harness.send("DELETE", "/auth/sessions", token=player.token)).status == 204
    for token in (player.token, other.access_token):
        expect_error(await me(harness, token), 401, "session_revoked")
