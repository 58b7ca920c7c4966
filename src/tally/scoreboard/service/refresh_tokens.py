"""Refresh tokens: each is derived from its predecessor, so that a chain has no forks.

A token is `{session id}.{base64url of 32 bytes}`. The first one is random. The next one is the
HMAC-SHA256 of the token before it, with a secret that is stored with the session:

- The same token always has the same successor. A client that repeats a refresh receives the same
  token again, and no second chain exists that could live on its own.
- The successors of a token lead to the current one, whose hash is stored. This proves that the
  token was valid once, so the reuse of any earlier token is detected.
- Neither the database (hash and secret) nor an old token alone suffices to compute a valid token.
"""

import base64
import hmac
import secrets
from typing import Final

from tally.scoreboard.model.accounts import PlayerSession, is_canonical_user_id
from tally.scoreboard.service.action_tokens import hash_token

# Bounds the work for a token that was never valid: about 20 ms.
MAX_GENERATIONS: Final = 5_000


def new_refresh_token(session_id: str) -> str:
    return f"{session_id}.{_encode(secrets.token_bytes(32))}"


def next_refresh_token(session: PlayerSession, token: str) -> str:
    """Return the successor of a token of this session."""
    digest = hmac.digest(session.refresh.secret, token.encode(), "sha256")
    return f"{session.session_id}.{_encode(digest)}"


def refresh_session_id(token: str) -> str | None:
    """Return the session that a token names; None if it has the form of an earlier version."""
    session_id = token.partition(".")[0]
    return session_id if is_canonical_user_id(session_id) else None


def generations_behind(session: PlayerSession, token: str) -> int | None:
    """Return 0 for the current token of the session, 1 for the one before; None if forged."""
    for steps in range(min(session.refresh.generation, MAX_GENERATIONS) + 1):
        if hash_token(token) == session.refresh.token_hash:
            return steps
        token = next_refresh_token(session, token)
    return None


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
