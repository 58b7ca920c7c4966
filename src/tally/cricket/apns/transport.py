"""Opens the HTTP/2 connections to APNs and the APIs on them, as the settings describe."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyreqwest.client import Client, ClientBuilder

from tally.cricket.apns.channels import ChannelManager
from tally.cricket.apns.connection_pool import ConnectionPool
from tally.cricket.apns.provider_token import ProviderToken
from tally.cricket.apns.requests import PushRequests
from tally.kit.clock import Clock
from tally.kit.retry import RetryPolicy
from tally.settings import Secret, Settings, SettingsError

RESPONSE_TIMEOUT_SECONDS: Final = 10.0
_CONNECT_TIMEOUT_SECONDS: Final = 5.0
_KEEP_ALIVE_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class ApnsTransport:
    """The connections, the push API and the channel API; all of them require a key."""

    pool: ConnectionPool
    requests: PushRequests
    channels: ChannelManager


@asynccontextmanager
async def open_transport(
    settings: Settings,
    key: Secret,
    clock: Clock,
    retry_policy: RetryPolicy,
    response_timeout: float,
) -> AsyncIterator[ApnsTransport]:
    """Open the transport; raise SettingsError if the settings are invalid."""
    provider = _provider_token(settings, key, clock)
    authority = _read_authority(settings.cricket_apns_authority)
    pool = ConnectionPool(
        lambda: _connect(authority, response_timeout),
        settings.cricket_apns_connections,
        clock,
        pause=retry_policy.base,
        max_pause=3 * retry_policy.cap,
    )
    requests = PushRequests(settings.cricket_apns_url, settings.cricket_apns_bundle_id, provider)
    async with _connect(authority, response_timeout) as client:
        channels = ChannelManager(
            client,
            settings.cricket_apns_manage_url,
            settings.cricket_apns_bundle_id,
            provider,
            clock,
        )
        try:
            yield ApnsTransport(pool, requests, channels)
        finally:
            await pool.close()


def _provider_token(settings: Settings, key: Secret, clock: Clock) -> ProviderToken:
    required = ("cricket_apns_bundle_id", "cricket_apns_team_id", "cricket_apns_key_id")
    missing = [name for name in required if not getattr(settings, name)]
    if missing:
        raise SettingsError(
            [f"TALLY_{name.upper()} is required with TALLY_CRICKET_APNS_KEY" for name in missing]
        )
    text = key.reveal().replace("\\n", "\n")
    if "-----BEGIN" not in text:
        try:
            text = Path(text).expanduser().read_text()
        except (OSError, ValueError) as error:
            raise SettingsError(
                ["TALLY_CRICKET_APNS_KEY must be a PEM key or the path of a readable file"]
            ) from error
    return ProviderToken(
        Secret(text), settings.cricket_apns_key_id, settings.cricket_apns_team_id, clock
    )


def _read_authority(path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path is not None else None
    except OSError as error:
        raise SettingsError(
            [f"TALLY_CRICKET_APNS_AUTHORITY: cannot read {path}: {error.strerror}"]
        ) from error


def _connect(authority: bytes | None, response_timeout: float) -> Client:
    """Build a client with one HTTP/2 connection; keep-alive pings detect a dead peer."""
    builder = (
        ClientBuilder()
        .http2_prior_knowledge()
        .https_only(True)
        .follow_redirects(False)
        .user_agent("tally")
        .timeout(timedelta(seconds=response_timeout))
        .connect_timeout(timedelta(seconds=_CONNECT_TIMEOUT_SECONDS))
        .pool_idle_timeout(None)
        .http2_keep_alive_interval(timedelta(seconds=_KEEP_ALIVE_SECONDS))
        .http2_keep_alive_timeout(timedelta(seconds=RESPONSE_TIMEOUT_SECONDS))
        .http2_keep_alive_while_idle(True)
    )
    return (
        builder.add_root_certificate_pem(authority) if authority is not None else builder
    ).build()
