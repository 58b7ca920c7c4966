"""The leaderboard in Redis: a sorted set in PostgreSQL's order, and a hash of its players.

`leaderboard:global` is the sorted set. A member's score is the player's score, exact up to 2^53.
Its name is a 16-digit time and the user id; the time is the moment the score was reached, in
microseconds, subtracted from the largest 16-digit number. Among equal scores the earlier one ranks
higher, then the greater user id, as in PostgreSQL's index.

`leaderboard:global:players` is a hash from user id to an entry: those 16 digits, the revision of
the score, a space, the username and, after a space, the avatar. `leaderboard:global:changed_at` is
the time of the last score change, and exists only if the leaderboard is complete.
`leaderboard:global:version` is unique to the state of the leaderboard, so that a process can tell
whether a page that it has is current.
`leaderboard:global:removed:<user id>` prevents a late write from restoring a deleted or banned
player.

Scripts make every change atomic. Writes may arrive late and in any order: a revision that is not
newer than the current one is ignored. During a rebuild every change also applies to the new
leaderboard.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tally.kit.ids import new_uuid
from tally.scoreboard.model.errors import LeaderboardNotCached
from tally.scoreboard.model.scores import (
    MAX_SCORE,
    LeaderboardPage,
    Score,
    Standing,
    from_microseconds,
    to_microseconds,
)
from tally.scoreboard.repository.redis_client import InstrumentedRedis
from tally.scoreboard.repository.score_statements import MAX_TIME, TIME_DIGITS
from tally.scoreboard.repository.scripts import (
    AROUND,
    FIND_STRAYS,
    PUT,
    READ_ENTRIES,
    REMOVE,
    REPAIR,
    STANDING,
    TOP,
)

LEADERBOARD: Final = "leaderboard:global"
REMOVED_TTL_SECONDS: Final = 3600


def leaderboard_keys(name: str) -> tuple[str, str, str, str, str]:
    """Return the keys of a leaderboard, in the order in which the scripts expect them."""
    return (name, f"{name}:players", f"{name}:changed_at", f"{name}:rebuilding", f"{name}:version")


KEYS: Final = leaderboard_keys(LEADERBOARD)
_, PLAYERS, CHANGED, REBUILDING, VERSION = KEYS


@dataclass(frozen=True, slots=True)
class CachedEntry:
    """A player's entry and score as stored in Redis; empty if absent."""

    entry: bytes
    score: bytes

    def matches(self, score: Score | None) -> bool:
        """Return whether this is the player's score; None means no score."""
        if score is None:
            return not self.entry and not self.score
        return self.score == str(score.score).encode() and self.entry == entry_text(score).encode()


class LeaderboardCache:
    """A leaderboard in Redis, by default the global one; `name` is that of its sorted set.

    Methods raise CacheUnavailable; reads raise LeaderboardNotCached if it is not complete.
    """

    def __init__(self, redis: InstrumentedRedis, name: str = LEADERBOARD) -> None:
        self.redis = redis
        self.name = name
        self.keys = leaderboard_keys(name)
        self._put = redis.script(PUT)
        self._remove = redis.script(REMOVE)
        self._top = redis.script(TOP)
        self._around = redis.script(AROUND)
        self._standing = redis.script(STANDING)
        self._read_entries = redis.script(READ_ENTRIES)
        self._repair = redis.script(REPAIR)
        self._find_strays = redis.script(FIND_STRAYS)

    async def put(self, score: Score) -> int | None:
        """Write the score unless a newer one is stored, and return the player's rank.

        None if the leaderboard is not complete or the player was removed.
        """
        moment = to_microseconds(score.reached_at) if score.revision else 0
        rank = await self.redis.run(
            "leaderboard_put",
            self._put,
            (*self.keys, self._removed_key(score.user_id)),
            (new_uuid(), score.user_id, score.score, entry_text(score), moment),
        )
        return None if rank is None or rank < 0 else rank + 1

    async def remove(self, user_id: str, revision: int = MAX_SCORE) -> int | None:
        """Remove a player and return the player's last rank, if any.

        Only a score after `revision`, that of a player who was unbanned, restores the player.
        """
        keys = (*self.keys, self._removed_key(user_id))
        arguments = (new_uuid(), user_id, REMOVED_TTL_SECONDS, revision)
        rank = await self.redis.run("leaderboard_remove", self._remove, keys, arguments)
        return None if rank < 0 else rank + 1

    async def drop(self) -> None:
        """Delete the leaderboard; Redis frees it in the background."""
        async with self.redis.use("leaderboard_drop") as client:
            await client.unlink(*self.keys)

    def _removed_key(self, user_id: str) -> str:
        return f"{self.name}:removed:{user_id}"

    async def top(self, limit: int, offset: int = 0) -> LeaderboardPage:
        """Return `limit` standings from rank `offset` + 1."""
        return decode_page(
            await self.redis.run("leaderboard_top", self._top, self.keys, (offset, limit))
        )

    async def around(self, user_id: str, limit: int) -> LeaderboardPage | None:
        """Return `limit` standings centred on the player; None if the player does not exist."""
        reply = await self.redis.run(
            "leaderboard_around", self._around, self.keys, (user_id, limit)
        )
        return None if reply == 0 else decode_page(reply)

    async def standing(self, user_id: str) -> tuple[Standing, int] | None:
        """Return the player's standing and the number of players."""
        reply = await self.redis.run("leaderboard_standing", self._standing, self.keys, (user_id,))
        if reply is None:
            raise _not_cached()
        if reply == 0:
            return None
        rank, total, score, entry = reply
        return _standing(rank + 1, user_id, score, entry), total

    async def is_built(self) -> bool:
        """Return whether the leaderboard is complete, that is, built since Redis started."""
        async with self.redis.use("leaderboard_is_built") as client:
            return bool(await client.exists(self.keys[2]))

    async def read_entries(self, user_ids: Sequence[str]) -> list[CachedEntry]:
        """Return the stored entries of these players."""
        return [
            CachedEntry(entry or b"", score or b"")
            for entry, score in zip(*await self.read_raw(user_ids), strict=True)
        ]

    async def read_raw(
        self, user_ids: Sequence[str]
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the entries and the scores of these players as Redis replies them."""
        reply = await self.redis.run(
            "leaderboard_read_entries", self._read_entries, self.keys, user_ids
        )
        if reply is None:
            raise _not_cached()
        entries, scores = reply
        return entries, scores

    async def repair(self, user_id: str, current: CachedEntry, score: Score | None) -> bool:
        """Replace the player's entry, or remove it if `score` is None.

        Return false, without a change, if the entry is no longer `current`.
        """
        values = ("", "") if score is None else (score.score, entry_text(score))
        arguments = (new_uuid(), user_id, current.entry, current.score, *values)
        return bool(await self.redis.run("leaderboard_repair", self._repair, self.keys, arguments))

    async def sizes(self) -> tuple[int, int]:
        """Return the sizes of the sorted set and of the hash, which should be equal."""
        async with self.redis.use("leaderboard_sizes") as client:
            return int(await client.zcard(self.name)), int(await client.hlen(self.keys[1]))

    async def player_pages(self, size: int) -> AsyncIterator[list[str]]:
        """Iterate over the user ids in the hash, with the guarantees of HSCAN."""
        cursor = -1
        while cursor != 0:
            async with self.redis.use("leaderboard_scan") as client:
                cursor, page = await client.hscan(self.keys[1], max(cursor, 0), count=size)
            if page:
                yield [user_id.decode(errors="replace") for user_id in page]

    async def member_pages(self, size: int) -> AsyncIterator[list[bytes]]:
        """Iterate over the members of the sorted set, with the guarantees of ZSCAN."""
        cursor = -1
        while cursor != 0:
            async with self.redis.use("leaderboard_scan") as client:
                cursor, page = await client.zscan(self.name, max(cursor, 0), count=size)
            if page:
                yield [member for member, _ in page]

    async def find_strays(self, members: Sequence[bytes], *, remove: bool) -> list[bytes]:
        """Return the members that no player's entry refers to, and optionally remove them."""
        strays: list[bytes] = await self.redis.run(
            "leaderboard_find_strays",
            self._find_strays,
            self.keys,
            (new_uuid(), int(remove), *members),
        )
        return strays


def sortable_time(score: Score) -> str:
    """Return the time as 16 digits that sort in descending order of time."""
    return f"{MAX_TIME - to_microseconds(score.reached_at):0{TIME_DIGITS}}"


def entry_text(score: Score) -> str:
    """Return the player's entry in the hash."""
    avatar = "" if score.avatar_url is None else f" {score.avatar_url}"
    return f"{sortable_time(score)}{score.revision} {score.username}{avatar}"


def _not_cached() -> LeaderboardNotCached:
    return LeaderboardNotCached("Redis has no complete leaderboard", retry_after=1)


def decode_page(reply: list[Any] | None) -> LeaderboardPage:
    """Return the page that a script replied; raises LeaderboardNotCached if there is none."""
    if reply is None:
        raise _not_cached()
    total, changed, start, *players = reply
    rows = zip(players[::3], players[1::3], players[2::3], strict=True)
    standings = [
        _standing(start + index, user.decode(), score, entry)
        for index, (user, score, entry) in enumerate(rows, start=1)
    ]
    changed_at = from_microseconds(int(changed)) if int(changed) else None
    return LeaderboardPage(tuple(standings), total, changed_at)


def _standing(rank: int, user_id: str, score: bytes, entry: bytes) -> Standing:
    reached_at = from_microseconds(MAX_TIME - int(entry[:TIME_DIGITS]))
    # The revision, the username and perhaps the avatar; a damaged entry has only the time.
    _, *profile = entry[TIME_DIGITS:].decode().split(" ", 2)
    username, avatar_url = (*profile, None, None)[:2]
    return Standing(rank, user_id, username or "", int(score), reached_at, avatar_url)
