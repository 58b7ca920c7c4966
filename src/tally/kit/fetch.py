"""One request to an outside system: its answer whole, bounded in size and time, or Unavailable.

    answer = await fetch(client.get(url).bearer_auth(token), "Strava")
    if answer.status == 404: ...

What a status means is for the caller; that nothing usable came back is said here, in words without
the address.
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


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def decode(self, kind: type[T], who: str) -> T:
        """The body as a `kind`; Unavailable where it is something else, since it is the other side that is wrong."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(f"{who} answered with something that cannot be read") from error


async def fetch(request: RequestBuilder, who: str, limit: int = MAX_RESPONSE_BYTES) -> HttpResponse:
    """The answer to a request, of at most `limit` bytes."""
    try:
        async with request.build_streamed() as response:
            body = bytearray()
            while (chunk := await response.body_reader.read_chunk()) is not None:
                body += chunk
                if len(body) > limit:
                    raise Unavailable(f"{who} answered with more than {limit} bytes")
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpResponse(response.status, headers, bytes(body))
    except PyreqwestError as error:
        # Without the cause: its words have the address in them, and some addresses hold a token.
        raise Unavailable(f"{who} cannot be reached: {type(error).__name__}") from None
