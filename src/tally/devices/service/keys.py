"""API keys: creates, lists and revokes them, and authenticates requests from boards."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tally.devices.model.fleet import check_group
from tally.devices.model.records import ApiKey, PageKey
from tally.devices.model.validation import (
    check_hardware_id,
    check_text,
    check_uuid4,
    invalid_field,
)
from tally.devices.repository.keys import ApiKeyRepository
from tally.devices.service.rate_limits import SharedRateLimiter
from tally.errors import NotFound, Unauthenticated, Unavailable
from tally.kit.clock import Clock, rfc3339
from tally.kit.ids import new_uuid
from tally.kit.rate_limits import RateLimitStatus
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret

LAST_USED_INTERVAL: Final = timedelta(minutes=5)
# A server with the key in its cache accepts a revoked key for up to this long.
KEY_CACHE_SECONDS: Final = 4.0
MAX_KEY_BOARDS: Final = 100
# Of 64 characters; the rest has 224 random bits.
PREFIX_LENGTH: Final = 8

_raw_key = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ApiKeyService:
    """Manages API keys.

    `cached_keys` maps hashes to keys. `recently_used` holds the ids of keys whose last use was
    recorded within `LAST_USED_INTERVAL`.
    """

    keys: ApiKeyRepository
    clock: Clock
    pepper: Secret
    limiter: SharedRateLimiter
    cached_keys: TTLCache[str, ApiKey]
    recently_used: TTLCache[str, bool]

    async def create(
        self,
        description: str | None,
        hardware_ids: Sequence[str] | None = None,
        group: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key for these boards, those of a group, or all; also return its raw form.

        The raw form is not stored.
        """
        key, raw = self.generate(description)
        if hardware_ids is not None:
            key = replace(key, hardware_ids=_check_boards(hardware_ids))
        if group is not None:
            if hardware_ids is not None:
                raise invalid_field("group", "must not be set together with hardware_ids")
            key = replace(key, group=check_group(group))
        await self.keys.create(key)
        return key, raw

    def generate(self, description: str | None) -> tuple[ApiKey, str]:
        """Generate a key and its raw form, without storing it."""
        raw = secrets.token_hex(32)
        key = ApiKey(
            new_uuid(),
            self.hash_secret(raw),
            rfc3339(self.clock.now()),
            is_active=True,
            description=None
            if description is None
            else check_text(description, "description", 256),
            prefix=raw[:PREFIX_LENGTH],
        )
        return key, raw

    async def newest_first(
        self, limit: int, start: PageKey | None
    ) -> tuple[list[ApiKey], PageKey | None]:
        return await self.keys.newest_first(limit, start)

    async def revoke(self, key_id: str) -> None:
        if not await self.keys.revoke(check_uuid4(key_id, "key_id")):
            raise NotFound(f"API key {key_id} does not exist", code="key_not_found")

    async def authenticate(self, raw: str) -> tuple[ApiKey, RateLimitStatus]:
        """Require a raw key that is active and within its rate limit; return what remains of it."""
        hashed = self.hash_secret(raw)
        key = self.cached_keys.get(hashed)
        if key is None:
            if not _raw_key.fullmatch(raw):
                raise _invalid()
            key = await self.keys.by_hash(hashed)
            if key is None or not hmac.compare_digest(key.api_key_hash, hashed):
                raise _invalid()
            self.cached_keys.put(hashed, key)
        if not key.is_active:
            raise Unauthenticated("The API key has been revoked", code="key_revoked")
        status = await self.limiter.take(key.key_id)
        if self.recently_used.get(key.key_id) is None:
            self.recently_used.put(key.key_id, True)
            await self._record_use(key)
        return key, status

    async def _record_use(self, key: ApiKey) -> None:
        now = self.clock.now()
        try:
            await self.keys.update_last_used(
                key.key_id, rfc3339(now), rfc3339(now - LAST_USED_INTERVAL)
            )
        except Unavailable:
            self.recently_used.remove(key.key_id)
            raise

    def hash_secret(self, raw: str) -> str:
        return hashlib.sha256((self.pepper.reveal() + raw).encode()).hexdigest()


def _invalid() -> Unauthenticated:
    return Unauthenticated("Invalid API key", code="invalid_api_key")


def _check_boards(hardware_ids: Sequence[str]) -> tuple[str, ...]:
    if not 0 < len(hardware_ids) <= MAX_KEY_BOARDS:
        raise invalid_field("hardware_ids", f"must have 1 to {MAX_KEY_BOARDS} entries")
    return tuple(dict.fromkeys(check_hardware_id(found) for found in hardware_ids))
