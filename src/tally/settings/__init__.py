"""Every setting of Tally, in one frozen table: `Settings`, put together of one class for each backend.

A setting is an environment variable: the field `data_dir` is `TALLY_DATA_DIR`. All are read once,
at the start, by `read_settings`, and checked together: whoever has three of them wrong is told of
all three. `tally settings` prints the table with the values in force, and docs/settings.md is made
from it. To add a setting, add a field to its backend's class and run `tally settings --markdown >
docs/settings.md`.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from tally.settings.collect import CollectSettings
from tally.settings.cricket import CricketSettings
from tally.settings.devices import DevicesSettings
from tally.settings.instance import BACKENDS, InstanceSettings
from tally.settings.scoreboard import ScoreboardSettings
from tally.settings.types import MASK, Secret, SettingType

__all__ = [
    "BACKENDS",
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
# Read by the tests and the simulators alone, so not part of the table and not a typing mistake
# either.
FOREIGN_PREFIXES: Final = ("TALLY_TEST_", "TALLY_SOAK_", "TALLY_BENCH_", "TALLY_SIM_")


class SettingsError(Exception):
    """The environment does not hold; `problems` has one sentence for each variable that is wrong."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table, apart from its value."""

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

    def given(self, environ: Mapping[str, str]) -> tuple[str, str]:
        """The variable that sets it in `environ`, and its text, which is empty if none does."""
        raw = environ.get(self.variable, "").strip()
        if raw or self.alias is None:
            return self.variable, raw
        return self.alias, environ.get(self.alias, "").strip()


@dataclass(frozen=True, kw_only=True)
class Settings(
    ScoreboardSettings, CricketSettings, CollectSettings, DevicesSettings, InstanceSettings
):
    """The values in force.

    The defaults run everything on this machine, with nothing else installed.
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
    """The settings that `environ` asks for, or a SettingsError that names every variable that is wrong.

    An empty variable counts as one that is not set: that is how compose files pass on what they do
    not have.
    """
    values: dict[str, Any] = {}
    problems = []
    for setting in SETTINGS:
        variable, raw = setting.given(environ)
        if not raw:
            continue
        try:
            values[setting.name] = setting.kind.parse(raw)
        except ValueError as error:
            given = "" if setting.is_secret else f", not {raw!r}"
            problems.append(f"{variable} {error}{given}")
    if problems:
        raise SettingsError(problems)
    return Settings(**values)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One sentence for each `TALLY_` variable that is no setting, with the setting that was probably meant."""
    known = [setting.variable for setting in SETTINGS]
    sentences = []
    for variable in sorted(environ):
        if (
            not variable.startswith(PREFIX)
            or variable.startswith(FOREIGN_PREFIXES)
            or variable in known
        ):
            continue
        nearest = difflib.get_close_matches(variable, known, n=1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        sentences.append(f"{variable} is not a setting of Tally{hint}")
    return sentences


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting as people see it: secrets masked, everything as text."""

    variable: str
    type: str
    value: str
    source: str
    help: str


def setting_rows(settings: Settings, environ: Mapping[str, str]) -> list[SettingRow]:
    """The table with the values in force, and whether each comes from the environment or is the default."""
    return [
        SettingRow(
            setting.variable,
            setting.kind.label,
            format_value(getattr(settings, setting.name)),
            "environment" if setting.given(environ)[1] else "default",
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
        return ",".join(format_value(each) for each in value)
    return "" if value is None else str(value)


def settings_markdown() -> str:
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
    for setting in SETTINGS:
        default = f"`{format_value(setting.default)}`" if format_value(setting.default) else ""
        lines.append(
            f"| `{setting.variable}` | {setting.kind.label} | {default} | {setting.help} |"
        )
    return "\n".join(lines) + "\n"
