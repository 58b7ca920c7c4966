"""Settings of the collect backend: the OIDC provider and the Strava application."""

from dataclasses import dataclass, field

from tally.settings.types import EXTERNAL_SECRET, FLAG, SECRET, TEXT, URL, Secret, integer, setting


@dataclass(frozen=True, kw_only=True)
class CollectSettings:
    """Routes that need an OIDC provider or Strava fail with a clear error until configured.

    One flat class, because every field is an environment variable.
    """

    collect_public_url: str | None = field(
        default=None,
        metadata=setting(
            URL,
            "Public URL of this server, for sign-in and links. Default: taken from the request.",
        ),
    )
    collect_plain_http: bool = field(
        default=False,
        metadata=setting(
            FLAG,
            "Send the session cookie over plain HTTP too. Only for a demo on the loopback address.",
        ),
    )
    collect_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Encrypts Strava tokens and hashes IP addresses. Default: generated at first start,"
            " in the data directory. Changing it invalidates all Strava connections.",
        ),
    )
    collect_oidc_issuer: str | None = field(
        default=None,
        metadata=setting(
            URL, "Issuer URL of the OIDC provider for sign-in, such as a Cognito user pool."
        ),
    )
    collect_oidc_client_id: str = field(
        default="", metadata=setting(TEXT, "Client ID at the OIDC provider.")
    )
    collect_oidc_client_secret: Secret | None = field(
        default=None,
        metadata=setting(
            EXTERNAL_SECRET, "Client secret at the OIDC provider, if the client has one."
        ),
    )
    collect_oidc_delete_url: str | None = field(
        default=None,
        metadata=setting(
            URL,
            "URL of the Cognito API, to delete the identity with the account."
            " Without it, the identity is kept.",
        ),
    )
    collect_strava_api_url: str = field(
        default="https://www.strava.com/api/v3",
        metadata=setting(
            URL,
            "Base URL of Strava's API. Strava moves it to https://www.api-v3.strava.com on"
            " 2027-06-01.",
        ),
    )
    collect_strava_oauth_url: str = field(
        default="https://www.strava.com/oauth",
        metadata=setting(URL, "Base URL of Strava's OAuth endpoints."),
    )
    collect_strava_client_id: str = field(
        default="", metadata=setting(TEXT, "Client ID of the Strava application.")
    )
    collect_strava_client_secret: Secret | None = field(
        default=None,
        metadata=setting(EXTERNAL_SECRET, "Client secret of the Strava application."),
    )
    collect_strava_verify_token: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Token that Strava sends to verify the webhook. Default: generated at first start,"
            " in the data directory.",
        ),
    )
    collect_strava_webhook_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Last part of the webhook's path, /collect/webhooks/strava/{secret}. Letters, digits,"
            " - and _. Default: generated at first start, in the data directory.",
        ),
    )
    collect_strava_subscription_id: int = field(
        default=0,
        metadata=setting(
            integer(0, 10**15),
            "Webhook subscription at Strava. Events of other subscriptions are dropped."
            " 0: the one that tally collect subscribe registered.",
        ),
    )
    collect_strava_event_reads: int = field(
        default=80,
        metadata=setting(
            integer(0, 10**9),
            "Webhook events that may be read from Strava in 15 minutes, on all instances. The rest"
            " of Strava's limit is for synchronization. 0: no limit.",
        ),
    )
    collect_strava_athlete_event_reads: int = field(
        default=20,
        metadata=setting(
            integer(0, 10**9),
            "Webhook events of one athlete that may be read from Strava in 15 minutes."
            " 0: no limit.",
        ),
    )
    collect_max_file_bytes: int = field(
        default=20_000_000,
        metadata=setting(
            integer(1_000, 100_000_000),
            "Largest activity file that can be imported, in bytes, before and after decompression.",
        ),
    )
    collect_sign_in_limit: int = field(
        default=300,
        metadata=setting(
            integer(1, 1_000_000),
            "Sign-ins and Strava links that an address may start per minute and instance.",
        ),
    )
    collect_imports_per_hour: int = field(
        default=300,
        metadata=setting(
            integer(1, 100_000), "Activity files that a user may import per hour and instance."
        ),
    )
