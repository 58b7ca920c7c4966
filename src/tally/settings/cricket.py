"""Settings of the cricket backend: sign-in, score service and push notifications."""

from dataclasses import dataclass, field
from pathlib import Path

from tally.settings.types import (
    EXTERNAL_SECRET,
    FLAG,
    PATH,
    TEXT,
    URL,
    Secret,
    choice,
    integer,
    setting,
)


@dataclass(frozen=True, kw_only=True)
class CricketSettings:
    """Without an issuer users cannot sign in; without a SportMonks token no scores are polled.

    It has one field per environment variable.
    """

    cricket_issuer: str | None = field(
        default=None,
        metadata=setting(URL, "Issuer of the users' access tokens, such as a Cognito user pool."),
    )
    cricket_jwks_url: str | None = field(
        default=None,
        metadata=setting(URL, "JWKS URL. Default: /.well-known/jwks.json of the issuer."),
    )
    cricket_client_id: str = field(
        default="",
        metadata=setting(
            TEXT, "Client ID of the app at the issuer; access tokens of other clients are rejected."
        ),
    )
    cricket_devices_per_user: str = field(
        default="many",
        metadata=setting(
            choice("many", "one"),
            "With `one`, a new device replaces the other devices of its user.",
        ),
    )
    cricket_sportmonks_url: str = field(
        default="https://cricket.sportmonks.com/api/v2.0",
        metadata=setting(URL, "Base URL of the SportMonks cricket API."),
    )
    cricket_sportmonks_token: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET, "SportMonks API token. If not set, no scores are polled."
        ),
    )
    cricket_sportmonks_timeout: int = field(
        default=5,
        metadata=setting(
            integer(1, 120),
            "Time-out of a SportMonks request in seconds; requests are sent up to three times.",
        ),
    )
    cricket_sportmonks_hourly_limit: int = field(
        default=2_000,
        metadata=setting(
            integer(1, 1_000_000),
            "Requests per hour and resource that the SportMonks plan allows.",
        ),
    )
    cricket_marquee_leagues: str = field(
        default="1",
        metadata=setting(
            TEXT,
            "Comma-separated SportMonks IDs of leagues that are polled ball by ball.",
        ),
    )
    cricket_poll_ms: int = field(
        default=2_500,
        metadata=setting(
            integer(10, 600_000),
            "Poll interval in milliseconds while a match is live.",
        ),
    )
    cricket_idle_poll_ms: int = field(
        default=60_000,
        metadata=setting(
            integer(10, 600_000), "Poll interval in milliseconds while no match is live."
        ),
    )
    cricket_apns_url: str = field(
        default="https://api.push.apple.com",
        metadata=setting(
            URL,
            "APNs URL; https://api.sandbox.push.apple.com for development builds.",
        ),
    )
    cricket_apns_channels: bool = field(
        default=True,
        metadata=setting(
            FLAG,
            "Use broadcast channels, so that one push reaches all followers of a match;"
            " set to no if the APNs key does not support them.",
        ),
    )
    cricket_apns_manage_url: str = field(
        default="https://api-manage-broadcast.push.apple.com:2196",
        metadata=setting(
            URL,
            "APNs URL for channel management;"
            " https://api-manage-broadcast.sandbox.push.apple.com:2195 for the sandbox.",
        ),
    )
    cricket_apns_bundle_id: str = field(
        default="",
        metadata=setting(TEXT, "Bundle ID of the app, from which APNs topics are derived."),
    )
    cricket_apns_team_id: str = field(
        default="", metadata=setting(TEXT, "Apple team ID of the APNs key.")
    )
    cricket_apns_key_id: str = field(default="", metadata=setting(TEXT, "Key ID of the APNs key."))
    cricket_apns_key: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET,
            "APNs signing key: the path or the content of its .p8 file. If not set, no push is"
            " sent.",
        ),
    )
    cricket_apns_authority: Path | None = field(
        default=None,
        metadata=setting(
            PATH,
            "Additional CA certificate to trust for APNs, such as that of the simulator.",
        ),
    )
    cricket_apns_connections: int = field(
        default=2,
        metadata=setting(
            integer(1, 32),
            "Connections to APNs; each carries hundreds of concurrent pushes.",
        ),
    )
