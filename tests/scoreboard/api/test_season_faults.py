"""Resets under load from two instances that are killed: each point counts in exactly one season."""

import asyncio
import itertools
import random
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from pyreqwest.exceptions import PyreqwestError

from tally.kit.clock import SystemClock
from tests.scoreboard.api.harness import (
    ADMIN,
    API,
    Json,
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.processes import ServerProcess, server_process
from tests.scoreboard.api.servers import SharedServers

UPDATES = 240
CLIENTS = 8
KILLS = 2
# The schedule resets every minute; the test moves the end of the season instead of waiting.
END_SEASON = """
UPDATE boards SET season_ends_at = clock_timestamp()
WHERE id = $1 AND season_ends_at > clock_timestamp()
"""
TOTALS = "SELECT season, sum(total_score) AS points FROM board_scores WHERE board = $1 GROUP BY 1"
EVENTS = """
SELECT (boards->$1->>'season')::integer AS season, sum(score_delta) AS points, count(*) AS events
FROM score_events WHERE boards ? $1 GROUP BY 1
"""


class Instances:
    """Two server processes, of which one at a time is killed and replaced."""

    def __init__(self, addresses: tuple[str, str], directory: Path) -> None:
        self._addresses = addresses
        self._directory = directory
        self._stacks = [AsyncExitStack(), AsyncExitStack()]
        self.processes: list[ServerProcess] = []

    async def start(self, number: int) -> ServerProcess:
        limits = {f"TALLY_SCOREBOARD_{name}_LIMIT": "1000000" for name in ("SCORE", "ACTION")}
        return await self._stacks[number].enter_async_context(
            server_process(self._addresses, self._directory / str(number), limits)
        )

    async def start_both(self) -> None:
        self.processes = [await self.start(0), await self.start(1)]

    async def kill_and_replace(self, number: int) -> None:
        self.processes[number].kill()
        await self._stacks[number].aclose()
        self.processes[number] = await self.start(number)

    async def stop(self) -> None:
        for stack in self._stacks:
            await stack.aclose()


@pytest.mark.judge
@pytest.mark.soak
async def test_each_point_counts_in_exactly_one_season(
    shared_servers: SharedServers, tmp_path: Path
) -> None:
    addresses = await shared_servers.allocate()
    instances = Instances(addresses, tmp_path)
    async with run_scoreboard(server_settings(addresses, tmp_path / "reader")) as reader:
        board = {"id": "fast", "name": "Fast", "reset": {"cron": "* * * * *"}}
        assert (await reader.send("POST", "/admin/boards", board, token=ADMIN)).status == 201
        players = [await reader.player() for _ in range(CLIENTS)]
        await instances.start_both()
        try:
            progress: Counter[str] = Counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(_disturb(reader, instances, progress))
                for number, player in enumerate(players):
                    group.create_task(_play(reader, instances, player, number, progress))
        finally:
            await instances.stop()
        await _check(reader, progress)


async def _play(
    reader: ScoreboardHarness,
    instances: Instances,
    player: Player,
    number: int,
    progress: Counter[str],
) -> None:
    """Score through either instance, and repeat a request until it is answered."""
    chance, clock = random.Random(number), SystemClock()
    for _ in range(UPDATES // CLIENTS):
        while _is_kill_due(progress):
            await clock.sleep(0.02)
        points = chance.randint(1, 9)
        token = await reader.complete_action(player, boards=["fast"])
        body: Json = {"action_token": token, "score_delta": points}

        async def is_answered(content: Json = body) -> bool:
            url = chance.choice(instances.processes).url
            request = reader.client.patch(f"{url}{API}/scores").body_json(content)
            request = request.header("Authorization", f"Bearer {player.token}")
            request = request.timeout(timedelta(seconds=10))
            try:
                response = await request.build().send()
            except PyreqwestError:
                return False
            assert response.status in {200, 503}, await response.text()
            return response.status == 200

        while not await is_answered():  # a new instance takes long to start on a busy machine
            await clock.sleep(0.05)
        progress["points"] += points
        progress["updates"] += 1


async def _disturb(reader: ScoreboardHarness, instances: Instances, progress: Counter[str]) -> None:
    """End seasons all the time, and kill instances as the updates progress."""
    while progress["updates"] < UPDATES:
        await reader.scoreboard.database.value("test", END_SEASON, "fast")
        if _is_kill_due(progress):
            number = progress["kills"] % 2
            progress["kills"] += 1
            await instances.kill_and_replace(number)
        await asyncio.sleep(0.02)
    assert progress["kills"] == KILLS


def _is_kill_due(progress: Counter[str]) -> bool:
    """Return whether the share of updates that precedes the next kill is done."""
    kills = progress["kills"]
    return kills < KILLS and progress["updates"] >= (kills + 1) * UPDATES // (KILLS + 1)


async def _check(reader: ScoreboardHarness, progress: Counter[str]) -> None:
    database = reader.scoreboard.database
    totals = {row["season"]: row["points"] for row in await database.rows("t", TOTALS, "fast")}
    events = {row["season"]: row["points"] for row in await database.rows("t", EVENTS, "fast")}
    assert totals == events
    assert sum(totals.values()) == progress["points"]
    assert len(totals) > 2, "there were resets"
    seasons = await database.rows(
        "t", "SELECT number, started_at, ended_at FROM seasons WHERE board = 'fast' ORDER BY 1"
    )
    assert [row["number"] for row in seasons] == list(range(1, len(seasons) + 1))
    assert all(
        earlier["ended_at"] == later["started_at"] for earlier, later in itertools.pairwise(seasons)
    )
