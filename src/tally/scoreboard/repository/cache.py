"""Sessions (`session:<token hash>`) and responses (`action_token:<token hash>`) cached in Redis.

PostgreSQL stores both. Entries expire with their token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from tally.scoreboard.model.accounts import CachedSession
from tally.scoreboard.repository.redis_client import InstrumentedRedis

SESSION: Final = "session:"
ACTION_TOKEN: Final = "action_token:"  # noqa: S105  (the name of a key)
# How long a response outlives its token.
RESPONSE_SECONDS: Final = 3600


class _SessionEntry(msgspec.Struct, frozen=True):
    user_id: str
    session_id: str
    expires_at: datetime
    revoked: bool


_decoder = msgspec.json.Decoder(_SessionEntry)


@dataclass(frozen=True, slots=True)
class SessionCache:
    """Sessions by the hash of their access token. Methods raise CacheUnavailable."""

    redis: InstrumentedRedis

    async def find(self, token_hash: str) -> CachedSession | None:
        """Return the entry, which may be a revoked session; None if absent or unreadable."""
        async with self.redis.use("session_find") as client:
            text = await client.get(SESSION + token_hash)
        return decode_session(text)

    async def store(self, token_hash: str, session: CachedSession, now: datetime) -> None:
        """Cache a session until it expires, unless there is an entry, such as a revocation."""
        text = msgspec.json.encode(
            _SessionEntry(
                session.user_id, session.session_id, session.expires_at, session.is_revoked
            )
        )
        async with self.redis.use("session_store") as client:
            # NX: a slow lookup must not overwrite a revocation that happened meanwhile.
            await client.set(
                SESSION + token_hash, text, px=_ttl_milliseconds(session.expires_at, now), nx=True
            )

    async def revoke(self, token_hash: str, session: CachedSession, now: datetime) -> None:
        """Mark the session as revoked until it expires."""
        text = msgspec.json.encode(
            _SessionEntry(session.user_id, session.session_id, session.expires_at, revoked=True)
        )
        async with self.redis.use("session_revoke") as client:
            await client.set(
                SESSION + token_hash, text, px=_ttl_milliseconds(session.expires_at, now)
            )


@dataclass(frozen=True, slots=True)
class ResponseCache:
    """Responses to score updates by the hash of the action token.

    `RateLimitRepository.hit_and_find` reads them. Methods raise CacheUnavailable.
    """

    redis: InstrumentedRedis

    async def store(
        self, token_hash: str, response: bytes, token_expires_at: datetime, now: datetime
    ) -> None:
        """Cache the response until an hour after the token's expiry."""
        milliseconds = _ttl_milliseconds(token_expires_at, now) + RESPONSE_SECONDS * 1000
        async with self.redis.use("response_store") as client:
            await client.set(ACTION_TOKEN + token_hash, response, px=milliseconds)

    async def forget(self, token_hashes: Sequence[str]) -> None:
        """Delete the responses of these tokens, if there are any."""
        if token_hashes:
            async with self.redis.use("response_forget") as client:
                await client.unlink(*(ACTION_TOKEN + token_hash for token_hash in token_hashes))


def decode_session(text: bytes | None) -> CachedSession | None:
    """Return the session, which may be revoked; None if absent or unreadable."""
    if text is None:
        return None
    try:
        entry = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return CachedSession(entry.user_id, entry.session_id, entry.expires_at, entry.revoked)


def _ttl_milliseconds(until: datetime, now: datetime) -> int:
    """Return the TTL; Redis requires at least 1 ms."""
    return max(1, round((until - now).total_seconds() * 1000))
