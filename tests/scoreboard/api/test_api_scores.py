"""Score updates: completed actions, idempotent token use and rejected tokens."""

import asyncio
import base64
import io
import json
from pathlib import Path

import msgspec
import pytest

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.kit.keyring import Key
from tally.scoreboard.model.scores import MAX_SCORE
from tally.settings import Secret
from tests.api_response import expect_error
from tests.scoreboard.api.harness import (
    ACTION_KEY,
    INTERNAL,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers


def signed(payload: bytes, key: Secret) -> str:
    parts = (payload, Key.of(key).signature(payload))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def decode_payload(token: str) -> bytes:
    payload = token.partition(".")[0]
    return base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))


async def test_a_score_update_returns_total_points_and_rank(
    fresh_harness: ScoreboardHarness,
) -> None:
    """The leaderboard shows the same."""
    ana, ben = await fresh_harness.player("ana"), await fresh_harness.player("ben")
    first = await fresh_harness.score(ana, 50)
    assert (first["new_score"], first["score_added"], first["rank"]) == (50, 50, 1)
    assert (await fresh_harness.score(ben, 80))["rank"] == 1
    second = await fresh_harness.score(ana, 20)
    assert (second["new_score"], second["score_added"], second["rank"]) == (70, 20, 2)
    leaderboard = await fresh_harness.leaderboard()
    assert [
        (entry["rank"], entry["username"], entry["score"]) for entry in leaderboard["items"]
    ] == [
        (1, "ben", 80),
        (2, "ana", 70),
    ]
    assert (leaderboard["total_players"], leaderboard["last_updated"]) == (2, second["updated_at"])


async def test_a_repeated_token_returns_the_same_response_and_adds_nothing(
    harness: ScoreboardHarness,
) -> None:
    """Byte for byte, even with another score_delta and after other players moved."""
    player, other = await harness.player(), await harness.player()
    token = await harness.complete_action(player, 100)
    first = await harness.update_score(player, token, 60)
    await harness.score(other, 10_000)
    for delta in (60, 1, 100):
        repeated = await harness.update_score(player, token, delta)
        assert (repeated.status, repeated.body) == (200, first.body)
    own = (await harness.send("GET", "/scores/me", token=player.token)).result
    assert own["score"] == 60


async def test_a_hundred_concurrent_uses_of_one_token_add_once(harness: ScoreboardHarness) -> None:
    """All of them return the same response."""
    player = await harness.player()
    token = await harness.complete_action(player)
    responses = await asyncio.gather(*(harness.update_score(player, token, 7) for _ in range(100)))
    assert {response.status for response in responses} == {200}
    assert len({response.body for response in responses}) == 1
    assert (await harness.send("GET", "/scores/me", token=player.token)).result["score"] == 7


async def test_an_invalid_action_token_is_rejected(harness: ScoreboardHarness) -> None:
    """Nothing is added, and the valid token still works afterwards."""
    player, other = await harness.player(), await harness.player()
    token = await harness.complete_action(player, 100)
    payload = decode_payload(token)
    richer = msgspec.json.encode(json.loads(payload) | {"max_score": 10_000})
    forged_payload = base64.urlsafe_b64encode(richer).rstrip(b"=").decode()
    other_key = Secret("another key of at least 32 characters")
    invalid_tokens = {
        "forged": f"{forged_payload}.{token.partition('.')[2]}",
        "truncated": token[:-1],
        "without a signature": token.partition(".")[0] + ".",
        "re-signed": signed(payload, other_key),
        "of another key": signed(
            msgspec.json.encode(json.loads(payload) | {"key_id": Key.of(other_key).key_id}),
            other_key,
        ),
        "padded": token + "=",
        "not a token": "x",
    }
    for name, text in invalid_tokens.items():
        response = await harness.update_score(player, text, 10)
        assert (name, response.json["code"]) == (name, "invalid_action_token")
        expect_error(response, 400, "invalid_action_token", field="action_token")
    expect_error(await harness.update_score(other, token, 10), 400, "invalid_action_token")
    assert (await harness.update_score(player, token, 10)).result["new_score"] == 10


async def test_more_points_than_the_maximum_are_rejected(harness: ScoreboardHarness) -> None:
    """The token remains unused."""
    player = await harness.player()
    token = await harness.complete_action(player, 100)
    expect_error(
        await harness.update_score(player, token, 101),
        400,
        "score_exceeds_max",
        field="score_delta",
        max_score=100,
    )
    assert (await harness.update_score(player, token, 100)).result["new_score"] == 100


@pytest.mark.parametrize("delta", [0, -5, 1.5, "7", None, 10_001, 2**63])
async def test_an_invalid_score_delta_is_rejected(
    harness: ScoreboardHarness, delta: object
) -> None:
    player = await harness.player()
    body = {"action_token": await harness.complete_action(player), "score_delta": delta}
    expect_error(
        await harness.send("PATCH", "/scores", body, player.token),
        400,
        "invalid_field",
        field="score_delta",
    )


async def test_a_token_expires_but_its_response_remains_available(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """A token used in time returns its response for another hour; an unused one is rejected."""
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_access_seconds=7200
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        player = await harness.player()
        used, unused = await harness.complete_action(player), await harness.complete_action(player)
        first = await harness.update_score(player, used, 10)
        harness.skip_time(299)
        late = await harness.complete_action(player)
        assert (await harness.update_score(player, late, 5)).result["new_score"] == 15
        harness.skip_time(1)
        expect_error(await harness.update_score(player, unused, 10), 400, "invalid_action_token")
        harness.skip_time(3000)
        assert (await harness.update_score(player, used, 10)).body == first.body
        await harness.scoreboard.redis.client.flushdb()
        assert (await harness.update_score(player, used, 9_999)).body == first.body


async def test_keys_can_be_rotated_without_downtime(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Tokens of the old key are valid exactly as long as it is in the keyring."""
    addresses, new = await shared_servers.allocate(), Secret("the new key that signs action tokens")
    async with run_scoreboard(server_settings(addresses, tmp_path)) as harness:
        player = await harness.player()
        tokens = [await harness.complete_action(player) for _ in range(2)]
    async with run_scoreboard(
        server_settings(addresses, tmp_path, scoreboard_action_keys=(new, ACTION_KEY))
    ) as harness:
        assert (await harness.update_score(player, tokens[0], 3)).result["new_score"] == 3
        newer = await harness.complete_action(player)
    async with run_scoreboard(
        server_settings(addresses, tmp_path, scoreboard_action_keys=(new,))
    ) as harness:
        expect_error(await harness.update_score(player, tokens[1], 3), 400, "invalid_action_token")
        assert (await harness.update_score(player, newer, 4)).result["new_score"] == 7


async def test_a_score_never_exceeds_the_largest_safe_integer(harness: ScoreboardHarness) -> None:
    """The update is rejected, and the token remains unused."""
    player = await harness.player()
    await harness.scoreboard.database.value(
        "test",
        "UPDATE scores SET total_score = $2 WHERE user_id = $1",
        player.user_id,
        MAX_SCORE - 5,
    )
    token = await harness.complete_action(player)
    expect_error(await harness.update_score(player, token, 6), 409, "score_too_great")
    assert (await harness.update_score(player, token, 5)).result["new_score"] == MAX_SCORE


async def test_an_action_can_be_reported_once(harness: ScoreboardHarness) -> None:
    player, action_id = await harness.player(), new_uuid()
    await harness.complete_action(player, action_id=action_id)
    body = {"action_id": action_id, "user_id": player.user_id, "max_score": 5}
    response = await harness.send(
        "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
    )
    expect_error(response, 409, "action_exists", field="action_id")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"user_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}, 404, "user_not_found"),
        ({"user_id": "ana"}, 400, "invalid_field"),
        ({"max_score": 0}, 400, "invalid_field"),
        ({"max_score": 10_001}, 400, "invalid_field"),
        ({"action_id": ""}, 400, "invalid_field"),
        ({"action_id": "x" * 101}, 400, "invalid_field"),
        ({"action_id": "with\nline"}, 400, "invalid_field"),
        ({"metadata": [1]}, 400, "invalid_field"),
        ({"metadata": {"long": "x" * 4096}}, 400, "invalid_field"),
        ({"metadata": {"nothing": "\0"}}, 400, "invalid_value"),
        ({"more": 1}, 400, "unknown_field"),
    ],
)
async def test_an_invalid_action_is_rejected(
    harness: ScoreboardHarness, change: dict[str, object], status: int, code: str
) -> None:
    player = await harness.player()
    body = {"action_id": new_uuid(), "user_id": player.user_id, "max_score": 100} | change
    response = await harness.send(
        "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
    )
    expect_error(response, status, code)


@pytest.mark.parametrize(
    "headers", [{}, {"X-Internal-API-Key": "wrong"}, {"X-Internal-API-Key": ""}]
)
async def test_reporting_an_action_requires_the_game_server_key(
    harness: ScoreboardHarness, headers: dict[str, str]
) -> None:
    body = {"action_id": "a", "user_id": new_uuid(), "max_score": 5}
    expect_error(
        await harness.send("POST", "/internal/actions/complete", body, headers=headers),
        401,
        "invalid_api_key" if any(headers.values()) else "missing_api_key",
    )


async def test_the_history_is_paged_and_contains_the_metadata(harness: ScoreboardHarness) -> None:
    """Newest first, each change once; another player's cursor is rejected."""
    player, other = await harness.player(), await harness.player()
    for level in range(5):
        token = await harness.complete_action(
            player, metadata={"level": level}, action_id=f"{player.username}-{level}"
        )
        await harness.update_score(player, token, 10)
    page = (await harness.send("GET", "/users/me/events?limit=2", token=player.token)).result
    events, cursor = page["items"], page["next_cursor"]
    expect_error(
        await harness.send("GET", f"/users/me/events?cursor={cursor}", token=other.token),
        400,
        "invalid_cursor",
    )
    while cursor is not None:
        page = (
            await harness.send(
                "GET", f"/users/me/events?limit=2&cursor={cursor}", token=player.token
            )
        ).result
        events, cursor = events + page["items"], page["next_cursor"]
    assert [event["metadata"] for event in events] == [
        {"level": level} for level in (4, 3, 2, 1, 0)
    ]
    assert [(event["score_before"], event["score_after"]) for event in events] == [
        (40, 50),
        (30, 40),
        (20, 30),
        (10, 20),
        (0, 10),
    ]


async def test_a_score_update_is_logged_in_the_specified_format(
    harness: ScoreboardHarness, log: io.StringIO
) -> None:
    """One line with all fields of the log format, and without the token."""
    player = await harness.player()
    token = await harness.complete_action(player)
    response = (await harness.update_score(player, token, 42)).result
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    [line] = [
        line
        for line in lines
        if line["action"] == "score_update" and line["userId"] == player.user_id
    ]
    assert set(line) == {
        "timestamp",
        "level",
        "service",
        "requestId",
        "userId",
        "action",
        "message",
        "data",
        "correlationId",
    }
    assert (line["level"], line["service"], line["message"]) == (
        "info",
        "scoreboard-api",
        "Score updated successfully",
    )
    assert line["data"] == {"scoreDelta": 42, "newScore": 42, "rank": response["rank"]}
    assert token not in log.getvalue()
