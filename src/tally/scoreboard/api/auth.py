"""Authentication of players (access tokens) and game servers (an API key)."""

from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request

from tally.kit.auth import Claims, bearer_token, read_header, require_key
from tally.scoreboard.model.accounts import MAX_USER_AGENT_LENGTH, ClientInfo
from tally.scoreboard.service.sessions import AuthenticatedPlayer, PlayerSessions
from tally.settings import Secret

INTERNAL_HEADER: Final = "X-Internal-API-Key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreboardAuth:
    """Authenticates requests; each method raises Unauthenticated."""

    sessions: PlayerSessions
    internal_key: Secret

    async def player(self, request: Request) -> AuthenticatedPlayer:
        return await self.sessions.authenticate(bearer_token(request))

    def verify(self, request: Request) -> tuple[Claims, str]:
        """Return the claims and the text of the access token, whose session is not checked yet."""
        token = bearer_token(request)
        return self.sessions.tokens.verify(token), token

    async def optional_player(self, request: Request) -> AuthenticatedPlayer | None:
        """Return None for a request without an Authorization header."""
        return await self.player(request) if "authorization" in request.headers else None

    def require_game_server(self, request: Request) -> None:
        require_key(request, self.internal_key, INTERNAL_HEADER)


def client_info(request: Request) -> ClientInfo:
    return ClientInfo(
        request.client.host if request.client else None, read_header(request, b"user-agent")
    )


def score_event_client_info(client: ClientInfo) -> dict[str, Any]:
    """Return the client data that a score event stores until the account is deleted."""
    agent = (client.user_agent or "")[:MAX_USER_AGENT_LENGTH]
    device = "mobile" if "Mobi" in agent else "desktop" if "Mozilla" in agent else "other"
    return {"ip_address": client.ip_address, "user_agent": agent, "device_type": device}
