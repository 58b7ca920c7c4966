"""The gateway to a mail server, over SMTP: implements the port `Mailer`."""

from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final
from urllib.parse import unquote, urlsplit

import aiosmtplib

from tally.errors import Unavailable
from tally.scoreboard.service.ports import Mail
from tally.settings import Secret

TIMEOUT_SECONDS: Final = 15.0
_PORTS: Final = {"smtp": 25, "smtps": 465}


@dataclass(frozen=True, slots=True)
class SmtpMailer:
    """Sends mails through the server of an URL: smtp[s]://[user:password@]host[:port].

    `smtps` uses TLS from the start. `smtp` upgrades to TLS if the server offers it, and always for
    a password.
    """

    url: Secret
    sender: str

    async def send(self, mail: Mail) -> None:
        """Send a mail; raises Unavailable."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.sender, mail.to, mail.subject
        message.set_content(mail.text)
        parts = urlsplit(self.url.reveal())
        is_tls = parts.scheme == "smtps"
        try:
            await aiosmtplib.send(
                message,
                hostname=parts.hostname,
                port=parts.port or _PORTS[parts.scheme],
                username=None if parts.username is None else unquote(parts.username),
                password=None if parts.password is None else unquote(parts.password),
                use_tls=is_tls,
                start_tls=False if is_tls else (True if parts.password else None),
                timeout=TIMEOUT_SECONDS,
            )
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            raise Unavailable(f"The mail server: {type(error).__name__}") from error
