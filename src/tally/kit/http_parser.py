"""Parses the requests of one connection with httptools, and limits the size of their heads.

httptools stores a URL, a header or a trailer until it ends. The parser therefore counts the bytes
since it last made progress, and refuses a request as soon as they exceed the limit.
"""

from typing import Any, Final, Protocol
from urllib.parse import unquote

import httptools

from tally.kit.connection_table import HttpLimits
from tally.kit.http import Problem

# Bytes per read of a head. Few enough that the requests of one read need little memory.
READ_BYTES: Final = 8_192
# The method, the version and the line ends of a head.
FIRST_LINE_BYTES: Final = 64
MALFORMED: Final = Problem(400, "malformed_request", "The request is not valid HTTP")
UNKNOWN_TRANSFER_CODING: Final = Problem(
    501, "unknown_transfer_coding", "The transfer coding must be chunked"
)


class RequestRefused(Exception):
    """A request that does not reach the app."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class RequestHandler(Protocol):
    """Receives the requests of a connection, one after another."""

    def on_request(
        self, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool
    ) -> None: ...

    def on_request_body(self, body: bytes) -> None: ...

    def on_request_end(self) -> None: ...


class RequestParser:
    """Turns bytes into calls of a `RequestHandler`."""

    def __init__(self, handler: RequestHandler, limits: HttpLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.is_in_head = False
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        # Bytes since the parser last made progress: the size of an incomplete head or trailer.
        self._pending_bytes = 0

    def feed(self, data: memoryview) -> None:
        """Parse data; raise RequestRefused, or HttpParserUpgrade after the head of an upgrade."""
        self._pending_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise
        except httptools.HttpParserError as error:
            cause = error.__context__
            raise (
                cause if isinstance(cause, RequestRefused) else RequestRefused(MALFORMED)
            ) from None
        if self._pending_bytes > self._limits.header_bytes + len(self._url) + FIRST_LINE_BYTES:
            raise self._headers_too_large()

    def head(self) -> bytes:
        """Return the head of the last request, for another protocol."""
        lines = [b"%b %b HTTP/1.1\r\n" % (self._parser.get_method(), self._url)]
        lines += [b"%b: %b\r\n" % header for header in self._headers]
        return b"".join((*lines, b"\r\n"))

    # Called by httptools

    def on_message_begin(self) -> None:
        self.is_in_head = True
        self._url = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self._url = self._url + url if self._url else url
        if len(self._url) > self._limits.url_bytes:
            message = f"The URL must be at most {self._limits.url_bytes} bytes"
            raise RequestRefused(Problem(414, "url_too_long", message))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.is_in_head:
            return  # a trailer
        name = name.lower()
        if name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise RequestRefused(UNKNOWN_TRANSFER_CODING)
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        self._check_head_size()
        self._pending_bytes = 0
        is_upgrade = self._parser.should_upgrade()
        if is_upgrade and self._is_web_socket():
            return
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise RequestRefused(MALFORMED)
        self._handler.on_request(
            self._request_scope(version),
            keep_alive=version == "1.1" and not is_upgrade and self._parser.should_keep_alive(),
            expects_continue=self._expects_continue and version == "1.1",
        )

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        self._handler.on_request_body(body)

    def on_message_complete(self) -> None:
        self._pending_bytes = 0
        self._handler.on_request_end()

    def _check_head_size(self) -> None:
        limits = self._limits
        # The beginning of a head may have come with the end of the previous request.
        if self._pending_bytes + READ_BYTES > limits.header_bytes:
            size = sum(len(name) + len(value) + 4 for name, value in self._headers)
            if size > limits.header_bytes:
                raise self._headers_too_large()
        if len(self._headers) > limits.header_count:
            message = f"A request has at most {limits.header_count} headers"
            raise RequestRefused(Problem(431, "too_many_headers", message))

    def _headers_too_large(self) -> RequestRefused:
        message = f"The headers must be at most {self._limits.header_bytes} bytes"
        return RequestRefused(Problem(431, "headers_too_large", message))

    def _is_web_socket(self) -> bool:
        return any(
            name == b"upgrade" and value.lower() == b"websocket" for name, value in self._headers
        )

    def _request_scope(self, version: str) -> dict[str, Any]:
        """Return the part of the ASGI scope that depends on the request."""
        url = self._url
        if not url.startswith(b"/"):
            # The absolute form, which proxies send. Parsing anything else raises an error.
            parsed = httptools.parse_url(url)
            if parsed.host is None:
                raise RequestRefused(MALFORMED)
            self._set_host(parsed)
            url = (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
        raw_path, _, query = url.partition(b"#")[0].partition(b"?")
        path = raw_path.decode("ascii")
        return {
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self._headers,
        }

    def _set_host(self, url: Any) -> None:
        """Replace the Host header by the authority of the URL, which takes precedence."""
        host = b"[%b]" % url.host if b":" in url.host else url.host
        host += b":%d" % url.port if url.port else b""
        others = [header for header in self._headers if header[0] != b"host"]
        self._headers = [(b"host", host), *others]
