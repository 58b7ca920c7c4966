"""Settings of the collect backend: who signs people in, and our app at Strava."""

from dataclasses import dataclass, field

from tally.settings.types import EXTERNAL_SECRET, FLAG, SECRET, TEXT, URL, Secret, integer, setting


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """Without an issuer or an app at Strava, the routes that need them say so."""

    collect_public_url: str | None = field(
        default=None,
        metadata=setting(
            URL,
            "Where browsers reach this server, for sign-in and links; without it, what their requests say.",
        ),
    )
    collect_plain_http: bool = field(
        default=False,
        metadata=setting(
            FLAG,
            "Whether the session cookie also goes over plain HTTP: for a demo on this machine, nowhere else.",
        ),
    )
    collect_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Encrypts what collect must keep secret (Strava's tokens) and hashes addresses. Without it, one is made at first"
            " start, in the data directory; to change it ends all links to Strava.",
        ),
    )
    collect_admin_token: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Bearer token of collect's audit look-ups. Without it, one is made at first start, in the data directory.",
        ),
    )
    collect_oidc_issuer: str | None = field(
        default=None,
        metadata=setting(
            URL, "The OIDC issuer that signs people in: a Cognito user pool, for one."
        ),
    )
    collect_oidc_client_id: str = field(
        default="", metadata=setting(TEXT, "Our client id at the issuer.")
    )
    collect_oidc_client_secret: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET, "Our client secret at the issuer, if the client has one."
        ),
    )
    collect_oidc_delete_url: str | None = field(
        default=None,
        metadata=setting(
            URL,
            "Cognito's API, which deletes the identity with an account; without it, the identity stays.",
        ),
    )
    collect_strava_url: str = field(
        default="https://www.strava.com", metadata=setting(URL, "Where Strava is.")
    )
    collect_strava_client_id: str = field(
        default="", metadata=setting(TEXT, "The id of our app at Strava.")
    )
    collect_strava_client_secret: Secret | None = field(
        default=None, metadata=setting(EXTERNAL_SECRET, "The secret of our app at Strava.")
    )
    collect_strava_verify_token: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "What Strava has to say when it checks the webhook. Without it, one is made at first start, in the data directory.",
        ),
    )
    collect_strava_subscription_id: int = field(
        default=0,
        metadata=setting(
            integer(0, 10**15),
            "Our webhook subscription at Strava: events of others are refused; 0 takes any.",
        ),
    )
