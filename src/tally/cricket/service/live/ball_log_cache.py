"""A write-through cache of the ball logs of live matches.

A cached log is valid while no other instance processes the match. Therefore each log is stored with
the version of the match record that it belongs to; a different version causes a read of the store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tally.cricket.model.ball_log import BallLog, decode_ball_log, encode_ball_log
from tally.cricket.model.records import PROCESSING_TTL_SECONDS, ProcessingState
from tally.cricket.repository.processing import ProcessingRepository
from tally.kit.clock import Clock


@dataclass(frozen=True, slots=True)
class BallLogCache:
    """Ball logs by match."""

    repository: ProcessingRepository
    clock: Clock
    _cached: dict[str, tuple[int, BallLog]] = field(default_factory=dict)

    async def get(self, match_id: str, version: int) -> BallLog:
        """Return the log that belongs to this version of the match record."""
        cached = self._cached.get(match_id)
        if cached is not None and cached[0] == version:
            return cached[1]
        state = await self.repository.get(match_id, self.clock.seconds())
        return BallLog() if state is None else decode_ball_log(state.content)

    async def hydrate(self, versions: Mapping[str, int]) -> None:
        """Read the logs of these matches; `versions` are those of their records, read before."""
        states = await self.repository.hydrate(list(versions), self.clock.seconds())
        for state in states:
            self.remember(state.match_id, versions[state.match_id], decode_ball_log(state.content))

    async def put(self, match_id: str, log: BallLog) -> None:
        """Write a log to the store.

        After a crash before the match record is saved, the next poll reads this log, which contains
        the same balls or more.
        """
        now = self.clock.milliseconds()
        await self.repository.put(
            ProcessingState(
                match_id=match_id,
                last_ball_id=log.released,
                content=encode_ball_log(log),
                updated_at=now,
                expires_at=now // 1000 + PROCESSING_TTL_SECONDS,
            )
        )

    def remember(self, match_id: str, version: int, log: BallLog) -> None:
        """Cache a log with the version of the match record that it belongs to."""
        self._cached[match_id] = (version, log)

    def change_version(self, match_id: str, before: int, version: int) -> None:
        """Keep the cached log for a new version of the match record that did not change it."""
        cached = self._cached.get(match_id)
        if cached is not None and cached[0] == before:
            self._cached[match_id] = (version, cached[1])

    def forget(self, match_id: str) -> None:
        self._cached.pop(match_id, None)
