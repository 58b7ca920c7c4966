"""Changes that Redis missed while it was unavailable, queued in this process.

Only the latest score of each player is queued. Above `max_pending` players the queue is dropped and
the leaderboard is rebuilt instead. The drift check repairs what is lost with the process.
"""

from datetime import datetime
from typing import Final

from tally.kit import logs
from tally.scoreboard.model.scores import MAX_SCORE, Score

MAX_PENDING: Final = 50_000

_log = logs.logger()


class Backlog:
    """Scores to write, players to remove and access tokens to revoke in Redis."""

    def __init__(self, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._scores: dict[str, Score] = {}
        self._removed: dict[str, int] = {}
        self._revoked: dict[str, datetime] = {}
        # Set when the queue overflowed and was dropped, and for a new season.
        self.needs_rebuild = False

    def has_pending_changes(self) -> bool:
        """Return whether the leaderboard in Redis lacks changes of this process."""
        return bool(self._scores or self._removed or self.needs_rebuild)

    def __len__(self) -> int:
        return len(self._scores) + len(self._removed) + len(self._revoked)

    def add_score(self, score: Score) -> None:
        queued = self._scores.get(score.user_id)
        is_removed = self._removed.get(score.user_id, -1) >= score.revision
        if not is_removed and (queued is None or queued.revision <= score.revision):
            self._scores[score.user_id] = score
        self._enforce_limit()

    def add_removed(self, user_id: str, revision: int = MAX_SCORE) -> None:
        """Queue a removal, which a score with a later revision undoes."""
        queued = self._scores.get(user_id)
        if queued is not None and queued.revision <= revision:
            del self._scores[user_id]
        self._removed[user_id] = max(revision, self._removed.get(user_id, revision))
        self._enforce_limit()

    def add_revoked_token(self, token_hash: str, until: datetime) -> None:
        """Queue a revocation. Above the limit the oldest, which expire first, are dropped."""
        self._revoked[token_hash] = until
        while len(self._revoked) > self._max_pending:
            del self._revoked[next(iter(self._revoked))]

    def is_revoked_token(self, token_hash: str) -> bool:
        """Return whether the token is revoked, although Redis may still list it as valid."""
        return token_hash in self._revoked

    def scores(self) -> list[Score]:
        return list(self._scores.values())

    def removed(self) -> list[tuple[str, int]]:
        return list(self._removed.items())

    def revoked_tokens(self) -> list[tuple[str, datetime]]:
        return list(self._revoked.items())

    def mark_written(self, score: Score) -> None:
        """Dequeue the score, unless a newer one was queued in the meantime."""
        if self._scores.get(score.user_id) == score:
            del self._scores[score.user_id]

    def mark_removed(self, user_id: str, revision: int) -> None:
        """Dequeue the removal, unless a later one was queued in the meantime."""
        if self._removed.get(user_id) == revision:
            del self._removed[user_id]

    def mark_token_revoked(self, token_hash: str) -> None:
        self._revoked.pop(token_hash, None)

    def _enforce_limit(self) -> None:
        if len(self._scores) + len(self._removed) > self._max_pending:
            _log.warning(
                "Redis backlog overflowed; the leaderboard will be rebuilt",
                action="backlog_overflowed",
                limit=self._max_pending,
            )
            self._scores.clear()
            self._removed.clear()
            self.needs_rebuild = True
