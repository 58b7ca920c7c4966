"""Creates named boards and plays on them, as operators, game servers and players do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tally.kit.clock import ManualClock
from tests.api_response import ApiResponse
from tests.scoreboard.api.harness import (
    ADMIN,
    Json,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

# A Monday at noon; the season of a daily board ends at midnight.
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAILY = {"cron": "0 0 * * *", "time_zone": "UTC"}
HOURS = 3600.0
ACCESS_SECONDS = 86_400


@asynccontextmanager
async def run_board_server(
    shared_servers: SharedServers, folder: Path
) -> AsyncIterator[ScoreboardHarness]:
    """Run a server whose clock tests move, without jobs."""
    addresses = await shared_servers.allocate()
    settings = server_settings(addresses, folder, scoreboard_access_seconds=ACCESS_SECONDS)
    async with run_scoreboard(settings, ManualClock(NOON)) as harness:
        yield harness


async def create(harness: ScoreboardHarness, board_id: str, **more: Any) -> ApiResponse:
    body = {"id": board_id, "name": board_id} | more
    return await harness.send("POST", "/admin/boards", body, token=ADMIN)


async def play(harness: ScoreboardHarness, player: Player, value: int, *boards: str) -> Json:
    """Complete an action on boards, and exchange its token."""
    token = await harness.complete_action(player, boards=list(boards))
    update: Json = (await harness.update_score(player, token, value)).result
    return update


async def standings(harness: ScoreboardHarness, path: str) -> list[tuple[str, int]]:
    page = (await harness.send("GET", f"/boards/{path}")).result
    rows = page["items"]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert page["total_players"] == len(rows)
    return [(row["username"], row["score"]) for row in rows]


async def moderate(harness: ScoreboardHarness, player: Player, verb: str, **body: Any) -> Json:
    path = f"/admin/players/{player.user_id}/{verb}"
    response = await harness.send("POST", path, body or None, token=ADMIN)
    result: Json = {} if response.status == 204 else response.result
    return result
