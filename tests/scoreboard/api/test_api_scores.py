"""Points for finished actions: vouched for by a game server, traded once, and refused in every other way."""

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
from tally.scoreboard.model import MAX_SCORE
from tally.settings import Secret
from tests.scoreboard.api.harness import (
    ACTION_KEY,
    INTERNAL,
    ScoreboardHarness,
    expect_error,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers


def signed(payload: bytes, key: Secret) -> str:
    parts = (payload, Key.of(key).signature(payload))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def payload_of(token: str) -> bytes:
    payload = token.partition(".")[0]
    return base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))


async def test_points_are_added_and_told_with_the_rank(fresh_harness: ScoreboardHarness) -> None:
    """The new total, what was added, the rank and the time; and the board shows the same."""
    ana, ben = await fresh_harness.player("ana"), await fresh_harness.player("ben")
    first = await fresh_harness.score(ana, 50)
    assert (first["new_score"], first["score_added"], first["rank"]) == (50, 50, 1)
    assert (await fresh_harness.score(ben, 80))["rank"] == 1
    second = await fresh_harness.score(ana, 20)
    assert (second["new_score"], second["score_added"], second["rank"]) == (70, 20, 2)
    shown = await fresh_harness.leaderboard()
    assert [
        (place["rank"], place["username"], place["score"]) for place in shown["leaderboard"]
    ] == [
        (1, "ben", 80),
        (2, "ana", 70),
    ]
    assert (shown["total_players"], shown["last_updated"]) == (2, second["updated_at"])


async def test_the_same_token_again_gets_the_same_answer_and_adds_nothing(
    harness: ScoreboardHarness,
) -> None:
    """Byte for byte, also with other points asked for, and after others have moved the board."""
    player, other = await harness.player(), await harness.player()
    token = await harness.complete_action(player, 100)
    first = await harness.update_score(player, token, 60)
    await harness.score(other, 10_000)
    for delta in (60, 1, 100):
        again = await harness.update_score(player, token, delta)
        assert (again.status, again.body) == (200, first.body)
    mine = (await harness.send("GET", "/scores/me", token=player.token)).data
    assert mine["score"] == 60


async def test_a_hundred_uses_of_one_token_at_once_add_once(harness: ScoreboardHarness) -> None:
    """And all get the same answer."""
    player = await harness.player()
    token = await harness.complete_action(player)
    answers = await asyncio.gather(*(harness.update_score(player, token, 7) for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert (await harness.send("GET", "/scores/me", token=player.token)).data["score"] == 7


async def test_a_token_that_does_not_hold_is_refused(harness: ScoreboardHarness) -> None:
    """Forged, foreign, truncated, re-signed, of a key that is not ours; nothing is added, and the real one still works."""
    player, other = await harness.player(), await harness.player()
    token = await harness.complete_action(player, 100)
    payload = payload_of(token)
    richer = msgspec.json.encode(json.loads(payload) | {"max_score": 10_000})
    stranger = Secret("a key of somebody else, 32 characters or more")
    wrong = {
        "forged": f"{base64.urlsafe_b64encode(richer).rstrip(b'=').decode()}.{token.partition('.')[2]}",
        "truncated": token[:-1],
        "without a signature": token.partition(".")[0] + ".",
        "re-signed": signed(payload, stranger),
        "of another key": signed(
            msgspec.json.encode(json.loads(payload) | {"key_id": Key.of(stranger).key_id}), stranger
        ),
        "padded": token + "=",
        "not a token": "x",
    }
    for what, text in wrong.items():
        answer = await harness.update_score(player, text, 10)
        assert (what, answer.json["error"]["code"]) == (what, "INVALID_ACTION_TOKEN")
        expect_error(answer, 400, "INVALID_ACTION_TOKEN", field="action_token")
    expect_error(await harness.update_score(other, token, 10), 400, "INVALID_ACTION_TOKEN")
    assert (await harness.update_score(player, token, 10)).data["new_score"] == 10


async def test_more_points_than_the_action_is_worth_are_refused(harness: ScoreboardHarness) -> None:
    """And the token is not used up by it."""
    player = await harness.player()
    token = await harness.complete_action(player, 100)
    expect_error(
        await harness.update_score(player, token, 101),
        400,
        "SCORE_EXCEEDS_MAX",
        field="score_delta",
        max_score=100,
    )
    assert (await harness.update_score(player, token, 100)).data["new_score"] == 100


@pytest.mark.parametrize("delta", [0, -5, 1.5, "7", None, 10_001, 2**63])
async def test_points_that_are_none_are_refused(harness: ScoreboardHarness, delta: object) -> None:
    player = await harness.player()
    body = {"action_token": await harness.complete_action(player), "score_delta": delta}
    expect_error(
        await harness.send("PATCH", "/scores", body, player.token),
        400,
        "VALIDATION_ERROR",
        field="score_delta",
    )


async def test_a_token_expires_after_five_minutes_and_its_answer_does_not(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Whoever traded it in time gets the answer again, for an hour longer; whoever did not gets nothing."""
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_access_seconds=7200
    )
    async with run_scoreboard(settings, ManualClock()) as harness:
        player = await harness.player()
        used, unused = await harness.complete_action(player), await harness.complete_action(player)
        first = await harness.update_score(player, used, 10)
        harness.skip_time(299)
        late = await harness.complete_action(player)
        assert (await harness.update_score(player, late, 5)).data["new_score"] == 15
        harness.skip_time(1)
        expect_error(await harness.update_score(player, unused, 10), 400, "INVALID_ACTION_TOKEN")
        harness.skip_time(3000)
        assert (await harness.update_score(player, used, 10)).body == first.body
        await harness.scoreboard.redis.client.flushdb()
        assert (await harness.update_score(player, used, 9_999)).body == first.body


async def test_a_key_can_be_changed_without_a_break(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Tokens of the old key hold while it is on the ring, and not a moment longer."""
    place, new = await shared_servers.allocate(), Secret("the new key that signs action tokens")
    async with run_scoreboard(server_settings(place, tmp_path)) as harness:
        player = await harness.player()
        tokens = [await harness.complete_action(player) for _ in range(2)]
    async with run_scoreboard(
        server_settings(place, tmp_path, scoreboard_action_keys=(new, ACTION_KEY))
    ) as harness:
        assert (await harness.update_score(player, tokens[0], 3)).data["new_score"] == 3
        newer = await harness.complete_action(player)
    async with run_scoreboard(
        server_settings(place, tmp_path, scoreboard_action_keys=(new,))
    ) as harness:
        expect_error(await harness.update_score(player, tokens[1], 3), 400, "INVALID_ACTION_TOKEN")
        assert (await harness.update_score(player, newer, 4)).data["new_score"] == 7


async def test_a_score_never_passes_the_greatest_safe_integer(harness: ScoreboardHarness) -> None:
    """What would is refused, never wrapped; and the token is not used up."""
    player = await harness.player()
    await harness.scoreboard.database.value(
        "test",
        "UPDATE scores SET total_score = $2 WHERE user_id = $1",
        player.user_id,
        MAX_SCORE - 5,
    )
    token = await harness.complete_action(player)
    expect_error(await harness.update_score(player, token, 6), 409, "SCORE_TOO_GREAT")
    assert (await harness.update_score(player, token, 5)).data["new_score"] == MAX_SCORE


async def test_an_action_is_vouched_for_once(harness: ScoreboardHarness) -> None:
    player, action_id = await harness.player(), new_uuid()
    await harness.complete_action(player, action_id=action_id)
    body = {"action_id": action_id, "user_id": player.user_id, "max_score": 5}
    answer = await harness.send(
        "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
    )
    expect_error(answer, 409, "ACTION_EXISTS", field="action_id")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"user_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}, 404, "USER_NOT_FOUND"),
        ({"user_id": "ana"}, 400, "VALIDATION_ERROR"),
        ({"max_score": 0}, 400, "VALIDATION_ERROR"),
        ({"max_score": 10_001}, 400, "VALIDATION_ERROR"),
        ({"action_id": ""}, 400, "VALIDATION_ERROR"),
        ({"action_id": "x" * 101}, 400, "VALIDATION_ERROR"),
        ({"action_id": "with\nline"}, 400, "VALIDATION_ERROR"),
        ({"metadata": [1]}, 400, "VALIDATION_ERROR"),
        ({"metadata": {"long": "x" * 4096}}, 400, "VALIDATION_ERROR"),
        ({"metadata": {"nothing": "\0"}}, 400, "VALIDATION_ERROR"),
        ({"more": 1}, 400, "VALIDATION_ERROR"),
    ],
)
async def test_what_cannot_be_vouched_for_is_refused(
    harness: ScoreboardHarness, change: dict[str, object], status: int, code: str
) -> None:
    player = await harness.player()
    body = {"action_id": new_uuid(), "user_id": player.user_id, "max_score": 100} | change
    answer = await harness.send(
        "POST", "/internal/actions/complete", body, headers={"X-Internal-API-Key": INTERNAL}
    )
    expect_error(answer, status, code)


@pytest.mark.parametrize(
    "headers", [{}, {"X-Internal-API-Key": "wrong"}, {"X-Internal-API-Key": ""}]
)
async def test_only_game_servers_vouch(harness: ScoreboardHarness, headers: dict[str, str]) -> None:
    body = {"action_id": "a", "user_id": new_uuid(), "max_score": 5}
    expect_error(
        await harness.send("POST", "/internal/actions/complete", body, headers=headers),
        401,
        "UNAUTHORIZED",
    )


async def test_my_history_is_paged_and_has_what_the_game_told(harness: ScoreboardHarness) -> None:
    """Newest first, each change once, with the action's metadata; nobody else's cursor is good for it."""
    player, other = await harness.player(), await harness.player()
    for level in range(5):
        token = await harness.complete_action(
            player, metadata={"level": level}, action_id=f"{player.username}-{level}"
        )
        await harness.update_score(player, token, 10)
    page = (await harness.send("GET", "/users/me/events?limit=2", token=player.token)).data
    seen, cursor = page["events"], page["next_cursor"]
    expect_error(
        await harness.send("GET", f"/users/me/events?cursor={cursor}", token=other.token),
        400,
        "VALIDATION_ERROR",
    )
    while cursor is not None:
        page = (
            await harness.send(
                "GET", f"/users/me/events?limit=2&cursor={cursor}", token=player.token
            )
        ).data
        seen, cursor = seen + page["events"], page["next_cursor"]
    assert [event["metadata"] for event in seen] == [{"level": level} for level in (4, 3, 2, 1, 0)]
    assert [(event["score_before"], event["score_after"]) for event in seen] == [
        (40, 50),
        (30, 40),
        (20, 30),
        (10, 20),
        (0, 10),
    ]


async def test_a_change_is_logged_in_the_agreed_form(
    harness: ScoreboardHarness, log: io.StringIO
) -> None:
    """One line with the fields and figures of the log format, and no token in it."""
    player = await harness.player()
    token = await harness.complete_action(player)
    answer = (await harness.update_score(player, token, 42)).data
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
    assert line["data"] == {"scoreDelta": 42, "newScore": 42, "rank": answer["rank"]}
    assert token not in log.getvalue()
