"""The server side of SMTP (RFC 5321), as far as clients that send mails need it."""

import asyncio
import email
import email.policy
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

MAX_MAIL_BYTES: Final = 1024 * 1024
MAX_RECIPIENTS: Final = 100
HOST: Final = "mail.example"
HTTP_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class ReceivedMail(msgspec.Struct, frozen=True):
    """A mail: the addresses of its envelope, and its subject and text."""

    sender: str
    to: tuple[str, ...]
    subject: str
    text: str


class SmtpSession:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sender: str | None = None
        self._recipients: list[str] = []

    async def mails(self, is_failing: Callable[[], bool]) -> AsyncIterator[ReceivedMail]:
        """Greet the client, and yield the mails that it sends until it leaves."""
        await self._reply(220, f"{HOST} simulated mail server")
        while line := await self._reader.readline():
            verb, _, argument = line.decode("utf-8", "replace").strip().partition(" ")
            match verb.upper():
                case "DATA" if self._recipients:
                    await self._reply(354, "End with a dot on a line of its own")
                    content = await self._read_content()
                    if is_failing():
                        await self._reply(451, "Try again later")
                        continue
                    mail = _parse(self._sender or "", tuple(self._recipients), content)
                    self._sender, self._recipients = None, []
                    yield mail
                    await self._reply(250, "Accepted")
                case verb if verb in HTTP_METHODS:
                    # A web page could otherwise send a mail in the body of a request.
                    await self._reply(554, "This is not an HTTP server")
                    return
                case "QUIT":
                    await self._reply(221, "Goodbye")
                    return
                case command:
                    await self._reply(*self._answer(command, argument))

    def _answer(self, verb: str, argument: str) -> tuple[int, str]:
        """Return the reply to a command without content."""
        if verb in {"EHLO", "HELO", "NOOP"}:
            return 250, HOST
        if verb == "RSET":
            self._sender, self._recipients = None, []
            return 250, "Reset"
        if verb == "MAIL" and argument.upper().startswith("FROM:"):
            self._sender, self._recipients = _address(argument), []
            return 250, "Sender accepted"
        if verb == "RCPT" and argument.upper().startswith("TO:") and self._sender is not None:
            if len(self._recipients) >= MAX_RECIPIENTS:
                return 452, "Too many recipients"
            self._recipients.append(_address(argument))
            return 250, "Recipient accepted"
        return 503, "Unexpected command"

    async def _read_content(self) -> bytes:
        """Return the lines up to a single dot, without the dots that the client doubled."""
        content = bytearray()
        while (line := await self._reader.readline()) != b".\r\n":
            if not line or len(content) > MAX_MAIL_BYTES:
                raise EOFError
            content += line[1:] if line.startswith(b".") else line
        return bytes(content)

    async def _reply(self, code: int, text: str) -> None:
        self._writer.write(f"{code} {text}\r\n".encode())
        await self._writer.drain()


def _address(argument: str) -> str:
    """Return the address in `FROM:<ana@example.com> SIZE=100`."""
    return argument.partition("<")[2].partition(">")[0]


def _parse(sender: str, to: tuple[str, ...], content: bytes) -> ReceivedMail:
    message = email.message_from_bytes(content, policy=email.policy.default)
    body = message.get_body(("plain",))
    text = "" if body is None else str(body.get_content())
    return ReceivedMail(sender, to, str(message["Subject"] or ""), text.replace("\r\n", "\n"))
