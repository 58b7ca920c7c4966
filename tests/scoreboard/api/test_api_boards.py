"""Named boards: orders, operators, seasons, moderation and deletion, with Redis and the stream."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.scores import ScoreChange
from tests.api_response import expect_error
from tests.scoreboard.api.boards import (
    ACCESS_SECONDS,
    DAILY,
    HOURS,
    NOON,
    create,
    moderate,
    play,
    run_board_server,
    standings,
)
from tests.scoreboard.api.harness import (
    ADMIN,
    Json,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers, restartable_redis
from tests.scoreboard.api.stream_client import open_stream


@pytest.fixture
async def server(shared_servers: SharedServers, tmp_path: Path) -> AsyncIterator[ScoreboardHarness]:
    async with run_board_server(shared_servers, tmp_path) as harness:
        yield harness


@pytest.mark.parametrize(
    ("order", "operator", "expected"),
    [
        ("desc", "sum", [("ben", 70), ("ana", 60)]),
        ("desc", "best", [("ana", 50), ("ben", 40)]),
        ("desc", "latest", [("ben", 30), ("ana", 10)]),
        ("asc", "sum", [("ana", 60), ("ben", 70)]),
        ("asc", "best", [("ana", 10), ("ben", 30)]),
        ("asc", "latest", [("ana", 10), ("ben", 30)]),
    ],
)
async def test_orders_and_operators(
    server: ScoreboardHarness, order: str, operator: str, expected: list[tuple[str, int]]
) -> None:
    """From PostgreSQL and, once the copy is built, from Redis."""
    await create(server, "cup", order=order, operator=operator)
    ana, ben = await server.player("ana"), await server.player("ben")
    await play(server, ana, 50, "cup")
    await play(server, ben, 40, "cup")
    assert len(await standings(server, "cup")) == 2
    await server.scoreboard.services.board_maintenance.catch_up()
    await play(server, ana, 10, "cup")
    last = await play(server, ben, 30, "cup")
    assert await standings(server, "cup") == expected
    rank = [name for name, _ in expected].index("ben") + 1
    assert last["boards"] == [
        {"board": "cup", "season": 1, "score": dict(expected)["ben"], "rank": rank}
    ]
    # The global leaderboard is not among the boards of these actions.
    assert (last["new_score"], last["score_added"]) == (0, 0)
    own = (await server.send("GET", "/boards/cup/me", token=ben.token)).result
    assert (own["score"], own["rank"], own["total_players"]) == (
        last["boards"][0]["score"],
        rank,
        2,
    )
    around = await server.send("GET", "/boards/cup?around=me&limit=1", token=ben.token)
    assert [row["username"] for row in around.result["items"]] == ["ben"]
    season = await server.scoreboard.services.boards.seasons.current("cup")
    assert (await season.sync.check_drift(repair=False)).differences == 0


async def test_an_action_counts_on_its_boards_once(server: ScoreboardHarness) -> None:
    """Global by default; other boards for the same action are a conflict."""
    await create(server, "cup")
    await create(server, "laps", operator="best")
    ana = await server.player("ana")
    assert "boards" not in await server.score(ana, 5)
    token = await server.complete_action(ana, action_id="a1", boards=["laps", "global", "cup"])
    again = await server.complete_action(ana, action_id="a1", boards=["cup", "laps", "global"])
    first = await server.update_score(ana, token, 7)
    assert first.result["new_score"] == 12
    assert [row["board"] for row in first.result["boards"]] == ["cup", "laps"]
    for repeated in (token, again):
        assert (await server.update_score(ana, repeated, 7)).body == first.body
    assert await standings(server, "cup") == [("ana", 7)]
    headers = {"X-Internal-API-Key": "the-key-of-the-game-servers-0123456789"}
    body: Json = {"action_id": "a1", "user_id": ana.user_id, "max_score": 10_000}
    other = await server.send("POST", "/internal/actions/complete", body, headers=headers)
    expect_error(other, 409, "action_exists", "boards")
    body = body | {"action_id": "a2", "boards": ["nowhere"]}
    unknown = await server.send("POST", "/internal/actions/complete", body, headers=headers)
    expect_error(unknown, 404, "board_not_found", "nowhere", field="boards")
    events = (await server.send("GET", "/users/me/events", token=ana.token)).result["items"]
    [event] = [event for event in events if event["action_id"] == "a1"]
    assert event["boards"] == {
        "cup": {"season": 1, "before": None, "after": 7},
        "laps": {"season": 1, "before": None, "after": 7},
    }


async def test_a_season_closes_at_its_boundary(server: ScoreboardHarness) -> None:
    """The first update closes it: one after the boundary counts in the next season."""
    created = await create(server, "daily", reset=DAILY)
    assert created.status == 201
    assert created.result["season_ends_at"] == "2026-03-03T00:00:00Z"
    ana, ben = await server.player("ana"), await server.player("ben")
    await play(server, ana, 10, "daily", "global")
    server.skip_time(12 * HOURS - 0.001)
    await play(server, ben, 20, "daily")
    server.skip_time(0.001)
    update = await play(server, ana, 1, "daily", "global")
    assert update["new_score"] == 11
    assert update["boards"] == [{"board": "daily", "season": 2, "score": 1, "rank": 1}]
    assert await standings(server, "daily") == [("ana", 1)]
    assert await standings(server, "daily/seasons/1") == [("ben", 20), ("ana", 10)]
    closed = (await server.send("GET", "/boards/daily/seasons")).result["items"]
    assert closed == [
        {
            "season": 1,
            "started_at": "2026-03-02T12:00:00Z",
            "ended_at": "2026-03-03T00:00:00Z",
            "total_players": 2,
        }
    ]
    around = await server.send("GET", "/boards/daily/seasons/1?around=me&limit=1", token=ana.token)
    assert [row["rank"] for row in around.result["items"]] == [2]
    for path in ("/boards/daily/seasons/2", "/boards/daily/seasons/999999999"):
        expect_error(await server.send("GET", path), 404, "season_not_found")
    expect_error(await server.send("GET", "/boards/daily/seasons/x"), 400, "invalid_field")


async def test_missed_resets_happen_afterwards_with_their_boundaries(
    server: ScoreboardHarness,
) -> None:
    """Three days without a request: the season ends at the first midnight."""
    await create(server, "daily", reset=DAILY)
    ana = await server.player("ana")
    await play(server, ana, 10, "daily")
    server.skip_time(72 * HOURS)
    await server.scoreboard.services.board_maintenance.catch_up()
    page = (await server.send("GET", "/boards/daily/seasons?limit=2")).result
    assert [(s["season"], s["ended_at"], s["total_players"]) for s in page["items"]] == [
        (3, "2026-03-05T00:00:00Z", 0),
        (2, "2026-03-04T00:00:00Z", 0),
    ]
    cursor = page["next_cursor"]
    page = (await server.send("GET", f"/boards/daily/seasons?limit=2&cursor={cursor}")).result
    assert page["items"][0]["ended_at"] == "2026-03-03T00:00:00Z"
    assert page["next_cursor"] is None
    assert await standings(server, "daily/seasons/1") == [("ana", 10)]
    [board] = (await server.send("GET", "/boards")).result["items"]
    assert (board["season"], board["season_started_at"]) == (4, "2026-03-05T00:00:00Z")
    assert board["season_ends_at"] == "2026-03-06T00:00:00Z"


async def test_moderation_and_deletion_follow_on_boards(server: ScoreboardHarness) -> None:
    """Open seasons follow; closed ones keep their ranks, and a deleted player's name is gone."""
    await create(server, "daily", reset=DAILY)
    ana, ben, cem = [await server.player(name) for name in ("ana", "ben", "cem")]
    for player, points in ((ana, 30), (ben, 20), (cem, 10)):
        await play(server, player, points, "daily", "global")
    server.skip_time(12 * HOURS)
    for player, points in ((ana, 3), (ben, 2), (cem, 1)):
        await play(server, player, points, "daily", "global")
    await server.scoreboard.services.board_maintenance.catch_up()
    body = {"score_delta": 5, "reason": "a bug", "board": "daily", "adjustment_id": "case-1"}
    adjusted = await moderate(server, cem, "adjust", **body)
    assert (adjusted["new_score"], adjusted["rank"]) == (6, 1)
    assert await moderate(server, cem, "adjust", **body) == adjusted
    too_much = await server.send(
        "POST",
        f"/admin/players/{cem.user_id}/adjust",
        {"score_delta": -7, "reason": "x", "board": "daily"},
        token=ADMIN,
    )
    expect_error(too_much, 409, "score_too_small", "The score is 6")
    await moderate(server, ana, "ban")
    assert await standings(server, "daily") == [("cem", 6), ("ben", 2)]
    expect_error(
        await server.send("GET", "/boards/daily/me", token=ana.token), 403, "player_banned"
    )
    await moderate(server, ana, "unban")
    assert await standings(server, "daily") == [("cem", 6), ("ana", 3), ("ben", 2)]
    renamed = await server.send("PATCH", "/users/me", {"username": "anna"}, token=ana.token)
    assert renamed.status == 200
    assert await standings(server, "daily") == [("cem", 6), ("anna", 3), ("ben", 2)]
    assert (await server.send("DELETE", "/users/me", token=ben.token)).status == 204
    assert await standings(server, "daily") == [("cem", 6), ("anna", 3)]
    assert await standings(server, "daily/seasons/1") == [
        ("anna", 30),
        ("Deleted player", 20),
        ("cem", 10),
    ]
    archived = (await server.send("GET", "/boards/daily/seasons/1")).result["items"]
    assert archived[1]["user_id"] is None
    season = await server.scoreboard.services.boards.seasons.current("daily")
    assert (await season.sync.check_drift(repair=False)).differences == 0
    await server.scoreboard.services.maintain_ranks()
    assert await rows_with(server, ben.user_id) == []


async def rows_with(harness: ScoreboardHarness, text: str) -> list[str]:
    """Return the tables that contain a text in any column."""
    database = harness.scoreboard.database
    tables = await database.rows("test", "SELECT relname FROM pg_stat_user_tables ORDER BY 1")
    return [
        row["relname"]
        for row in tables
        if await database.value(
            "test",
            f"SELECT count(*) FROM {row['relname']} t WHERE t::text LIKE '%' || $1 || '%'",  # noqa: S608
            text,
        )
    ]


async def test_the_stream_shows_scores_and_the_next_season(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """On two instances; one of them only learns of the close by the database."""
    addresses = await shared_servers.allocate()
    clock = ManualClock(NOON)
    async with (
        run_scoreboard(server_settings(addresses, tmp_path / "one"), clock) as one,
        run_scoreboard(server_settings(addresses, tmp_path / "two")) as two,
    ):
        await create(one, "daily", reset=DAILY)
        ana = await one.player("ana")
        async with open_stream(one.url, board="daily") as stream:
            first = await stream.board()
            assert (first["season"], first["leaderboard"]) == (1, [])
            await play(one, ana, 10, "daily")
            update = await stream.board()
            assert [row["score"] for row in update["leaderboard"]] == [10]
            # The clock of the other instance is that of the system, later than 2026-03-03.
            await two.scoreboard.services.board_maintenance.catch_up()
            await one.scoreboard.services.board_maintenance.catch_up()
            await clock.advance(1)
            update = await stream.board()
            assert update["season"] > 1
            assert update["leaderboard"] == []


async def test_the_stream_shows_who_leaves_the_top_ten_and_every_new_player(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Neither has a rank among the top ten after the change."""
    settings = server_settings(await shared_servers.allocate(), tmp_path)
    async with run_scoreboard(settings) as server, asyncio.timeout(60):
        await create(server, "cup", operator="latest")
        players = [await server.player() for _ in range(12)]
        for value, player in enumerate(players[:11], start=10):
            await play(server, player, value, "cup")
        leader = players[10]
        async with open_stream(server.url, board="cup") as stream:
            first = await stream.board()
            assert first["leaderboard"][0]["user_id"] == leader.user_id
            await play(server, leader, 2, "cup")
            while leader.user_id in {row["user_id"] for row in first["leaderboard"]}:
                first = await stream.board()
            assert first["total_players"] == 11
            await play(server, players[11], 1, "cup")
            assert (await stream.board())["total_players"] == 12


async def test_boards_work_without_redis(shared_servers: SharedServers, tmp_path: Path) -> None:
    """A season closes while Redis is away; later its old copy is gone and the new one is built."""
    dsn, _ = await shared_servers.allocate()
    async with (
        restartable_redis(tmp_path) as redis,
        run_scoreboard(
            server_settings(
                (dsn, redis.address),
                tmp_path,
                scoreboard_redis_milliseconds=100,
                scoreboard_access_seconds=ACCESS_SECONDS,
            ),
            ManualClock(NOON),
        ) as server,
    ):
        maintenance = server.scoreboard.services.board_maintenance
        await create(server, "daily", reset=DAILY)
        ana = await server.player("ana")
        await play(server, ana, 10, "daily")
        await maintenance.catch_up()
        await redis.kill()
        await play(server, ana, 5, "daily")
        assert await standings(server, "daily") == [("ana", 15)]
        server.skip_time(12 * HOURS)
        update = await play(server, ana, 3, "daily")
        assert update["boards"] == [{"board": "daily", "season": 2, "score": 3, "rank": 1}]
        assert await standings(server, "daily/seasons/1") == [("ana", 15)]
        await redis.start()
        server.skip_time(60)
        await maintenance.catch_up()
        await maintenance.catch_up()
        season = await server.scoreboard.services.boards.seasons.current("daily")
        assert await season.sync.cache.is_built()
        assert not season.sync.backlog.has_pending_changes()
        assert (await season.sync.check_drift(repair=False)).compared == 1
        assert await standings(server, "daily") == [("ana", 3)]


async def test_the_copy_of_a_closed_season_is_dropped(server: ScoreboardHarness) -> None:
    services, client = server.scoreboard.services, server.scoreboard.redis.client
    await create(server, "daily", reset=DAILY)
    await play(server, await server.player("ana"), 10, "daily")
    await services.board_maintenance.catch_up()
    assert await client.keys("leaderboard:daily:1*")
    server.skip_time(12 * HOURS)
    await services.board_maintenance.catch_up()
    assert await client.keys("leaderboard:daily:1*") == []
    assert await client.keys("leaderboard:daily:2:changed_at")


async def test_invalid_boards_are_rejected(server: ScoreboardHarness) -> None:
    """And the same board again is no conflict."""
    first = await create(server, "cup", reset=DAILY)
    assert (await create(server, "cup", reset=DAILY)).result == first.result
    expect_error(await create(server, "cup"), 409, "board_exists", field="id")
    expect_error(await create(server, "global"), 409, "board_exists", field="id")
    expect_error(await create(server, "Not an id"), 400, "invalid_field", field="id")
    expect_error(await create(server, "x", operator="max"), 400, "invalid_field", field="operator")
    for cron in ("61 0 * * *", "0 0 31 2 *", "0 0 0 * * *", "every hour or so"):
        response = await create(server, "x", reset={"cron": cron})
        expect_error(response, 400, "invalid_field", field="reset.cron")
    files = ("../etc/passwd", "/etc/passwd", "localtime", "posixrules", "right/UTC")
    for zone in ("Mars/Olympus", *files):
        response = await create(server, "x", reset={"cron": "0 0 * * *", "time_zone": zone})
        assert response.status == 400
    for path in ("/boards/x", "/boards/x/seasons", "/boards/x/seasons/1", "/boards/x/stream"):
        expect_error(await server.send("GET", path), 404, "board_not_found")
    player = await server.player()
    expect_error(
        await server.send("GET", "/boards/cup/me", token=player.token), 404, "no_board_score"
    )
    unauthorized = await server.send("POST", "/admin/boards", {"id": "y", "name": "y"})
    assert unauthorized.status == 401
    assert (await server.send("GET", f"/boards/{new_uuid()}")).status == 404


async def test_a_retry_writes_to_redis_what_a_dead_process_committed(
    server: ScoreboardHarness,
) -> None:
    """On boards as on the global leaderboard, and although the copy in Redis is complete."""
    services = server.scoreboard.services
    await create(server, "cup", order="asc", operator="best")
    ana, ben = await server.player("ana"), await server.player("ben")
    await play(server, ben, 9, "cup")
    await services.board_maintenance.catch_up()
    token = await server.complete_action(ana, boards=["cup"])
    claims = services.scores.verify(token, ana.user_id)
    await services.scores.scores.apply(
        ScoreChange(
            claims.token_hash,
            claims.action_id,
            ana.user_id,
            5,
            claims.expires_at,
            at=server.clock.now(),
            client_info={},
        )
    )
    assert await standings(server, "cup") == [("ben", 9)]
    retried = (await server.update_score(ana, token, 5)).result
    assert retried["boards"] == [{"board": "cup", "season": 1, "score": 5, "rank": 1}]
    assert await standings(server, "cup") == [("ana", 5), ("ben", 9)]


async def test_an_instance_whose_clock_is_behind_writes_to_the_open_season(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    """Another instance has closed the season that this one still knows."""
    addresses = await shared_servers.allocate()
    midnight = NOON + timedelta(hours=12)
    async with (
        run_scoreboard(server_settings(addresses, tmp_path / "1"), ManualClock(NOON)) as behind,
        run_scoreboard(server_settings(addresses, tmp_path / "2"), ManualClock(midnight)) as ahead,
    ):
        await create(behind, "daily", reset=DAILY)
        ana, ben = await behind.player("ana"), await behind.player("ben")
        await play(behind, ana, 10, "daily")
        await ahead.scoreboard.services.board_maintenance.catch_up()
        update = await play(behind, ben, 3, "daily")
        assert update["boards"] == [{"board": "daily", "season": 2, "score": 3, "rank": 1}]
        for harness in (ahead, behind):
            assert await standings(harness, "daily") == [("ben", 3)]
            assert await standings(harness, "daily/seasons/1") == [("ana", 10)]


async def test_a_board_with_many_missed_resets_delays_no_other_board(
    server: ScoreboardHarness,
) -> None:
    """Three days of a board that resets every minute take several runs of the job."""
    maintenance = server.scoreboard.services.board_maintenance
    await create(server, "minutes", reset={"cron": "* * * * *"})
    await create(server, "weekly", reset={"cron": "0 0 * * WED"})
    server.skip_time(72 * HOURS)
    listed = (await server.send("GET", "/boards")).result["items"]
    assert [(board["id"], board["season"]) for board in listed] == [("minutes", 1), ("weekly", 2)]
    await maintenance.catch_up()
    assert (await server.send("GET", "/boards/weekly/seasons")).result["items"]
    for _ in range(2):
        await maintenance.catch_up()
    boards = (await server.send("GET", "/boards")).result["items"]
    assert [(board["id"], board["season"]) for board in boards] == [
        ("minutes", 72 * 60 + 1),
        ("weekly", 2),
    ]


@pytest.mark.parametrize(
    ("created", "cron", "ends"),
    [
        # On 29 March 2026, Europe/Berlin skips 02:00 to 03:00, which is 01:00 UTC.
        ("2026-03-28T12", "30 2 * * *", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("2026-03-28T12", "0 0 * * *", ["2026-03-28T23:00", "2026-03-29T22:00"]),
        ("2026-03-29T00", "0 * * * *", ["2026-03-29T01:00", "2026-03-29T02:00"]),
        ("2026-03-28T12", "*/30 2 * * *", ["2026-03-30T00:00", "2026-03-30T00:30"]),
        # On 25 October 2026, 02:00 to 03:00 comes twice, at 00:00 and 01:00 UTC.
        ("2026-10-24T12", "30 2 * * *", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("2026-10-24T12", "0 0 * * *", ["2026-10-24T22:00", "2026-10-25T23:00"]),
        ("2026-10-25T00", "0 * * * *", ["2026-10-25T01:00", "2026-10-25T02:00"]),
        ("2026-10-24T12", "30 * * 10 SUN", ["2026-10-24T22:30", "2026-10-24T23:30"]),
        # Created in the second of the two hours: the reset at 02:30 has been.
        ("2026-10-25T01", "30 2 * * *", ["2026-10-26T01:30", "2026-10-27T01:30"]),
    ],
)
async def test_resets_follow_daylight_saving_time(
    shared_servers: SharedServers, tmp_path: Path, created: str, cron: str, ends: list[str]
) -> None:
    """Both resets that come one by one and those that were missed."""
    start = datetime.fromisoformat(f"{created}:00+00:00")
    reset = {"cron": cron, "time_zone": "Europe/Berlin"}
    settings = server_settings(
        await shared_servers.allocate(), tmp_path, scoreboard_access_seconds=ACCESS_SECONDS
    )
    async with run_scoreboard(settings, ManualClock(start)) as server:
        await create(server, "followed", reset=reset)
        await create(server, "missed", reset=reset)
        for end in ends:
            board = (await server.send("GET", "/boards/followed")).result
            assert board["season_ends_at"] == f"{end}:00Z"
            moment = datetime.fromisoformat(f"{end}:00+00:00")
            server.skip_time((moment - server.clock.now()).total_seconds())
        for board_id in ("followed", "missed"):
            closed = (await server.send("GET", f"/boards/{board_id}/seasons")).result["items"]
            assert [season["ended_at"] for season in closed] == [
                f"{end}:00Z" for end in reversed(ends)
            ]
