"""A response of the server under test, with its body."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from pyreqwest.response import Response


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response with a fully read body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    async def read(cls, response: Response) -> Self:
        """Read the body; assert that the response has a request id."""
        body = bytes(await response.bytes())
        result = cls(response.status, dict(response.headers.items()), body)
        assert result.headers["x-request-id"], "every response has a request id"
        return result

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)
