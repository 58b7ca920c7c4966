"""API keys: made, listed, revoked, and checked with every request of a board."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.devices.model import ApiKey, PageKey, check_text, check_uuid4, timestamp
from tally.devices.repository.keys import KeyRepository
from tally.errors import NotFound, Unauthenticated, Unavailable
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
from tally.kit.rate_limiter import RateLimiter
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret

USED_EVERY: Final = timedelta(minutes=5)
# A revoked key works this much longer at most, on the servers that have just seen it.
KNOWN_SECONDS: Final = 4.0

_raw_key = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeyService:
    """`known` holds keys that were looked up a moment ago, `noted` those whose use was written down lately."""

    keys: KeyRepository
    clock: Clock
    pepper: Secret
    limiter: RateLimiter
    known: TTLCache[str, ApiKey]
    noted: TTLCache[str, bool]

    async def create(self, description: str | None) -> tuple[ApiKey, str]:
        """A new key, and its raw form, which nobody will see again."""
        raw = secrets.token_hex(32)
        about = None if description is None else check_text(description, "description", 256)
        key = ApiKey(
            new_uuid(),
            self._hash(raw),
            timestamp(self.clock.now()),
            is_active=True,
            description=about,
        )
        await self.keys.create(key)
        return key, raw

    async def newest_first(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[ApiKey], PageKey | None]:
        return await self.keys.newest_first(limit, start)

    async def revoke(self, key_id: str) -> None:
        if not await self.keys.revoke(check_uuid4(key_id, "key_id")):
            raise NotFound(f"There is no API key {key_id}", code="key_not_found")

    async def authenticate(self, raw: str) -> ApiKey:
        """The key that a board sent, if it holds and has not come too often."""
        if not _raw_key.fullmatch(raw):
            raise _invalid()
        hashed = self._hash(raw)
        key = self.known.get(hashed)
        if key is None:
            key = await self.keys.by_hash(hashed)
            if key is None or not hmac.compare_digest(key.api_key_hash, hashed):
                raise _invalid()
            self.known.put(hashed, key)
        if not key.is_active:
            raise Unauthenticated("This API key has been revoked", code="key_revoked")
        self.limiter.take(key.key_id)
        if self.noted.get(key.key_id) is None:
            self.noted.put(key.key_id, True)
            await self._note(key)
        return key

    async def _note(self, key: ApiKey) -> None:
        now = self.clock.now()
        try:
            await self.keys.used(key.key_id, timestamp(now), timestamp(now - USED_EVERY))
        except Unavailable:
            self.noted.remove(key.key_id)
            raise

    def _hash(self, raw: str) -> str:
        return hashlib.sha256((self.pepper.reveal() + raw).encode()).hexdigest()


def _invalid() -> Unauthenticated:
    return Unauthenticated("Invalid API key", code="invalid_api_key")
