"""Verifies AWS Signature Version 4, which every AWS SDK computes.

On loopback any credentials are accepted, as by other local DynamoDB servers: only users of the
machine can connect. On other addresses the signature must be made with the installation's key.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote

from tally.settings import Secret
from tally.store.wire.service_errors import ServiceError, coral_error

ACCESS_KEY: Final = "tally"
MAX_SKEW_SECONDS: Final = 900
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_AUTHORIZATION: Final = re.compile(
    rf"{_ALGORITHM} Credential=([^/, ]+)/([0-9]{{8}})/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request,"
    r"\s*SignedHeaders=([a-z0-9;-]+),\s*Signature=([0-9a-f]{64})"
)
_SCHEME: Final = b"AWS4-"
_PARAMETERS: Final = (b"Credential", b"Signature", b"SignedHeaders")
Headers = Sequence[tuple[bytes, bytes]]


def check_authorization(url: bytes, headers: Mapping[bytes, bytes]) -> None:
    """Require what every signed request has, also where any credentials are accepted."""
    authorization = headers.get(b"authorization", b"")
    if not authorization.startswith(_SCHEME):
        message = "Request is missing Authentication Token"
        raise coral_error("MissingAuthenticationTokenException", message)
    if b"X-Amz-Algorithm=" in url:
        message = (
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP"
            " header."
        )
        raise coral_error("InvalidSignatureException", message)
    problems = [
        f"Authorization header requires '{name.decode()}' parameter. "
        for name in _PARAMETERS
        if name + b"=" not in authorization
    ]
    if b"x-amz-date" not in headers and b"date" not in headers:
        problems.append(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. "
        )
    if problems:
        message = f"{''.join(problems)}Authorization={authorization.decode('latin-1')}"
        raise coral_error("IncompleteSignatureException", message)


class SignatureCheck:
    """Checks requests against the secret of the installation; `now` is in epoch seconds."""

    def __init__(self, secret: Secret, now: Callable[[], float]) -> None:
        self._secret = secret
        self._now = now

    def check(self, url: bytes, headers: Headers, payload: bytes) -> None:
        """Raise ServiceError unless the request is signed with the installation's key."""
        values: dict[str, str] = {}
        for name, value in headers:
            values[name.decode("latin-1").lower()] = " ".join(value.decode("latin-1").split())
        match = _AUTHORIZATION.fullmatch(values.get("authorization", ""))
        if match is None:
            message = "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'."
            raise coral_error("IncompleteSignatureException", message)
        access_key, date, region, service, signed, signature = match.groups()
        if access_key != ACCESS_KEY:
            message = "The security token included in the request is invalid."
            raise coral_error("UnrecognizedClientException", message)
        names = signed.split(";")
        if "host" not in names or "x-amz-target" not in names or names != sorted(names):
            raise _mismatch()
        self._check_time(values.get("x-amz-date", ""), date)
        scope = f"{date}/{region}/{service}/aws4_request"
        canonical = _canonical_request(url, names, values, payload)
        digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        text = "\n".join((_ALGORITHM, values["x-amz-date"], scope, digest))
        key = f"AWS4{self._secret.reveal()}".encode()
        for part in (date, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        expected = hmac.new(key, text.encode(), "sha256").hexdigest()
        if not hmac.compare_digest(expected, signature):
            raise _mismatch()

    def _check_time(self, text: str, date: str) -> None:
        try:
            sent_at = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError:
            sent_at = 0.0
        if abs(self._now() - sent_at) > MAX_SKEW_SECONDS or not text.startswith(date):
            raise coral_error("InvalidSignatureException", f"Signature expired: {text[:32]}")


def _canonical_request(
    url: bytes, names: Sequence[str], values: dict[str, str], payload: bytes
) -> str:
    path, _, query = url.decode("latin-1").partition("?")
    pairs = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
    lines = [f"{name}:{values.get(name, '')}" for name in names]
    return "\n".join(
        (
            "POST",
            quote(unquote(path), safe="/-_.~"),
            "&".join(pairs),
            *lines,
            "",
            ";".join(names),
            hashlib.sha256(payload).hexdigest(),
        )
    )


def _mismatch() -> ServiceError:
    return coral_error(
        "InvalidSignatureException",
        "The request signature we calculated does not match the signature you provided. Check your"
        " AWS Secret Access Key and signing method.",
    )
