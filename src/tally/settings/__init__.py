"""All settings of Tally: `Settings` combines one frozen class per backend.

Every setting is an environment variable: the field `data_dir` is `TALLY_DATA_DIR`. `read_settings`
reads and validates all of them once at start-up, and reports every invalid variable. `tally
settings` prints the values in effect. To add a setting, add a field to the class of its backend and
run `tally settings --markdown > docs/settings.md`.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Final

from tally.settings.collect import CollectSettings
from tally.settings.cricket import CricketSettings
from tally.settings.devices import DevicesSettings
from tally.settings.instance import BACKENDS, LOOPBACK_HOSTS, InstanceSettings
from tally.settings.scoreboard import ScoreboardSettings
from tally.settings.secret_files import SUFFIX, read_secret_file
from tally.settings.types import MASK, Secret, SettingType

__all__ = [
    "BACKENDS",
    "LOOPBACK_HOSTS",
    "MASK",
    "SETTINGS",
    "Row",
    "Secret",
    "Setting",
    "Settings",
    "SettingsError",
    "markdown",
    "read_settings",
    "rows",
    "shown",
    "unknown_variables",
]

PREFIX: Final = "TALLY_"
# Used by tests and simulators only: neither settings nor typing mistakes.
IGNORED_PREFIXES: Final = ("TALLY_TEST_", "TALLY_SOAK_", "TALLY_BENCH_", "TALLY_SIM_")
# From 0 to 1: a misspelt name is above it, and another name with the same prefix below.
MIN_SIMILARITY: Final = 0.8


class SettingsError(Exception):
    """The environment is invalid; `problems` has one sentence per invalid variable."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Setting:
    """The definition of one setting."""

    name: str
    kind: SettingType
    default: object
    help: str
    alias: str | None = None

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def is_secret(self) -> bool:
        return self.kind.is_secret

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that set it, in the order of precedence."""
        names = (self.variable,) if self.alias is None else (self.variable, self.alias)
        if not self.is_secret:
            return names
        return tuple(chain.from_iterable((name, name + SUFFIX) for name in names))

    def read(self, environ: Mapping[str, str]) -> tuple[str, str]:
        """Return the variable that sets it in `environ` and its text, empty if not set.

        Raises SettingsError if a secret's file cannot be read.
        """
        for variable in self.variables:
            if not environ.get(variable, "").strip():
                continue
            try:
                return variable, self._text(variable, environ)
            except ValueError as error:
                raise SettingsError([f"{variable} {error}"]) from None
        return self.variable, ""

    def _text(self, variable: str, environ: Mapping[str, str]) -> str:
        if self.is_secret and variable.endswith(SUFFIX):
            return read_secret_file(variable.removesuffix(SUFFIX), environ)
        if self.is_secret and environ.get(variable + SUFFIX, "").strip():
            raise ValueError(f"and {variable}{SUFFIX} are both set; set only one")
        return environ[variable].strip()


@dataclass(frozen=True, kw_only=True)
class Settings(
    ScoreboardSettings, CricketSettings, CollectSettings, DevicesSettings, InstanceSettings
):
    """The settings in effect.

    The defaults run everything on this machine without any other software.
    """


SETTINGS: Final = tuple(
    Setting(
        entry.name,
        entry.metadata["kind"],
        entry.default,
        entry.metadata["help"],
        entry.metadata["alias"],
    )
    for entry in fields(Settings)
)


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Return the settings from `environ`, or raise SettingsError with all invalid variables.

    An empty variable counts as not set, because compose files pass unset variables as empty.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    for setting in SETTINGS:
        try:
            variable, raw = setting.read(environ)
        except SettingsError as error:
            problems.extend(error.problems)
            continue
        if not raw:
            continue
        try:
            values[setting.name] = setting.kind.parse(raw)
        except ValueError as error:
            actual = "" if setting.is_secret else f", not {raw!r}"
            problems.append(f"{variable} {error}{actual}")
    if problems:
        raise SettingsError(problems)
    return Settings(**values)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return one sentence per unknown `TALLY_` variable, with the closest setting."""
    known = list(chain.from_iterable(setting.variables for setting in SETTINGS))
    sentences = []
    for variable in sorted(environ):
        if (
            not variable.startswith(PREFIX)
            or variable.startswith(IGNORED_PREFIXES)
            or variable in known
        ):
            continue
        nearest = difflib.get_close_matches(variable, known, n=1, cutoff=MIN_SIMILARITY)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        sentences.append(f"{variable} is not a setting of Tally and has no effect{hint}")
    return sentences


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting for display: values as text, secrets masked."""

    variable: str
    type: str
    value: str
    source: str
    help: str


def setting_rows(settings: Settings, environ: Mapping[str, str]) -> list[SettingRow]:
    """Return all settings with their values and sources (environment or default)."""
    return [
        SettingRow(
            setting.variable,
            setting.kind.label,
            format_value(getattr(settings, setting.name)),
            "environment" if setting.read(environ)[1] else "default",
            setting.help,
        )
        for setting in SETTINGS
    ]


def format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, tuple):
        return ",".join(format_value(element) for element in value)
    return "" if value is None else str(value)


def settings_markdown() -> str:
    """Return the content of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every setting is an environment variable.",
        "`tally settings` prints the values in effect.",
        "An invalid value prevents the start; the error message names the variable.",
        "For an unknown variable that starts with `TALLY_`, Tally prints the closest known name.",
        "A secret can come from a file: add `_FILE` to the name of its variable.",
        "",
        "This page is generated by `tally settings --markdown`.",
        "",
        "| variable | type | default | description |",
        "|---|---|---|---|",
    ]
    for setting in SETTINGS:
        default = f"`{format_value(setting.default)}`" if format_value(setting.default) else ""
        lines.append(
            f"| `{setting.variable}` | {setting.kind.label} | {default} | {setting.help} |"
        )
    return "\n".join(lines) + "\n"
