"""Authentication: boards send an API key, operators a bearer token."""

from dataclasses import dataclass

from starlette.requests import Request

from tally.devices.service.keys import ApiKeyService
from tally.kit.auth import api_key, require_bearer
from tally.settings import Secret


@dataclass(frozen=True, slots=True)
class DevicesAuth:
    """Authenticates requests or raises `Unauthenticated`."""

    keys: ApiKeyService
    admin_token: Secret

    async def require_board(self, request: Request) -> None:
        await self.keys.authenticate(api_key(request))

    def require_operator(self, request: Request) -> None:
        require_bearer(request, self.admin_token)
