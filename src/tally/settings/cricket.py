"""Settings of the cricket backend: who signs people in, where scores come from, and where pushes go."""

from dataclasses import dataclass, field
from pathlib import Path

from tally.settings.types import (
    EXTERNAL_SECRET,
    FLAG,
    PATH,
    SECRET,
    TEXT,
    URL,
    Secret,
    choice,
    integer,
    setting,
)


@dataclass(frozen=True, kw_only=True)
class CricketSettings:
    """Without an issuer nobody can sign in; without a token of SportMonks' nothing is polled."""

    cricket_admin_key: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "What operators send in X-Admin-Key. Without it, one is made at first start, in the data directory.",
        ),
    )
    cricket_issuer: str | None = field(
        default=None,
        metadata=setting(URL, "The issuer of people's tokens: a Cognito user pool, for one."),
    )
    cricket_jwks_url: str | None = field(
        default=None,
        metadata=setting(
            URL, "The issuer's keys; without it, /.well-known/jwks.json at the issuer."
        ),
    )
    cricket_client_id: str = field(
        default="", metadata=setting(TEXT, "Our client id at the issuer: the tokens' audience.")
    )
    cricket_devices_per_user: str = field(
        default="many",
        metadata=setting(
            choice("many", "one"), "Whether a new device takes the place of a person's others."
        ),
    )
    cricket_sportmonks_url: str = field(
        default="https://cricket.sportmonks.com/api/v2.0",
        metadata=setting(URL, "SportMonks' cricket API, where scores come from."),
    )
    cricket_sportmonks_token: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET, "Our token at SportMonks. Without it, no scores are polled."
        ),
    )
    cricket_sportmonks_timeout: int = field(
        default=5,
        metadata=setting(
            integer(1, 120),
            "Seconds that SportMonks has for an answer; it is asked up to three times.",
        ),
    )
    cricket_sportmonks_hourly_limit: int = field(
        default=2_000,
        metadata=setting(
            integer(1, 1_000_000),
            "Requests an hour for each kind of resource that our plan at SportMonks allows.",
        ),
    )
    cricket_marquee_leagues: str = field(
        default="1",
        metadata=setting(
            TEXT,
            "Ids of leagues at SportMonks, separated by commas, that are followed ball by ball.",
        ),
    )
    cricket_poll_ms: int = field(
        default=2_500,
        metadata=setting(
            integer(10, 600_000),
            "Milliseconds between two looks at the scores while a match is live.",
        ),
    )
    cricket_idle_poll_ms: int = field(
        default=60_000, metadata=setting(integer(10, 600_000), "The same while nothing is live.")
    )
    cricket_apns_url: str = field(
        default="https://api.push.apple.com",
        metadata=setting(
            URL,
            "Apple's push service; https://api.sandbox.push.apple.com for builds that run from Xcode.",
        ),
    )
    cricket_apns_channels: bool = field(
        default=True,
        metadata=setting(
            FLAG,
            "Whether each match has a broadcast channel, so that one push reaches everybody; false where Apple's key lacks it.",
        ),
    )
    cricket_apns_manage_url: str = field(
        default="https://api-manage-broadcast.push.apple.com:2196",
        metadata=setting(
            URL,
            "Where Apple manages broadcast channels; https://api-manage-broadcast.sandbox.push.apple.com:2195 for the sandbox.",
        ),
    )
    cricket_apns_bundle_id: str = field(
        default="", metadata=setting(TEXT, "The app's bundle id, from which the topics are made.")
    )
    cricket_apns_team_id: str = field(
        default="", metadata=setting(TEXT, "The id of the team at Apple that the key belongs to.")
    )
    cricket_apns_key_id: str = field(
        default="", metadata=setting(TEXT, "The id of the key at Apple.")
    )
    cricket_apns_key: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET,
            "Apple's key for pushes: the path of its .p8 file, or what is in it. Without it, nothing is pushed.",
        ),
    )
    cricket_apns_authority: Path | None = field(
        default=None,
        metadata=setting(
            PATH,
            "A certificate to trust beside the public authorities' when pushing: that of the simulator.",
        ),
    )
    cricket_apns_connections: int = field(
        default=2,
        metadata=setting(
            integer(1, 32),
            "Connections to Apple's push service, each with hundreds of pushes under way.",
        ),
    )
