"""Every setting of Tally, in one frozen table: `Settings` below.

A setting is an environment variable: the field `data_dir` is `TALLY_DATA_DIR`. All are read once, at the start, by
`read_settings`, and checked together: whoever has three of them wrong is told of all three. `tally settings` prints
the table with the values in force, and docs/settings.md is made from it. To add a setting, add a field here and run
`tally settings --markdown > docs/settings.md`.
"""

import difflib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

PREFIX: Final = "TALLY_"
# Read by the tests and the simulators alone, so not part of the table and not a typing mistake either.
FOREIGN_PREFIXES: Final = ("TALLY_TEST_", "TALLY_SOAK_", "TALLY_BENCH_", "TALLY_SIM_")
MASK: Final = "***"


class SettingsError(Exception):
    """The environment does not hold; `problems` has one sentence for each variable that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class Secret:
    """A value that never shows itself: not in a log, a traceback or a repr. `reveal()` where it is used."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a variable may hold: how the documents call it, and how its text becomes a value or a ValueError."""

    label: str
    parse: Callable[[str], object]


def _text(raw: str) -> str:
    return raw


def _path(raw: str) -> Path:
    return Path(raw).expanduser()


def _flag(raw: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if raw.lower() not in known:
        raise ValueError("must be yes or no")
    return known[raw.lower()]


def _url(raw: str) -> str:
    parts = urlsplit(raw)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:8000")
    return raw.rstrip("/")


def _table_prefix(raw: str) -> str:
    if len(raw) > 64 or not all(letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in raw):
        raise ValueError("must be at most 64 letters, digits, dots, dashes and underscores")
    return raw


def _secret(raw: str) -> Secret:
    if len(raw) < 32:
        raise ValueError("must have at least 32 characters")
    return Secret(raw)


def _given_secret(raw: str) -> Secret:
    return Secret(raw)


def _whole(least: int, most: int) -> Kind:
    def parse(raw: str) -> int:
        if not (raw.isascii() and raw.isdigit() and least <= int(raw) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(raw)

    return Kind(f"whole number, {least} to {most}", parse)


def _choice(*words: str) -> Kind:
    def parse(raw: str) -> str:
        if raw not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw

    return Kind(" or ".join(words), parse)


TEXT: Final = Kind("text", _text)
PATH: Final = Kind("path", _path)
FLAG: Final = Kind("yes or no", _flag)
URL: Final = Kind("URL", _url)
TABLE_PREFIX: Final = Kind("letters, digits, . _ -", _table_prefix)
SECRET: Final = Kind("secret, 32 characters or more", _secret)
GIVEN_SECRET: Final = Kind("secret, as another system gave it", _given_secret)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table, apart from its value."""

    name: str
    kind: Kind
    default: object
    help: str

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def is_secret(self) -> bool:
        return self.kind in {SECRET, GIVEN_SECRET}


def _is(kind: Kind, what_for: str) -> dict[str, object]:
    return {"kind": kind, "help": what_for}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. The defaults run everything on this machine, with nothing else installed."""

    host: str = field(default="127.0.0.1", metadata=_is(TEXT, "Address to listen on; 0.0.0.0 for every network."))
    port: int = field(default=8080, metadata=_is(_whole(0, 65535), "Port to listen on; 0 takes a free one."))
    data_dir: Path = field(
        default=Path("data"), metadata=_is(PATH, "Directory of the embedded store and of what is made at first start.")
    )
    log_level: str = field(
        default="info", metadata=_is(_choice("debug", "info", "warning", "error"), "The least level that is logged.")
    )
    log_format: str = field(
        default="auto",
        metadata=_is(_choice("auto", "json", "text"), "Of the log; auto is text on a terminal, JSON lines elsewhere."),
    )
    access_log: bool = field(
        default=False, metadata=_is(FLAG, "Whether to log every request; those that end in a 5xx always are.")
    )
    trusted_proxies: str = field(
        default="127.0.0.1",
        metadata=_is(TEXT, "Proxies, separated by commas, whose X-Forwarded-For and -Proto headers are believed."),
    )
    shutdown_grace: int = field(
        default=10,
        metadata=_is(_whole(0, 3600), "Seconds that requests and jobs under way have to finish when Tally is stopped."),
    )
    store_engine: str = field(
        default="sqlite",
        metadata=_is(_choice("sqlite", "dynamodb"), "Where tables live: in the data directory, or in DynamoDB."),
    )
    dynamodb_endpoint: str | None = field(
        default=None, metadata=_is(URL, "Address of a service that speaks DynamoDB; without it, AWS's own.")
    )
    dynamodb_region: str = field(default="us-east-1", metadata=_is(TEXT, "AWS region of the tables."))
    dynamodb_table_prefix: str = field(
        default="",
        metadata=_is(TABLE_PREFIX, "Put before every table's name, so that several can share an account."),
    )
    devices_admin_token: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET, "Bearer token of the devices' control plane. Without it, one is made at first start, in the data directory."
        ),
    )
    devices_key_pepper: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET,
            "Hashed together with every API key of the boards, so that the table alone gives nothing away. Without it, one is"
            " made at first start, in the data directory; to change it makes all keys void.",
        ),
    )
    devices_retention_days: int = field(
        default=90, metadata=_is(_whole(1, 3650), "Days that a reading is kept, counted from when it was measured.")
    )
    devices_rate_limit: int = field(
        default=2_000, metadata=_is(_whole(1, 1_000_000), "Requests a second that one API key may make; twice as many at once.")
    )
    devices_cors_origins: str = field(
        default="*", metadata=_is(TEXT, "Origins, separated by commas, whose pages may call the devices' control plane.")
    )
    collect_public_url: str | None = field(
        default=None,
        metadata=_is(URL, "Where browsers reach this server, for sign-in and links; without it, what their requests say."),
    )
    collect_plain_http: bool = field(
        default=False,
        metadata=_is(FLAG, "Whether the session cookie also goes over plain HTTP: for a demo on this machine, nowhere else."),
    )
    collect_secret: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET,
            "Encrypts what collect must keep secret (Strava's tokens) and hashes addresses. Without it, one is made at first"
            " start, in the data directory; to change it ends all links to Strava.",
        ),
    )
    collect_admin_token: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET, "Bearer token of collect's audit look-ups. Without it, one is made at first start, in the data directory."
        ),
    )
    collect_oidc_issuer: str | None = field(
        default=None, metadata=_is(URL, "The OIDC issuer that signs people in: a Cognito user pool, for one.")
    )
    collect_oidc_client_id: str = field(default="", metadata=_is(TEXT, "Our client id at the issuer."))
    collect_oidc_client_secret: Secret | None = field(
        default=None, metadata=_is(GIVEN_SECRET, "Our client secret at the issuer, if the client has one.")
    )
    collect_oidc_delete_url: str | None = field(
        default=None,
        metadata=_is(URL, "Cognito's API, which deletes the identity with an account; without it, the identity stays."),
    )
    collect_strava_url: str = field(default="https://www.strava.com", metadata=_is(URL, "Where Strava is."))
    collect_strava_client_id: str = field(default="", metadata=_is(TEXT, "The id of our app at Strava."))
    collect_strava_client_secret: Secret | None = field(
        default=None, metadata=_is(GIVEN_SECRET, "The secret of our app at Strava.")
    )
    collect_strava_verify_token: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET,
            "What Strava has to say when it checks the webhook. Without it, one is made at first start, in the data directory.",
        ),
    )
    collect_strava_subscription_id: int = field(
        default=0,
        metadata=_is(_whole(0, 10**15), "Our webhook subscription at Strava: events of others are refused; 0 takes any."),
    )
    cursor_secret: Secret | None = field(
        default=None,
        metadata=_is(
            SECRET,
            "Signs the cursors of paged lists. Without it, one is made at first start, in the data directory; instances"
            " with data directories of their own must be given the same one.",
        ),
    )


TABLE: Final = tuple(
    Setting(entry.name, entry.metadata["kind"], entry.default, entry.metadata["help"]) for entry in fields(Settings)
)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings that `environ` asks for, or a SettingsError that names every variable that is wrong.

    An empty variable counts as one that is not set: that is how compose files pass on what they do not have.
    """
    values: dict[str, Any] = {}
    problems = []
    for setting in TABLE:
        raw = environ.get(setting.variable, "").strip()
        if not raw:
            continue
        try:
            values[setting.name] = setting.kind.parse(raw)
        except ValueError as error:
            given = "" if setting.is_secret else f", not {raw!r}"
            problems.append(f"{setting.variable} {error}{given}")
    if problems:
        raise SettingsError(problems)
    return Settings(**values)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One sentence for each `TALLY_` variable that is no setting, with the setting that was probably meant."""
    known = [setting.variable for setting in TABLE]
    sentences = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith(FOREIGN_PREFIXES) or variable in known:
            continue
        nearest = difflib.get_close_matches(variable, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        sentences.append(f"{variable} is not a setting of Tally{hint}")
    return sentences


@dataclass(frozen=True, slots=True)
class Row:
    """A setting as people see it: secrets masked, everything as text."""

    variable: str
    type: str
    value: str
    source: str
    help: str


def rows(settings: Settings, environ: Mapping[str, str]) -> list[Row]:
    """The table with the values in force, and whether each comes from the environment or is the default."""
    return [
        Row(
            setting.variable,
            setting.kind.label,
            shown(getattr(settings, setting.name)),
            "environment" if environ.get(setting.variable, "").strip() else "default",
            setting.help,
        )
        for setting in TABLE
    ]


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Secret):
        return MASK
    return "" if value is None else str(value)


def markdown() -> str:
    """docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every setting is an environment variable. `tally settings` prints this table with the values in force. A",
        "value that does not hold stops the start with a sentence that names its variable; a variable that starts with",
        "`TALLY_` and is not in the table is reported with the name that was probably meant.",
        "",
        "This page is made by `tally settings --markdown`.",
        "",
        "| variable | holds | default | what for |",
        "|---|---|---|---|",
    ]
    for setting in TABLE:
        default = f"`{shown(setting.default)}`" if shown(setting.default) else ""
        lines.append(f"| `{setting.variable}` | {setting.kind.label} | {default} | {setting.help} |")
    return "\n".join(lines) + "\n"
