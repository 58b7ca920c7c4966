"""Sends one request to an external service and reads the response, bounded in size and time.

    response = await fetch(client.get(url).bearer_auth(token), "Strava")
    if response.status == 404: ...

The caller interprets the status. A missing or oversized response raises `Unavailable`; the message
omits the URL.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from pyreqwest.exceptions import PyreqwestError
from pyreqwest.request import RequestBuilder

from tally.errors import Unavailable

T = TypeVar("T")

MAX_RESPONSE_BYTES: Final = 1024 * 1024
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def decode(self, kind: type[T], service: str) -> T:
        """Return the body decoded as `kind`, or raise Unavailable: the service is at fault."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except DECODE_ERRORS as error:
            raise Unavailable(f"{service} sent an invalid response") from error


async def fetch(
    request: RequestBuilder, service: str, limit: int = MAX_RESPONSE_BYTES
) -> HttpResponse:
    """Send the request and return the response of at most `limit` bytes."""
    try:
        async with request.build_streamed() as response:
            body = bytearray()
            while (chunk := await response.body_reader.read_chunk()) is not None:
                body += chunk
                if len(body) > limit:
                    raise Unavailable(f"{service} sent more than {limit} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpResponse(response.status, headers, bytes(body))
    except PyreqwestError as error:
        # The cause is omitted: its message contains the URL, which may contain a token.
        raise Unavailable(f"{service} is unreachable: {type(error).__name__}") from None
