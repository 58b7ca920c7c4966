"""What Redis has not been told yet, because it was away: kept in this process until it is back.

Of each player only the latest score is kept, since a greater one makes the smaller old news. When
more than so many players wait, their scores are let go and the whole board is built anew instead.
What is lost with the process is found by the verifier.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from tally.kit import logs
from tally.scoreboard.model import Score

MOST: Final = 50_000

_log = logs.logger()


class Backlog:
    """Scores to show, players to take off the board, and access tokens that no longer hold."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._scores: dict[str, Score] = {}
        self._removed: dict[str, None] = {}
        self._void: dict[str, datetime] = {}
        # Whether more was let go than can be caught up one by one.
        self.needs_rebuild = False

    def has_pending_changes(self) -> bool:
        """Whether the board in Redis is behind what this process knows."""
        return bool(self._scores or self._removed or self.needs_rebuild)

    def __len__(self) -> int:
        return len(self._scores) + len(self._removed) + len(self._void)

    def add_score(self, score: Score) -> None:
        known = self._scores.get(score.user_id)
        if score.user_id not in self._removed and (known is None or known.score <= score.score):
            self._scores[score.user_id] = score
        self._bound()

    def add_removed(self, user_id: str) -> None:
        self._scores.pop(user_id, None)
        self._removed[user_id] = None
        self._bound()

    def add_revoked_token(self, token_hash: str, until: datetime) -> None:
        """The oldest are let go where there are too many: those have the least time left to be misused."""
        self._void[token_hash] = until
        while len(self._void) > self._most:
            del self._void[next(iter(self._void))]

    def is_revoked_token(self, token_hash: str) -> bool:
        """Whether Redis may still think well of a token that no longer holds."""
        return token_hash in self._void

    def scores(self) -> list[Score]:
        return list(self._scores.values())

    def removed(self) -> list[str]:
        return list(self._removed)

    def void(self) -> Iterator[tuple[str, datetime]]:
        yield from list(self._void.items())

    def mark_written(self, score: Score) -> None:
        """Redis shows it; a greater one that came meanwhile still waits."""
        if self._scores.get(score.user_id) == score:
            del self._scores[score.user_id]

    def mark_removed(self, user_id: str) -> None:
        self._removed.pop(user_id, None)

    def mark_token_revoked(self, token_hash: str) -> None:
        self._void.pop(token_hash, None)

    def _bound(self) -> None:
        if len(self._scores) + len(self._removed) > self._most:
            _log.warning(
                "Too much waits for Redis; the board will be built anew",
                action="backlog_overflow",
                most=self._most,
            )
            self._scores.clear()
            self._removed.clear()
            self.needs_rebuild = True
