"""Settings of the scoreboard backend: servers, keys, lifetimes and limits."""

from dataclasses import dataclass, field

from tally.settings.types import (
    SECRET,
    SECRETS,
    TEXT,
    URL,
    Secret,
    integer,
    server_url,
    setting,
)

_GENERATED = " Default: generated at first start, in the data directory."
_KEYS = (
    ", comma-separated, newest first: the first key signs, all verify."
    " Default: one key, generated at first start, in the data directory."
)


@dataclass(frozen=True, kw_only=True)
class ScoreboardSettings:
    """The variables `TALLY_SCOREBOARD_…`; one field per variable, so it has more than eight."""

    scoreboard_database_url: Secret | None = field(
        default=None,
        metadata=setting(
            server_url("postgresql", "postgres"),
            "URL of PostgreSQL; DATABASE_URL is an alias."
            " Default: an embedded server in the data directory.",
            alias="DATABASE_URL",
        ),
    )
    scoreboard_redis_url: Secret | None = field(
        default=None,
        metadata=setting(
            server_url("redis", "rediss", "unix"),
            "URL of Redis; REDIS_URL is an alias."
            " Default: an embedded server in the data directory.",
            alias="REDIS_URL",
        ),
    )
    scoreboard_database_connections: int = field(
        default=10,
        metadata=setting(integer(1, 500), "Maximum number of PostgreSQL connections per instance."),
    )
    scoreboard_database_seconds: int = field(
        default=5,
        metadata=setting(integer(1, 600), "Time-out of PostgreSQL statements in seconds."),
    )
    scoreboard_redis_milliseconds: int = field(
        default=500,
        metadata=setting(integer(10, 60_000), "Time-out of Redis calls in milliseconds."),
    )
    scoreboard_action_keys: tuple[Secret, ...] = field(
        default=(), metadata=setting(SECRETS, "Keys that sign action tokens" + _KEYS)
    )
    scoreboard_session_keys: tuple[Secret, ...] = field(
        default=(), metadata=setting(SECRETS, "Keys that sign access tokens" + _KEYS)
    )
    scoreboard_internal_key: Secret | None = field(
        default=None,
        metadata=setting(SECRET, "X-Internal-API-Key of the game servers." + _GENERATED),
    )
    scoreboard_access_seconds: int = field(
        default=900,
        metadata=setting(integer(10, 86_400), "Lifetime of access tokens in seconds."),
    )
    scoreboard_session_days: int = field(
        default=30,
        metadata=setting(
            integer(1, 3650), "Lifetime of sessions in days, regardless of token refreshes."
        ),
    )
    scoreboard_events_days: int = field(
        default=90,
        metadata=setting(integer(1, 3650), "Retention of score events and actions in days."),
    )
    scoreboard_auth_limit: int = field(
        default=10,
        metadata=setting(
            integer(1, 1_000_000),
            "Registrations, logins, refreshes and session requests per minute and address.",
        ),
    )
    scoreboard_score_limit: int = field(
        default=10,
        metadata=setting(integer(1, 1_000_000), "Score updates per minute and player."),
    )
    scoreboard_me_limit: int = field(
        default=30,
        metadata=setting(
            integer(1, 1_000_000), "Reads of one's own score and history per minute and player."
        ),
    )
    scoreboard_board_limit: int = field(
        default=60,
        metadata=setting(integer(1, 1_000_000), "Leaderboard reads per minute and address."),
    )
    scoreboard_action_limit: int = field(
        default=1000,
        metadata=setting(
            integer(1, 1_000_000), "Completed actions per minute, for all game servers together."
        ),
    )
    scoreboard_smtp_url: Secret | None = field(
        default=None,
        metadata=setting(
            server_url("smtp", "smtps"),
            "URL of the mail server, with user and password if it needs them;"
            " port 25, or 465 for smtps. Without one, passwords cannot be reset by mail.",
        ),
    )
    scoreboard_mail_from: str = field(
        default="Tally <no-reply@localhost.localdomain>",
        metadata=setting(TEXT, "Sender of mails to players."),
    )
    scoreboard_reset_page: str | None = field(
        default=None,
        metadata=setting(
            URL,
            "Page of your game that resets a password; the mail links to it with #token=…"
            " Default: the mail contains the token alone.",
        ),
    )
    scoreboard_reset_minutes: int = field(
        default=30,
        metadata=setting(integer(1, 1440), "Lifetime of a password reset token in minutes."),
    )
