"""The link that `tally up` prints: it signs in the person who started the demo, once."""

from secrets import token_urlsafe
from typing import Final

from tally.kit.auth import matches_secret
from tally.kit.clock import Clock
from tally.settings import Secret

CODE_BYTES: Final = 24
LINK_SECONDS: Final = 900.0


class SignInLink:
    """A random code that is valid once and for 15 minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._code: Secret | None = Secret(token_urlsafe(CODE_BYTES))
        self._expires_at = clock.monotonic() + LINK_SECONDS

    @property
    def query(self) -> str:
        """The query string of the link; empty once the code is used."""
        return "" if self._code is None else f"?code={self._code.reveal()}"

    def redeem(self, code: str) -> bool:
        """Return whether the code is valid, and use it up."""
        if self._code is None or not matches_secret(code, self._code):
            return False
        self._code = None
        return self._clock.monotonic() < self._expires_at
