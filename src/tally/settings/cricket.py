"""Settings of the cricket backend: who signs people in, where scores come from, and where pushes go."""

from dataclasses import dataclass, field

from tally.settings.kinds import SECRET, TEXT, URL, Secret, choice, holds


@dataclass(frozen=True, kw_only=True)
class CricketSettings:
    """Without an issuer nobody can sign in; without a token of SportMonks' nothing is polled."""

    cricket_admin_key: Secret | None = field(
        default=None,
        metadata=holds(
            SECRET, "What operators send in X-Admin-Key. Without it, one is made at first start, in the data directory."
        ),
    )
    cricket_issuer: str | None = field(
        default=None, metadata=holds(URL, "The issuer of people's tokens: a Cognito user pool, for one.")
    )
    cricket_jwks_url: str | None = field(
        default=None, metadata=holds(URL, "The issuer's keys; without it, /.well-known/jwks.json at the issuer.")
    )
    cricket_client_id: str = field(default="", metadata=holds(TEXT, "Our client id at the issuer: the tokens' audience."))
    cricket_devices_per_user: str = field(
        default="many",
        metadata=holds(choice("many", "one"), "Whether a new device takes the place of a person's others."),
    )
