"""Settings of the instance: network, logs and store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tally.settings.types import (
    FLAG,
    PATH,
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
    trusted_proxies: str = field(
        default="127.0.0.1",
        metadata=setting(
            TEXT,
            "Comma-separated proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.",
        ),
    )
    shutdown_grace: int = field(
        default=10,
        metadata=setting(
            integer(0, 3600),
            "Seconds that running requests and jobs get to finish at shutdown.",
        ),
    )
    console_password: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Password of the console. Default: generated at first start, in the data directory;"
            " tally up on a loopback address needs none.",
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
    cursor_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Signs pagination cursors. Default: generated at first start, in the data directory;"
            " instances with separate data directories must share it.",
        ),
    )
