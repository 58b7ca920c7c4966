"""Ranks of named boards from Redis and from bands equal those of PostgreSQL's window functions."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.boards import BoardOperator, BoardOrder, BoardRules, ResetSchedule
from tally.scoreboard.model.scores import Adjustment, LeaderboardPage
from tally.scoreboard.repository.board_scores import BoardScoreRepository
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tests.scoreboard.api.harness import (
    Player,
    ScoreboardHarness,
    run_scoreboard,
    server_settings,
)
from tests.scoreboard.api.servers import SharedServers

HOURLY = ResetSchedule("0 * * * *", "UTC")
START = datetime(2026, 3, 2, 12, tzinfo=UTC)
PLAYERS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), PLAYERS, st.integers(1, 4)),
        st.tuples(st.just("update"), PLAYERS, st.integers(1, 4)),
        st.tuples(st.just("adjust"), PLAYERS, st.integers(-3, 3).filter(bool)),
        st.tuples(st.just("ban"), PLAYERS, st.just(0)),
        st.tuples(st.just("unban"), PLAYERS, st.just(0)),
        st.tuples(st.just("delete"), PLAYERS, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("reset"), st.just(0), st.integers(1, 2)),
        st.tuples(st.just("maintain"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=30,
)
ORACLE = """
SELECT user_id, total_score, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS rank
FROM board_scores WHERE board = $1 AND season = $2 AND NOT is_hidden ORDER BY rank
"""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
async def server(
    shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ScoreboardHarness]:
    settings = server_settings(await shared_servers.allocate(), tmp_path_factory.mktemp("ranks"))
    async with run_scoreboard(settings, ManualClock(START)) as harness:
        yield harness


@dataclass(slots=True)
class Game:
    """A board with players, and what their scores should be, by season."""

    server: ScoreboardHarness
    board_id: str
    rules: BoardRules
    players: list[Player]
    scores: dict[str, int] = field(default_factory=dict)
    banned: set[str] = field(default_factory=set)
    closed: list[list[int]] = field(default_factory=list)

    async def step(self, verb: str, number: int, value: int) -> None:
        services = self.server.scoreboard.services
        player = self.players[number].user_id
        match verb:
            case "update" if player not in self.banned:
                await self.update(player, value)
            case "adjust" if player not in self.banned and self.scores.get(player, 0) >= -value:
                self.scores[player] = self.scores.get(player, 0) + value
                await services.moderation.adjust(
                    Adjustment(new_uuid(), player, value, "test", self.board_id)
                )
            case "ban":
                self.banned.add(player)
                await services.moderation.ban(player)
            case "unban":
                self.banned.discard(player)
                await services.moderation.unban(player)
            case "delete":
                self.scores.pop(player, None)
                self.banned.discard(player)
                await services.accounts.delete(player)
                self.players[number] = await self.server.player()
            case "wait":
                self.server.skip_time(value / 1_000_000)
            case "reset":
                self.reset(value)
            case "maintain":
                # Two players per band, so that few players need many bands.
                await RankBandRepository(self.server.scoreboard.database, 2).maintain()
                await services.board_maintenance.catch_up()

    async def update(self, player: str, value: int) -> None:
        services, old = self.server.scoreboard.services, self.scores.get(player)
        match self.rules.operator:
            case BoardOperator.SUM:
                self.scores[player] = (old or 0) + value
            case BoardOperator.BEST if old is not None:
                is_ascending = self.rules.order is BoardOrder.ASC
                self.scores[player] = min(old, value) if is_ascending else max(old, value)
            case _:
                self.scores[player] = value
        token, *_ = await services.actions.complete(
            new_uuid(), player, 100, {}, [self.board_id, "global"]
        )
        await services.scores.update(services.scores.verify(token, player), value, {})

    def reset(self, hours: int) -> None:
        """Let the season end, and perhaps an empty one after it."""
        visible = [score for player, score in self.scores.items() if player not in self.banned]
        self.closed += [sorted(visible), *([] for _ in range(hours - 1))]
        self.scores.clear()
        now = self.server.clock.now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        self.server.skip_time((hour + timedelta(hours=hours) - now).total_seconds())

    async def check(self) -> None:
        """Compare the open season and the closed ones with the oracle and with the model."""
        services, database = self.server.scoreboard.services, self.server.scoreboard.database
        season = await services.boards.seasons.current(self.board_id)
        number, sign = season.board.season, -1 if self.rules.order is BoardOrder.ASC else 1
        assert number == len(self.closed) + 1
        visible = {
            player: score * sign
            for player, score in self.scores.items()
            if player not in self.banned
        }
        rows = await database.rows("test", ORACLE, self.board_id, number)
        assert {str(row["user_id"]): row["total_score"] for row in rows} == visible
        expected = [(row["rank"], str(row["user_id"]), row["total_score"]) for row in rows]
        scores = BoardScoreRepository(database, self.board_id, number)
        await season.sync.catch_up()
        for source in (season.leaderboard.cache, scores):
            assert ranks(await source.top(100)) == expected
            for rank, user_id, _ in expected:
                found = await source.standing(user_id)
                assert found is not None
                assert (found[0].rank, found[1]) == (rank, len(expected))
                around = await source.around(user_id, 3)
                assert around is not None
                first = max(0, min(rank - 2, len(expected) - 3))
                assert ranks(around) == expected[first : first + 3]
        for closed, values in enumerate(self.closed, start=1):
            found_season, page = await services.boards.season_top(self.board_id, closed, 100)
            assert sorted(row.score for row in page.standings) == values
            assert (found_season.players, page.total_players) == (len(values), len(values))
            rows = await database.rows("test", ORACLE, self.board_id, closed)
            assert [row.score * sign for row in page.standings] == [
                row["total_score"] for row in rows
            ]


def ranks(page: LeaderboardPage) -> list[tuple[int, str, int]]:
    return [(row.rank, row.user_id, row.score) for row in page.standings]


# An example takes a second; `make soak` runs more of them.
@settings(max_examples=settings().max_examples // 6)
@given(order=st.sampled_from(BoardOrder), operator=st.sampled_from(BoardOperator), steps=STEPS)
@example(
    order=BoardOrder.DESC,
    operator=BoardOperator.SUM,
    steps=[
        ("update", 0, 2),
        ("update", 1, 2),
        ("maintain", 0, 0),
        ("ban", 0, 0),
        ("reset", 0, 2),
        ("unban", 0, 0),
        ("update", 0, 1),
        ("delete", 1, 0),
    ],
)
async def test_ranks_equal_the_window_function(
    server: ScoreboardHarness,
    order: BoardOrder,
    operator: BoardOperator,
    steps: list[tuple[str, int, int]],
) -> None:
    """After any sequence of updates, resets, adjustments, bans and deletions, with many ties."""
    rules = BoardRules("a board", order, operator, HOURLY)
    board_id = f"board-{next(_numbers)}"
    await server.scoreboard.services.boards.create(board_id, rules)
    game = Game(server, board_id, rules, [await server.player() for _ in range(6)])
    for step in steps:
        await game.step(*step)
    await game.check()
    await game.step("maintain", 0, 0)
    await game.check()
