"""Password resets: a player who forgot the password gets a single-use token by mail.

The request is answered before anybody looks for an account, in the same way for every address; a
job finds the account and sends the mail, and tries again if the mail server fails. Requests are
throttled per address, whether it has an account or not. Using a token ends all sessions.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.errors import Forbidden, Invalid, RateLimited, Unavailable
from tally.kit import logs
from tally.kit.clock import Clock
from tally.scoreboard.repository.failed_sign_ins import BackOff, FailedSignInRepository
from tally.scoreboard.repository.password_resets import PasswordResetRepository, ResetAccount
from tally.scoreboard.service.action_tokens import hash_token
from tally.scoreboard.service.passwords import ThreadedPasswordHasher
from tally.scoreboard.service.ports import Mail, Mailer
from tally.scoreboard.service.sessions import PlayerSessions

REQUESTS: Final = BackOff(
    free_attempts=3, max_wait=timedelta(hours=1), forget_after=timedelta(days=1)
)
RETRY_AFTER: Final = timedelta(seconds=30)
MAX_ATTEMPTS: Final = 6
TOKEN_BYTES: Final = 32
# Mails of one run, so that a job ends.
MAX_MAILS: Final = 100

_log = logs.logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordResets:
    """Accepts requests, sends tokens and sets new passwords; one field per collaborator."""

    resets: PasswordResetRepository
    requests: FailedSignInRepository
    sessions: PlayerSessions
    passwords: ThreadedPasswordHasher
    mailer: Mailer | None
    clock: Clock
    lifetime: timedelta
    page_url: str | None

    async def request(self, email: str) -> None:
        """Store a request; raises RateLimited, or Forbidden without a mail server."""
        if self.mailer is None:
            raise Forbidden(
                "Passwords cannot be reset by mail on this server", code="password_reset_disabled"
            )
        now = self.clock.now()
        retry_at = await self.requests.admit(reset_subject(email), REQUESTS, now)
        if retry_at is not None:
            raise RateLimited(
                "Too many password resets of this address; wait before the next one",
                retry_after=(retry_at - now).total_seconds(),
                code="too_many_resets",
            )
        await self.resets.add(email, now)

    async def reset(self, token: str, password: str) -> None:
        """Set a new password with a token from a mail, and end all sessions of the player."""
        token_hash = hash_token(token)
        username = await self.resets.find_username(token_hash, self.clock.now())
        if username is None:
            raise _invalid_token()
        await self.passwords.check_strength(password, username, "new_password")
        new_hash = await self.passwords.hash(password)
        if not await self.sessions.reset_password(token_hash, new_hash):
            raise _invalid_token()
        _log.info("Password reset", action="password_reset")

    async def send_due(self) -> None:
        """Send the mails that are due; the job that runs this works in every process."""
        if self.mailer is None:
            return
        for _ in range(MAX_MAILS):
            taken = await self.resets.take(self.clock.now(), RETRY_AFTER)
            if taken is None:
                return
            try:
                await self._send(self.mailer, taken.email)
            except Unavailable as error:
                _log.warning("Mail not sent", action="mail_failed", error=error)
                if taken.attempts < MAX_ATTEMPTS:
                    continue
            await self.resets.finish(taken.email)

    async def _send(self, mailer: Mailer, email: str) -> None:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        account = await self.resets.add_token(
            email, hash_token(token), self.clock.now() + self.lifetime
        )
        if account is not None:
            await mailer.send(self._mail(account, token))
            _log.info("Password reset mail sent", action="reset_mail_sent")

    def _mail(self, account: ResetAccount, token: str) -> Mail:
        minutes = round(self.lifetime.total_seconds() / 60)
        # After the #, so that the token is in no log of a web server.
        where = "Your code is:" if self.page_url is None else "Open this page:"
        link = token if self.page_url is None else f"{self.page_url}#token={token}"
        return Mail(
            account.email,
            "Reset your password",
            f"Hello {account.username},\n\nyou can reset your password now. {where}\n\n"
            f"{link}\n\nIt works once, within {minutes} minutes, and ends all your sessions.\n"
            "If you did not request this, ignore this mail: your password stays as it is.\n",
        )


def reset_subject(email: str) -> str:
    """Return what the requests of an address are counted by."""
    return f"reset:{hash_token(email.lower())}"


def _invalid_token() -> Invalid:
    return Invalid(
        "The token is invalid, expired or was used", code="invalid_reset_token", field="token"
    )
