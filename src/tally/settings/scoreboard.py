"""Settings of the scoreboard backend."""

from dataclasses import dataclass, field

from tally.settings.types import SECRET, SECRETS, Secret, integer, server_url, setting

_MADE = " Without it, one is made at first start, in the data directory."
_KEYS = (
    ", separated by commas, newest first: the first signs, all verify. Without them, one is made at first start, in the data"
    " directory."
)


@dataclass(frozen=True, kw_only=True)
class ScoreboardSettings:
    """Servers, keys, times and limits. Limits are requests a minute."""

    scoreboard_database_url: Secret | None = field(
        default=None,
        metadata=setting(
            server_url("postgresql", "postgres"),
            "The PostgreSQL that keeps accounts and scores; DATABASE_URL says the same. Without it, one is started in the data"
            " directory.",
            alias="DATABASE_URL",
        ),
    )
    scoreboard_redis_url: Secret | None = field(
        default=None,
        metadata=setting(
            server_url("redis", "rediss", "unix"),
            "The Redis that keeps the board in order; REDIS_URL says the same. Without it, one is started in the data directory.",
            alias="REDIS_URL",
        ),
    )
    scoreboard_database_connections: int = field(
        default=10,
        metadata=setting(integer(1, 500), "Connections to PostgreSQL that one server has at most."),
    )
    scoreboard_database_seconds: int = field(
        default=5,
        metadata=setting(integer(1, 600), "Seconds after which PostgreSQL gives up a statement."),
    )
    scoreboard_redis_milliseconds: int = field(
        default=500,
        metadata=setting(integer(10, 60_000), "Milliseconds after which Redis counts as away."),
    )
    scoreboard_action_keys: tuple[Secret, ...] = field(
        default=(), metadata=setting(SECRETS, "Keys of the action tokens" + _KEYS)
    )
    scoreboard_session_keys: tuple[Secret, ...] = field(
        default=(),
        metadata=setting(SECRETS, "Keys of the access tokens that players sign in for" + _KEYS),
    )
    scoreboard_internal_key: Secret | None = field(
        default=None, metadata=setting(SECRET, "X-Internal-API-Key of the game servers." + _MADE)
    )
    scoreboard_admin_key: Secret | None = field(
        default=None, metadata=setting(SECRET, "X-Admin-API-Key of the operators." + _MADE)
    )
    scoreboard_access_seconds: int = field(
        default=900,
        metadata=setting(
            integer(10, 86_400),
            "Seconds that an access token is good for; it is renewed by refresh.",
        ),
    )
    scoreboard_session_days: int = field(
        default=30,
        metadata=setting(
            integer(1, 3650), "Days that a session lasts, however often it is refreshed."
        ),
    )
    scoreboard_events_days: int = field(
        default=90,
        metadata=setting(integer(1, 3650), "Days that the history of score changes is kept."),
    )
    scoreboard_auth_limit: int = field(
        default=10,
        metadata=setting(
            integer(1, 1_000_000), "Requests a minute to sign up, in or on, for one address."
        ),
    )
    scoreboard_score_limit: int = field(
        default=10,
        metadata=setting(integer(1, 1_000_000), "Score updates a minute, for one player."),
    )
    scoreboard_me_limit: int = field(
        default=30,
        metadata=setting(
            integer(1, 1_000_000), "Looks at one's own score and history a minute, for one player."
        ),
    )
    scoreboard_board_limit: int = field(
        default=60,
        metadata=setting(
            integer(1, 1_000_000), "Looks at the leaderboard a minute, for one address."
        ),
    )
    scoreboard_action_limit: int = field(
        default=1000,
        metadata=setting(
            integer(1, 1_000_000),
            "Actions that game servers may vouch for in a minute, all together.",
        ),
    )
    scoreboard_streams_per_user: int = field(
        default=5,
        metadata=setting(
            integer(1, 100_000), "Streams of the leaderboard that one player may have open at once."
        ),
    )
    scoreboard_streams_per_address: int = field(
        default=10,
        metadata=setting(
            integer(1, 100_000),
            "Streams of the leaderboard that one address may have open at once.",
        ),
    )
