"""Ranks from Redis and from bands equal those of PostgreSQL's window functions.

On a named board, in its closed seasons and on the global leaderboard, with two instances.
"""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tally.kit.clock import ManualClock
from tally.kit.ids import new_uuid
from tally.scoreboard.model.accounts import ProfileChange
from tally.scoreboard.model.boards import (
    DELETED_PLAYER,
    BoardOperator,
    BoardOrder,
    BoardRules,
    ResetSchedule,
)
from tally.scoreboard.model.scores import Adjustment, LeaderboardPage
from tally.scoreboard.repository.board_scores import BoardScoreRepository
from tally.scoreboard.repository.rank_bands import RankBandRepository
from tally.scoreboard.repository.ranked_scores import RankedScores
from tally.scoreboard.service.cache_sync import CacheSync
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
        st.tuples(st.just("repeat"), st.just(0), st.integers(1, 4)),
        st.tuples(st.just("adjust"), PLAYERS, st.integers(-3, 3).filter(bool)),
        st.tuples(st.just("adjust total"), PLAYERS, st.integers(-3, 3).filter(bool)),
        st.tuples(st.just("ban"), PLAYERS, st.just(0)),
        st.tuples(st.just("unban"), PLAYERS, st.just(0)),
        st.tuples(st.just("delete"), PLAYERS, st.just(0)),
        st.tuples(st.just("rename"), PLAYERS, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("reset"), st.just(0), st.integers(1, 2)),
        st.tuples(st.just("maintain"), st.just(0), st.just(0)),
        st.tuples(st.just("lose Redis"), st.just(0), st.just(0)),
        st.tuples(st.just("other instance"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=30,
)
ORACLE = """
SELECT user_id, username, total_score, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS rank
FROM board_scores LEFT JOIN users ON users.id = user_id
WHERE board = $1 AND season = $2 AND NOT is_hidden ORDER BY rank
"""
TOTALS_ORACLE = """
SELECT user_id, username, total_score, row_number() OVER (
    ORDER BY total_score DESC, score_first_reached_at ASC, user_id DESC) AS rank
FROM scores JOIN users ON users.id = user_id ORDER BY rank
"""
# Rank, user id, username and score; the score is negative on ascending boards.
Ranked = tuple[int, str, str, int]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
async def servers(
    shared_servers: SharedServers, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ScoreboardHarness, ScoreboardHarness]]:
    """Two instances with one clock."""
    addresses, clock = await shared_servers.allocate(), ManualClock(START)
    first, second = (server_settings(addresses, tmp_path_factory.mktemp("ranks")) for _ in range(2))
    async with run_scoreboard(first, clock) as one, run_scoreboard(second, clock) as two:
        yield one, two


@dataclass(slots=True)
class Game:
    """A board with players, and what their scores should be, by season and in total."""

    server: ScoreboardHarness
    other: ScoreboardHarness
    board_id: str
    rules: BoardRules
    players: list[Player] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    banned: set[str] = field(default_factory=set)
    closed: list[list[int]] = field(default_factory=list)
    used: list[tuple[str, str]] = field(default_factory=list)

    async def add_player(self) -> Player:
        player = await self.server.player()
        self.names[player.user_id] = player.username
        self.totals[player.user_id] = 0
        return player

    async def step(self, verb: str, number: int, value: int) -> None:
        player = self.players[number].user_id
        match verb:
            case "update" if player not in self.banned:
                await self.update(player, value)
            case "repeat" if self.used:
                await self.repeat(value)
            case "adjust" | "adjust total" if player not in self.banned:
                await self.adjust(player, value, self.board_id if verb == "adjust" else None)
            case "ban" | "unban" | "delete" | "rename":
                await self.moderate(verb, number, player)
            case "wait":
                self.server.skip_time(value / 1_000_000)
            case "reset":
                self.reset(value)
            case "maintain":
                # Two players per band, so that few players need many bands.
                await RankBandRepository(self.server.scoreboard.database, 2).maintain()
                await self.server.scoreboard.services.board_maintenance.catch_up()
            case "lose Redis":
                await self.server.scoreboard.redis.client.flushdb()
            case "other instance":
                self.server, self.other = self.other, self.server

    async def moderate(self, verb: str, number: int, player: str) -> None:
        services = self.server.scoreboard.services
        match verb:
            case "ban":
                self.banned.add(player)
                await services.moderation.ban(player)
            case "unban":
                self.banned.discard(player)
                await services.moderation.unban(player)
            case "delete":
                for scores in (self.scores, self.totals, self.names):
                    scores.pop(player, None)
                self.banned.discard(player)
                self.used = [(user_id, token) for user_id, token in self.used if user_id != player]
                await services.accounts.delete(player)
                self.players[number] = await self.add_player()
            case "rename":
                self.names[player] = f"renamed_{next(_numbers)}"
                await services.accounts.update(player, ProfileChange(self.names[player]))

    async def adjust(self, player: str, value: int, board: str | None) -> None:
        scores = self.totals if board is None else self.scores
        if scores.get(player, 0) < -value:
            return
        scores[player] = scores.get(player, 0) + value
        await self.server.scoreboard.services.moderation.adjust(
            Adjustment(new_uuid(), player, value, "test", board)
        )

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
        self.totals[player] += value
        token, *_ = await services.actions.complete(
            new_uuid(), player, 100, {}, [self.board_id, "global"]
        )
        await services.scores.update(services.scores.verify(token, player), value, {})
        self.used.append((player, token))

    async def repeat(self, value: int) -> None:
        """Use a token again, with other points and perhaps in a later season."""
        services, (player, token) = self.server.scoreboard.services, self.used[-1]
        _, is_replay = await services.scores.update(
            services.scores.verify(token, player), value, {}
        )
        assert is_replay

    def reset(self, hours: int) -> None:
        """Let the season end, and perhaps an empty one after it."""
        self.closed += [sorted(self.visible(self.scores).values()), *([] for _ in range(hours - 1))]
        self.scores.clear()
        now = self.server.clock.now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        self.server.skip_time((hour + timedelta(hours=hours) - now).total_seconds())

    def visible(self, scores: dict[str, int]) -> dict[str, int]:
        return {player: score for player, score in scores.items() if player not in self.banned}

    async def check(self) -> None:
        """Compare all leaderboards with the oracle and with the model."""
        services, database = self.server.scoreboard.services, self.server.scoreboard.database
        season = await services.boards.seasons.current(self.board_id)
        number, sign = season.board.season, -1 if self.rules.order is BoardOrder.ASC else 1
        assert number == len(self.closed) + 1
        expected = await self.expected(self.scores, sign, ORACLE, self.board_id, number)
        totals = await self.expected(self.totals, 1, TOTALS_ORACLE)
        for server in (self.server, self.other):
            shown = server.scoreboard.services
            _, page = await shown.boards.top(self.board_id, 100)
            assert ranks(page, sign) == expected
            assert ranks(await shown.leaderboard.top(100)) == totals
        scores = BoardScoreRepository(database, self.board_id, number)
        await check_ranks(season.sync, scores, expected)
        await check_ranks(services.cache_sync, services.accounts.scores, totals)
        await self.check_closed(sign)

    async def expected(
        self, scores: dict[str, int], sign: int, oracle: str, *arguments: object
    ) -> list[Ranked]:
        """Return what the oracle says, which must be what the model says."""
        rows = await self.server.scoreboard.database.rows("test", oracle, *arguments)
        ranked = [
            (row["rank"], str(row["user_id"]), row["username"], row["total_score"]) for row in rows
        ]
        assert {user_id: (name, score) for _, user_id, name, score in ranked} == {
            player: (self.names[player], score * sign)
            for player, score in self.visible(scores).items()
        }
        return ranked

    async def check_closed(self, sign: int) -> None:
        services, database = self.server.scoreboard.services, self.server.scoreboard.database
        for closed, values in enumerate(self.closed, start=1):
            found, page = await services.boards.season_top(self.board_id, closed, 100)
            assert sorted(row.score for row in page.standings) == values
            assert (found.players, page.total_players) == (len(values), len(values))
            rows = await database.rows("test", ORACLE, self.board_id, closed)
            scores = BoardScoreRepository(database, self.board_id, closed)
            for row, shown in zip(rows, page.standings, strict=True):
                assert shown.score * sign == row["total_score"]
                assert shown.username == self.names.get(str(row["user_id"]), DELETED_PLAYER)
                standing = await scores.standing(str(row["user_id"]))
                assert standing is not None
                assert (standing[0].rank, standing[1]) == (row["rank"], len(rows))


async def check_ranks(sync: CacheSync, scores: RankedScores, expected: list[Ranked]) -> None:
    """Compare Redis, once it is complete, and PostgreSQL with the oracle."""
    await sync.catch_up()
    for source in (sync.cache, scores):
        assert ranks(await source.top(100)) == expected
        for rank, user_id, *_ in expected:
            found = await source.standing(user_id)
            assert found is not None
            assert (found[0].rank, found[1]) == (rank, len(expected))
            around = await source.around(user_id, 3)
            assert around is not None
            first = max(0, min(rank - 2, len(expected) - 3))
            assert ranks(around) == expected[first : first + 3]


def ranks(page: LeaderboardPage, sign: int = 1) -> list[Ranked]:
    return [(row.rank, row.user_id, row.username, row.score * sign) for row in page.standings]


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
@example(
    order=BoardOrder.ASC,
    operator=BoardOperator.BEST,
    steps=[
        ("update", 0, 2),
        ("adjust total", 0, -1),
        ("maintain", 0, 0),
        ("other instance", 0, 0),
        ("rename", 0, 0),
        ("reset", 0, 1),
        ("repeat", 0, 4),
        ("lose Redis", 0, 0),
        ("update", 1, 3),
    ],
)
async def test_ranks_equal_the_window_function(
    servers: tuple[ScoreboardHarness, ScoreboardHarness],
    order: BoardOrder,
    operator: BoardOperator,
    steps: list[tuple[str, int, int]],
) -> None:
    """After any sequence of updates, resets, adjustments, bans, deletions and new names.

    With many ties, repeated requests, two instances, and a Redis that loses its data.
    """
    rules = BoardRules("a board", order, operator, HOURLY)
    game = Game(*servers, f"board-{next(_numbers)}", rules)
    await game.server.scoreboard.services.boards.create(game.board_id, rules)
    game.players = [await game.add_player() for _ in range(6)]
    try:
        for step in steps:
            await game.step(*step)
        await game.check()
        await game.step("maintain", 0, 0)
        await game.check()
    finally:  # the global leaderboard is that of all examples
        for player in game.players:
            await game.server.scoreboard.services.accounts.delete(player.user_id)
