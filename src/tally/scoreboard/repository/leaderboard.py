"""The board in Redis: a sorted set that has the same order as PostgreSQL, and a hash that finds a player in it.

`leaderboard:global` is the sorted set. A member's score is the player's score, exact up to 2^53.
Its name is the moment at which the score was reached, in microseconds, counted down from the
greatest number of 16 digits, and the user id; so among equal scores who came first stands higher,
and then the greater user id, as in PostgreSQL's index. `leaderboard:global:players` is the hash: by
user id, those 16 digits and the username. `leaderboard:global:changed` is when a score last
changed. `leaderboard:global:removed:<user id>` keeps a late write from bringing back a player who
was deleted.

All changes are scripts, so each is whole or not at all. Writes may come late and in any order: one
that tells of a smaller score than the one in place is old news and changes nothing. While the board
is rebuilt, every change is made to the new board too.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tally.scoreboard.model import (
    LeaderboardNotCached,
    LeaderboardPage,
    Score,
    Standing,
    from_microseconds,
    to_microseconds,
)
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.scores import GREATEST_TIME, TIME_DIGITS
from tally.scoreboard.repository.scripts import AROUND, HEAL, LOOK, PLACE, PUT, REMOVE, STRAYS, TOP

BOARD: Final = "leaderboard:global"
PLAYERS: Final = "leaderboard:global:players"
CHANGED: Final = "leaderboard:global:changed"
REBUILDING: Final = "leaderboard:global:rebuilding"
REMOVED: Final = "leaderboard:global:removed:"
KEYS: Final = (BOARD, PLAYERS, CHANGED, REBUILDING)
REMOVED_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """What Redis has of a player, as it is stored there; empty where it has nothing."""

    entry: bytes
    score: bytes

    def shows(self, score: Score | None) -> bool:
        """Whether that is the player's score, or rightly nothing."""
        if score is None:
            return not self.entry and not self.score
        return (
            self.score == str(score.score).encode()
            and self.entry == (sortable_time(score) + score.username).encode()
        )


class LeaderboardCache:
    """The board as Redis has it.

    CacheUnavailable where Redis does not answer, LeaderboardNotCached where a read finds no whole board.
    """

    def __init__(self, server: InstrumentedRedis) -> None:
        self.server = server
        self._put = server.script(PUT)
        self._remove = server.script(REMOVE)
        self._top = server.script(TOP)
        self._around = server.script(AROUND)
        self._place = server.script(PLACE)
        self._look = server.script(LOOK)
        self._heal = server.script(HEAL)
        self._strays = server.script(STRAYS)

    async def put(self, score: Score) -> int | None:
        """Show the score, unless a greater one is shown already; the player's rank afterwards.

        None where there is no whole board to have a rank on, or the player was removed.
        """
        moment = to_microseconds(score.reached_at)
        rank = await self.server.run(
            "board_put",
            self._put,
            (*KEYS, REMOVED + score.user_id),
            (score.user_id, score.score, sortable_time(score), score.username, moment),
        )
        return None if rank is None or rank < 0 else rank + 1

    async def remove(self, user_id: str) -> int | None:
        """Take a player off the board for good; the rank that the player had, if any."""
        keys = (*KEYS, REMOVED + user_id)
        rank = await self.server.run("board_remove", self._remove, keys, (user_id, REMOVED_SECONDS))
        return None if rank < 0 else rank + 1

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """A stretch of the board, from the rank `offset` + 1 on."""
        return _board(await self.server.run("board_top", self._top, KEYS, (offset, limit)))

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """A stretch of the board with the player in its middle, as far as the ends allow; None if there is no such player."""
        found = await self.server.run("board_around", self._around, KEYS, (user_id, limit))
        return None if found == 0 else _board(found)

    async def place(self, user_id: str) -> tuple[Standing, int] | None:
        """The player's standing, and how many players there are in all."""
        found = await self.server.run("board_place", self._place, KEYS, (user_id,))
        if found is None:
            raise _missing()
        if found == 0:
            return None
        rank, total, score, entry = found
        return _standing(rank + 1, user_id, score, entry), total

    async def is_built(self) -> bool:
        """Whether there is a board that was built since Redis was started."""
        async with self.server.use("board_is_whole") as client:
            return bool(await client.exists(CHANGED))

    async def look(self, user_ids: Sequence[str]) -> list[CachedEntry]:
        """What is stored of each of these players, for comparison."""
        return [
            CachedEntry(entry or b"", score or b"")
            for entry, score in zip(*await self.stored(user_ids), strict=True)
        ]

    async def stored(
        self, user_ids: Sequence[str]
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """The entries and the scores of these players as Redis says them, None where there is nothing."""
        found = await self.server.run("board_look", self._look, KEYS, user_ids)
        if found is None:
            raise _missing()
        entries, scores = found
        return entries, scores

    async def repair(self, user_id: str, seen: CachedEntry, right: Score | None) -> bool:
        """Set a player right (None: remove) who is still as `seen`; false where somebody else changed it in the meantime."""
        wanted = (
            ("", "", "") if right is None else (right.score, sortable_time(right), right.username)
        )
        return bool(
            await self.server.run(
                "board_heal", self._heal, KEYS, (user_id, seen.entry, seen.score, *wanted)
            )
        )

    async def sizes(self) -> tuple[int, int]:
        """How many members the sorted set has, and how many players the hash: the same, if all is well."""
        async with self.server.use("board_sizes") as client:
            return int(await client.zcard(BOARD)), int(await client.hlen(PLAYERS))

    async def player_pages(self, size: int) -> AsyncIterator[list[str]]:
        """The ids of all players in the hash, in no order, some perhaps twice; those that change meanwhile may be missed."""
        position = -1
        while position != 0:
            async with self.server.use("board_scan") as client:
                position, found = await client.hscan(PLAYERS, max(position, 0), count=size)
            if found:
                yield [user_id.decode(errors="replace") for user_id in found]

    async def member_pages(self, size: int) -> AsyncIterator[list[bytes]]:
        """All members of the sorted set, in the same way."""
        position = -1
        while position != 0:
            async with self.server.use("board_scan") as client:
                position, found = await client.zscan(BOARD, max(position, 0), count=size)
            if found:
                yield [member for member, _ in found]

    async def strays(self, members: Sequence[bytes], *, remove: bool) -> list[bytes]:
        """Which of these members no player's entry points at; removed, if so wished."""
        found: list[bytes] = await self.server.run(
            "board_strays", self._strays, KEYS, (int(remove), *members)
        )
        return found


def sortable_time(score: Score) -> str:
    """The moment as a sorted set wants it: the earlier, the greater, always as long."""
    return f"{GREATEST_TIME - to_microseconds(score.reached_at):0{TIME_DIGITS}}"


def _missing() -> LeaderboardNotCached:
    return LeaderboardNotCached("The board is not in Redis", retry_after=1)


def _board(found: list[Any] | None) -> LeaderboardPage:
    if found is None:
        raise _missing()
    total, changed, start, *players = found
    rows = zip(players[::3], players[1::3], players[2::3], strict=True)
    standings = [
        _standing(start + index, user.decode(), score, entry)
        for index, (user, score, entry) in enumerate(rows, start=1)
    ]
    return LeaderboardPage(
        tuple(standings), total, from_microseconds(int(changed)) if int(changed) else None
    )


def _standing(rank: int, user_id: str, score: bytes, entry: bytes) -> Standing:
    reached_at = from_microseconds(GREATEST_TIME - int(entry[:TIME_DIGITS]))
    return Standing(rank, user_id, entry[TIME_DIGITS:].decode(), int(score), reached_at)
