"""TLS certificates of the simulator: a private certificate authority and a server certificate.

certificates = make_certificates()  # load_or_create_certificates(directory) survives restarts
certificates.authority              # PEM: the root that clients must trust
"""

import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY: Final = timedelta(days=365)
_NAMES: Final = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
AUTHORITY_FILE: Final = "apns-authority.pem"
_SERVER_FILE: Final = "apns-server.pem"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, and the server's key with its certificate."""

    authority: bytes
    server: bytes

    def context(self) -> ssl.SSLContext:
        """A server context that negotiates only HTTP/2."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        # `load_cert_chain` reads files only; the temporary file is readable by its owner alone.
        with tempfile.NamedTemporaryFile() as file:
            file.write(self.server)
            file.flush()
            context.load_cert_chain(file.name)
        return context


def make_certificates(now: datetime | None = None) -> Certificates:
    """Create certificates that are valid for a year by the system clock, which TLS uses."""
    now = now or datetime.now(UTC)
    authority, server = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    name = _name("Simulated push service, authority")
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    root = _certificate(name, name, authority, now).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    leaf = (
        _certificate(_name("Simulated push service"), name, server, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        .add_extension(usage, critical=False)
    )
    return Certificates(_sign(root, authority), _key_pem(server) + _sign(leaf, authority))


def load_or_create_certificates(directory: Path) -> Certificates:
    """Load certificates from a directory; create new ones if missing or about to expire."""
    paths = [directory / AUTHORITY_FILE, directory / _SERVER_FILE]
    if all(path.exists() for path in paths):
        loaded = Certificates(*(path.read_bytes() for path in paths))
        if x509.load_pem_x509_certificate(loaded.authority).not_valid_after_utc > datetime.now(
            UTC
        ) + timedelta(days=1):
            return loaded
    created = make_certificates()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, content in zip(paths, (created.authority, created.server), strict=True):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return created


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + VALIDITY)


def _sign(builder: x509.CertificateBuilder, authority: EllipticCurvePrivateKey) -> bytes:
    return builder.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
