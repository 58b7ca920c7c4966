"""Credentials and retry policy of the DynamoDB engine, free of AWS's client libraries."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tally.kit.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Credentials:
    """An AWS access key. `repr` omits the secrets, so they cannot reach a log."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DynamoDBRetryPolicy:
    """Exponential back-off with full jitter, limited by attempts and a deadline in seconds.

    No back-off starts that would end after the deadline.
    The defaults leave room for `TransactionInProgress`, which requires a wait of five seconds.
    """

    attempts: int = 10
    initial_backoff: float = 0.05
    max_backoff: float = 3.0
    deadline: float = 15.0
    clock: Clock = field(default_factory=SystemClock)
    draw: Callable[[float, float], float] = random.uniform

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after this attempt, counted from 1."""
        return self.draw(0.0, min(self.max_backoff, self.initial_backoff * 2.0 ** (attempt - 1)))
