"""What Redis remembers of sessions (`session:<token hash>`) and of answers to action tokens (`action_token:<token hash>`).

PostgreSQL knows both. An entry lives as long as the token that it is about, so nothing here has to
be cleaned up.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from tally.scoreboard.model import CachedSession
from tally.scoreboard.repository.redis_client import InstrumentedRedis

SESSION: Final = "session:"
ACTION_TOKEN: Final = "action_token:"  # noqa: S105  (the name of a key)
CONSUMED: Final = b"consumed"
# How long an answer outlives the token that it was given for.
ANSWER_SECONDS: Final = 3600


class _Entry(msgspec.Struct, frozen=True):
    user_id: str
    session_id: str
    expires_at: datetime
    revoked: bool


_decoder = msgspec.json.Decoder(_Entry)


@dataclass(frozen=True, slots=True)
class SessionCache:
    """PlayerSessions by the hash of their access token.

    Every method raises CacheUnavailable where Redis does not answer.
    """

    server: InstrumentedRedis

    async def find(self, token_hash: str) -> CachedSession | None:
        """What is remembered, also of a revoked session; None if nothing is, or nothing that can be read."""
        async with self.server.use("session_find") as client:
            text = await client.get(SESSION + token_hash)
        if text is None:
            return None
        try:
            entry = _decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return CachedSession(entry.user_id, entry.session_id, entry.expires_at, entry.revoked)

    async def remember(self, token_hash: str, session: CachedSession, now: datetime) -> None:
        """Remember a session that holds, until it expires.

        What is remembered as revoked stays so.
        """
        text = msgspec.json.encode(
            _Entry(session.user_id, session.session_id, session.expires_at, session.revoked)
        )
        async with self.server.use("session_remember") as client:
            # Only where there is nothing: a look-up that was slow must not bring back what was
            # revoked meanwhile.
            await client.set(
                SESSION + token_hash, text, px=_milliseconds(session.expires_at, now), nx=True
            )

    async def revoke(self, token_hash: str, session: CachedSession, now: datetime) -> None:
        """Remember that a session does not hold any more."""
        text = msgspec.json.encode(
            _Entry(session.user_id, session.session_id, session.expires_at, revoked=True)
        )
        async with self.server.use("session_revoke") as client:
            await client.set(SESSION + token_hash, text, px=_milliseconds(session.expires_at, now))


@dataclass(frozen=True, slots=True)
class ResponseCache:
    """Answers by the hash of the action token.

    Every method raises CacheUnavailable where Redis does not answer.
    """

    server: InstrumentedRedis

    async def find(self, token_hash: str) -> bytes | None:
        """The answer that was given; None if none is remembered, or the token is known as used and nothing more."""
        async with self.server.use("answer_find") as client:
            answer: bytes | None = await client.get(ACTION_TOKEN + token_hash)
        return None if answer == CONSUMED else answer

    async def remember(
        self, token_hash: str, answer: bytes, token_expires_at: datetime, now: datetime
    ) -> None:
        """Remember the answer for an hour longer than the token holds."""
        milliseconds = _milliseconds(token_expires_at, now) + ANSWER_SECONDS * 1000
        async with self.server.use("answer_remember") as client:
            await client.set(ACTION_TOKEN + token_hash, answer, px=milliseconds)


def _milliseconds(until: datetime, now: datetime) -> int:
    """How long an entry lives; at least a moment, since Redis knows no shorter one."""
    return max(1, round((until - now).total_seconds() * 1000))
