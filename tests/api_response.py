"""A response of the server under test, with its body, and the check of error responses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
from pyreqwest.response import Response

from tally.error_codes import ERROR_CODES

# Members of some errors, besides `field`.
EXTENSIONS: Final = frozenset({"limit", "max_score"})


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

    @property
    def result(self) -> Any:
        """The body of a successful response."""
        assert self.status in {200, 201}, self
        assert self.headers["content-type"] == "application/json", self
        return self.json


def expect_error(
    response: ApiResponse, status: int, code: str, *words: str, **members: Any
) -> dict[str, Any]:
    """Assert the common error format (RFC 9457), the words of `detail`, and further members."""
    assert response.status == status, response
    assert response.headers["content-type"] == "application/problem+json", response
    body: dict[str, Any] = response.json
    required = {"type", "title", "status", "detail", "code", "requestId"}
    assert required <= set(body) <= required | {"field", *members, *EXTENSIONS}, body
    assert (body["status"], body["code"]) == (status, code), body
    assert body["type"] == f"/docs/errors#{code}"
    assert body["title"] == ERROR_CODES[code].title
    assert body["requestId"] == response.headers["x-request-id"]
    assert all(word in body["detail"] for word in words), body
    assert body["detail"]
    assert body | members == body, body
    assert ("www-authenticate" in response.headers) == (status == 401)
    assert ("retry-after" in response.headers) == (status in {429, 503})
    return body
