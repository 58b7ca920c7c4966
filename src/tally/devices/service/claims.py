"""Claims: an operator creates a one-time code, and a board exchanges it for its own API key."""

import secrets
from dataclasses import dataclass, replace
from typing import Final

from tally.devices.model.records import ApiKey, DeviceClaim
from tally.devices.model.validation import check_hardware_id, check_text
from tally.devices.repository.keys import ApiKeyRepository
from tally.devices.service.keys import ApiKeyService
from tally.devices.service.rate_limits import SharedRateLimiter
from tally.errors import Forbidden
from tally.kit.clock import Clock, rfc3339

# Crockford's alphabet, without letters that look like digits. Fifty bits cannot be guessed in the
# lifetime of a code, at the rate that the limits allow.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
CODE_LENGTH: Final = 10
# Attempts from one address, and from all addresses together.
ADDRESS_BURST: Final = 20
ADDRESS_RATE: Final = 0.5
TOTAL_BURST: Final = 200
TOTAL_RATE: Final = 10.0
_SIMILAR: Final = str.maketrans("OIL", "011", "- ")


@dataclass(frozen=True, slots=True)
class ClaimService:
    """Creates codes and exchanges them for keys."""

    claims: ApiKeyRepository
    keys: ApiKeyService
    clock: Clock
    by_address: SharedRateLimiter
    total: SharedRateLimiter

    async def create(
        self, operator: str, hardware_id: str | None, description: str | None, seconds: int
    ) -> tuple[DeviceClaim, str]:
        """Create a code for one board, or for any; also return the code, which is not stored."""
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
        claim = DeviceClaim(
            code_hash=self.keys.hash_secret(f"claim:{code}"),
            created_at=rfc3339(self.clock.now()),
            created_by=operator,
            expires_at=self.clock.seconds() + seconds,
            hardware_id=None if hardware_id is None else check_hardware_id(hardware_id),
            description=None
            if description is None
            else check_text(description, "description", 256),
        )
        await self.claims.create_claim(claim)
        return claim, f"{code[:5]}-{code[5:]}"

    async def use(self, code: str, hardware_id: str, address: str) -> tuple[ApiKey, str]:
        """Exchange a code for a key of this board; also return its raw form."""
        check_hardware_id(hardware_id)
        await self.by_address.take(f"claim#{address}")
        await self.total.take("claim")
        canonical = code.upper().translate(_SIMILAR)
        code_hash = self.keys.hash_secret(f"claim:{canonical}")
        description = await self.claims.claim_description(code_hash)
        key, raw = self.keys.generate(description or f"claimed by {hardware_id}")
        key = replace(key, hardware_ids=(hardware_id,))
        if not await self.claims.use_claim(code_hash, hardware_id, key, self.clock.seconds()):
            raise Forbidden(
                "The code is unknown, expired, used, or for another board", code="invalid_claim"
            )
        return key, raw
