"""Settings of the instance: network, logs and store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tally.settings.types import (
    FLAG,
    HOST_NAMES,
    OPERATOR_TOKEN,
    ORIGINS,
    PATH,
    PROXIES,
    SECRET,
    TABLE_PREFIX,
    TEXT,
    URL,
    Secret,
    choice,
    integer,
    setting,
    subset,
)

# Hosts that only programs on the same machine can reach.
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
BACKENDS: Final = ("collect", "cricket", "devices", "scoreboard")


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """Settings of every instance, whichever backends it serves.

    One field per environment variable, hence their number.
    """

    host: str = field(
        default="127.0.0.1",
        metadata=setting(TEXT, "Address to listen on; 0.0.0.0 for all interfaces."),
    )
    port: int = field(
        default=8080,
        metadata=setting(integer(0, 65535), "Port to listen on; 0 selects a free port."),
    )
    backends: tuple[str, ...] = field(
        default=BACKENDS,
        metadata=setting(subset(*BACKENDS), "Comma-separated list of backends to run."),
    )
    data_dir: Path = field(
        default=Path("data"),
        metadata=setting(PATH, "Directory of the embedded store and of generated keys."),
    )
    log_level: str = field(
        default="info",
        metadata=setting(choice("debug", "info", "warning", "error"), "Minimum log level."),
    )
    log_format: str = field(
        default="auto",
        metadata=setting(
            choice("auto", "json", "text"),
            "Log format; auto is text on a terminal and JSON lines otherwise.",
        ),
    )
    access_log: bool = field(
        default=False,
        metadata=setting(FLAG, "Log every request. Unexpected errors are always logged."),
    )
    trusted_proxies: tuple[str, ...] = field(
        default=("127.0.0.1",),
        metadata=setting(
            PROXIES,
            "Comma-separated addresses and networks of proxies whose X-Forwarded-For and"
            " X-Forwarded-Proto are trusted. * trusts all clients, which can then invent"
            " their address.",
        ),
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            HOST_NAMES,
            "Comma-separated names by which clients reach this server: the names in their Host"
            " header, *.example.com for subdomains, * for any. IP addresses and localhost always"
            " work.",
        ),
    )
    cors_origins: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            ORIGINS,
            "Comma-separated origins whose web pages may call the APIs of all backends (CORS), such"
            " as https://game.example.com; * for any. Default: none.",
        ),
    )
    streams_per_person: int = field(
        default=5,
        metadata=setting(
            integer(1, 100_000), "Maximum number of open streams per person, for all instances."
        ),
    )
    streams_per_address: int = field(
        default=10,
        metadata=setting(
            integer(1, 100_000),
            "Maximum number of open streams per IPv4 address or IPv6 /64 network, for all"
            " instances and backends.",
        ),
    )
    shutdown_grace: int = field(
        default=10,
        metadata=setting(
            integer(0, 3600),
            "Seconds that running requests and jobs get to finish at shutdown.",
        ),
    )
    shutdown_delay: int = field(
        default=5,
        metadata=setting(
            integer(0, 3600),
            "Seconds that tally serve accepts connections after SIGTERM while it reports not"
            " ready, so that load balancers can take it out.",
        ),
    )
    max_header_bytes: int = field(
        default=16_384,
        metadata=setting(integer(1024, 1024 * 1024), "Maximum size of a request's headers."),
    )
    max_headers: int = field(
        default=100, metadata=setting(integer(10, 1000), "Maximum number of headers of a request.")
    )
    max_url_bytes: int = field(
        default=8_192,
        metadata=setting(integer(256, 1024 * 1024), "Maximum length of a request's URL in bytes."),
    )
    max_connections: int = field(
        default=10_000,
        metadata=setting(
            integer(1, 1_000_000),
            "Maximum number of connections; at most the descriptor limit (ulimit -n) minus 128.",
        ),
    )
    max_connections_per_address: int = field(
        default=256,
        metadata=setting(
            integer(1, 1_000_000),
            "Maximum number of connections from an IPv4 address or IPv6 /64 network, except"
            " trusted proxies.",
        ),
    )
    header_timeout: int = field(
        default=10,
        metadata=setting(integer(1, 3600), "Seconds within which the headers must arrive."),
    )
    body_timeout: int = field(
        default=30,
        metadata=setting(integer(1, 3600), "Seconds within which the body must arrive."),
    )
    idle_timeout: int = field(
        default=30,
        metadata=setting(
            integer(1, 3600),
            "Seconds that a connection stays open between requests; set it above the idle"
            " time-out of a load balancer in front.",
        ),
    )
    write_timeout: int = field(
        default=30,
        metadata=setting(
            integer(1, 3600), "Seconds after which a client that does not read is disconnected."
        ),
    )
    console_idle_timeout: int = field(
        default=3_600,
        metadata=setting(
            integer(1, 86_400), "Seconds without use after which a console session ends."
        ),
    )
    console_session_lifetime: int = field(
        default=43_200,
        metadata=setting(
            integer(1, 2_592_000), "Seconds after which a console session ends, even if in use."
        ),
    )
    operator_token: Secret | None = field(
        default=None,
        metadata=setting(
            OPERATOR_TOKEN,
            "Token of the operator named automation, for programs that administer the instance.",
        ),
    )
    operator_audit_days: int = field(
        default=365,
        metadata=setting(
            integer(1, 3650), "Days for which the audit trail keeps the changes of operators."
        ),
    )
    webhooks_private_addresses: bool = field(
        default=False,
        metadata=setting(
            FLAG,
            "Let outgoing webhooks use private, loopback and link-local addresses, and http."
            " Operators can then reach programs in your network.",
        ),
    )
    webhooks_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Encrypts the signing secrets of outgoing webhooks. Default: generated at first start,"
            " in the data directory; instances with separate data directories must share it.",
        ),
    )
    store_engine: str = field(
        default="sqlite",
        metadata=setting(
            choice("sqlite", "dynamodb"),
            "Where tables are stored: sqlite in the data directory, or dynamodb.",
        ),
    )
    store_writer_process_rate: int = field(
        default=3_000,
        metadata=setting(
            integer(0, 10**9),
            "Start the writer process above this bulk write rate (transactions/s); 0 disables it.",
        ),
    )
    store_stream_retention: int = field(
        default=24,
        metadata=setting(
            integer(1, 8_760),
            "Hours for which the embedded store keeps the changes of tables with a stream."
            " DynamoDB keeps them for 24.",
        ),
    )
    store_port: int = field(
        default=0,
        metadata=setting(
            integer(0, 65535),
            "Port on which tally serve offers the embedded store's tables to DynamoDB clients,"
            " read-only and with signed requests; 0 for none. tally up chooses a free port then.",
        ),
    )
    dynamodb_endpoint: str | None = field(
        default=None,
        metadata=setting(URL, "URL of a DynamoDB-compatible service. Default: AWS."),
    )
    dynamodb_region: str = field(
        default="us-east-1", metadata=setting(TEXT, "AWS region of the tables.")
    )
    dynamodb_table_prefix: str = field(
        default="",
        metadata=setting(
            TABLE_PREFIX,
            "Prefix of every table name, so that installations can share an AWS account.",
        ),
    )
    backup_key: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Signs backups and verifies them before a restore. Default: generated by the first"
            " backup, in backup.key of the data directory.",
        ),
    )
    backup_dir: Path | None = field(
        default=None,
        metadata=setting(
            PATH,
            "Directory of the backups that operators create in the console, outside the data"
            " directory. Default: next to it, with -backups at the end of its name.",
        ),
    )
    cursor_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Signs pagination cursors. Default: generated at first start, in the data directory;"
            " instances with separate data directories must share it.",
        ),
    )
