"""Settings of the instance itself: where it listens, what it logs, and where tables live."""

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

BACKENDS: Final = ("collect", "cricket", "devices", "scoreboard")


@dataclass(frozen=True, kw_only=True)
class InstanceSettings:
    """What every instance has, whichever backends it serves."""

    host: str = field(
        default="127.0.0.1",
        metadata=setting(TEXT, "Address to listen on; 0.0.0.0 for every network."),
    )
    port: int = field(
        default=8080, metadata=setting(integer(0, 65535), "Port to listen on; 0 takes a free one.")
    )
    backends: tuple[str, ...] = field(
        default=BACKENDS,
        metadata=setting(
            subset(*BACKENDS), "What to run, separated by commas; nothing else is opened."
        ),
    )
    data_dir: Path = field(
        default=Path("data"),
        metadata=setting(
            PATH, "Directory of the embedded store and of what is made at first start."
        ),
    )
    log_level: str = field(
        default="info",
        metadata=setting(
            choice("debug", "info", "warning", "error"), "The least level that is logged."
        ),
    )
    log_format: str = field(
        default="auto",
        metadata=setting(
            choice("auto", "json", "text"),
            "Of the log; auto is text on a terminal, JSON lines elsewhere.",
        ),
    )
    access_log: bool = field(
        default=False,
        metadata=setting(FLAG, "Whether to log every request; those that end in a 5xx always are."),
    )
    trusted_proxies: str = field(
        default="127.0.0.1",
        metadata=setting(
            TEXT,
            "Proxies, separated by commas, whose X-Forwarded-For and -Proto headers are believed.",
        ),
    )
    shutdown_grace: int = field(
        default=10,
        metadata=setting(
            integer(0, 3600),
            "Seconds that requests and jobs under way have to finish when Tally is stopped.",
        ),
    )
    console_password: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Password of the console. Without it, one is made at first start, in the data directory; only the console of tally up"
            " on this machine alone is open.",
        ),
    )
    store_engine: str = field(
        default="sqlite",
        metadata=setting(
            choice("sqlite", "dynamodb"),
            "Where tables live: in the data directory, or in DynamoDB.",
        ),
    )
    store_writer_process_threshold: int = field(
        default=3_000,
        metadata=setting(
            integer(0, 10**9),
            "From so many transactions in a second on, of those that come many at a time, a process of its own writes them for"
            " the embedded store, where there is a processor to spare; 0: never.",
        ),
    )
    dynamodb_endpoint: str | None = field(
        default=None,
        metadata=setting(URL, "Address of a service that speaks DynamoDB; without it, AWS's own."),
    )
    dynamodb_region: str = field(
        default="us-east-1", metadata=setting(TEXT, "AWS region of the tables.")
    )
    dynamodb_table_prefix: str = field(
        default="",
        metadata=setting(
            TABLE_PREFIX, "Put before every table's name, so that several can share an account."
        ),
    )
    cursor_secret: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Signs the cursors of paged lists. Without it, one is made at first start, in the data directory; instances"
            " with data directories of their own must be given the same one.",
        ),
    )
