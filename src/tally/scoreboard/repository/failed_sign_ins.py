"""The table `failed_sign_ins`: attempts to sign in that have not succeeded, by subject."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.scoreboard.repository.database import Database

# The greatest exponent that does not overflow; every wait is capped far below.
_MAX_EXPONENT: Final = 30
# Counting and deciding in one statement admits no attempt too many, however many are concurrent.
_ADMIT: Final = f"""
INSERT INTO failed_sign_ins AS f (subject, attempts, retry_at, attempted_at)
VALUES ($1, 1, $2::timestamptz, $2)
ON CONFLICT (subject) DO UPDATE SET (attempts, retry_at, attempted_at) = (
    SELECT n, $2 + CASE
        WHEN n < $3::integer THEN interval '0'
        ELSE least(interval '1 second' * power(2, least(n - $3, {_MAX_EXPONENT})), $4::interval)
    END, $2
    FROM (
        SELECT CASE WHEN f.attempted_at < $2 - $5::interval THEN 1 ELSE f.attempts + 1 END
    ) AS next (n)
)
WHERE f.retry_at <= $2
RETURNING retry_at
"""
_DELETE_OLD: Final = """
DELETE FROM failed_sign_ins WHERE subject = ANY(ARRAY(
    SELECT subject FROM failed_sign_ins WHERE attempted_at < $1
    ORDER BY attempted_at LIMIT $2 FOR UPDATE SKIP LOCKED
)) RETURNING subject
"""


@dataclass(frozen=True, slots=True)
class BackOff:
    """After `free_attempts` the wait doubles from one second to `max_wait`.

    A pause of `forget_after` starts the count again.
    """

    free_attempts: int
    max_wait: timedelta
    forget_after: timedelta


@dataclass(frozen=True, slots=True)
class FailedSignInRepository:
    """Attempts by subject."""

    database: Database

    async def admit(self, subject: str, back_off: BackOff, now: datetime) -> datetime | None:
        """Count an attempt; return None if it is admitted, or when the next one will be."""
        async with self.database.use("admit_sign_in") as connection:
            admitted = await connection.fetchval(
                _ADMIT,
                subject,
                now,
                back_off.free_attempts,
                back_off.max_wait,
                back_off.forget_after,
            )
            if admitted is not None:
                return None
            retry_at: datetime | None = await connection.fetchval(
                "SELECT retry_at FROM failed_sign_ins WHERE subject = $1", subject
            )
        return retry_at or now  # a concurrent sign-in has just succeeded

    async def clear(self, subject: str) -> None:
        await self.database.value(
            "clear_failed_sign_ins", "DELETE FROM failed_sign_ins WHERE subject = $1", subject
        )

    async def delete_old(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` rows last used before a time, oldest first; return the count."""
        rows = await self.database.rows("delete_failed_sign_ins", _DELETE_OLD, before, limit)
        return len(rows)
