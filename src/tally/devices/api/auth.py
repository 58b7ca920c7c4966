"""Authentication of boards by API key. `tally.kit.operators` authenticates operators."""

from dataclasses import dataclass

from starlette.requests import Request

from tally.devices.model.records import ApiKey
from tally.devices.service.keys import ApiKeyService
from tally.kit.auth import api_key
from tally.kit.rate_limits import record_rate_limit


@dataclass(frozen=True, slots=True)
class DevicesAuth:
    """Authenticates requests or raises `Unauthenticated`."""

    keys: ApiKeyService

    async def require_board(self, request: Request) -> ApiKey:
        """Return the key of a request, whose scope the handler checks."""
        key, status = await self.keys.authenticate(api_key(request))
        record_rate_limit(request.scope, status)
        return key
