"""The gateway to a mail server, over SMTP: implements the port `Mailer`."""

from dataclasses import dataclass
from email.mime.text import MIMEText
from email.utils import format_datetime, formataddr, parseaddr
from typing import Final
from urllib.parse import unquote, urlsplit

import aiosmtplib
from aiosmtplib.email import parse_address

from tally.errors import Unavailable
from tally.kit.clock import Clock
from tally.kit.ids import new_uuid
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
    clock: Clock

    async def send(self, mail: Mail) -> None:
        """Send a mail; raises Unavailable."""
        parts = urlsplit(self.url.reveal())
        is_tls = parts.scheme == "smtps"
        try:
            await aiosmtplib.send(
                self._message(mail),
                sender=parseaddr(self.sender)[1],
                recipients=[_checked(mail.to)],
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

    def _message(self, mail: Mail) -> MIMEText:
        # Unlike EmailMessage, this does not parse the address, at which the parser may fail.
        message = MIMEText(mail.text)
        name, address = parseaddr(self.sender)
        message["From"], message["To"] = formataddr((name, address)), mail.to
        message["Subject"] = mail.subject
        # Many mail servers reject mails without these two.
        message["Date"] = format_datetime(self.clock.now())
        message["Message-ID"] = f"<{new_uuid()}@{address.rpartition('@')[2]}>"
        return message


def _checked(address: str) -> str:
    """Return an address; raises ValueError if SMTP would read another one, as in `a,b@x.org`."""
    if parse_address(address) != address:
        raise ValueError("the address needs quotes")
    return address
