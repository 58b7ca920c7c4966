"""Settings are read once, checked together, and named when they are wrong; secrets never show."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.settings import (
    MASK,
    SETTINGS,
    Secret,
    Setting,
    Settings,
    SettingsError,
    format_value,
    read_settings,
    setting_rows,
    settings_markdown,
    unknown_variables,
)

ROOT = Path(__file__).parent.parent
KEY = "a-secret-that-is-long-enough-to-be-one"


def test_without_any_variable_everything_has_its_default() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"PATH": "x", "TALLY_PORT": " "}) == Settings()


def test_each_kind_of_setting_can_be_given() -> None:
    given = read_settings(
        {
            "TALLY_HOST": "0.0.0.0",  # noqa: S104  (as one would in a container)
            "TALLY_PORT": "9000",
            "TALLY_DATA_DIR": "/var/lib/tally",
            "TALLY_LOG_LEVEL": "debug",
            "TALLY_LOG_FORMAT": "json",
            "TALLY_ACCESS_LOG": "Yes",
            "TALLY_TRUSTED_PROXIES": "10.0.0.1",
            "TALLY_SHUTDOWN_GRACE": "30",
            "TALLY_STORE_ENGINE": "dynamodb",
            "TALLY_DYNAMODB_ENDPOINT": "http://127.0.0.1:8000/",
            "TALLY_DYNAMODB_REGION": "ap-southeast-2",
            "TALLY_DYNAMODB_TABLE_PREFIX": "staging-",
            "TALLY_CURSOR_SECRET": KEY,
        }
    )
    assert given == Settings(
        host="0.0.0.0",  # noqa: S104  (as one would in a container)
        port=9000,
        data_dir=Path("/var/lib/tally"),
        log_level="debug",
        log_format="json",
        access_log=True,
        trusted_proxies="10.0.0.1",
        shutdown_grace=30,
        store_engine="dynamodb",
        dynamodb_endpoint="http://127.0.0.1:8000",
        dynamodb_region="ap-southeast-2",
        dynamodb_table_prefix="staging-",
        cursor_secret=Secret(KEY),
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)
def test_a_default_can_be_given_as_it_is_shown(setting: Setting) -> None:
    """So that a line of the page can be copied into the environment, and changes nothing."""
    as_shown = format_value(setting.default)
    assert getattr(read_settings({setting.variable: as_shown}), setting.name) == setting.default


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TALLY_PORT", "http", "must be an integer from 0 to 65535, not 'http'"),
        ("TALLY_PORT", "65536", "must be an integer from 0 to 65535"),
        ("TALLY_PORT", "-1", "must be an integer"),
        ("TALLY_PORT", "٣", "must be an integer"),
        ("TALLY_LOG_LEVEL", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("TALLY_STORE_ENGINE", "mongo", "must be one of sqlite, dynamodb"),
        ("TALLY_ACCESS_LOG", "perhaps", "must be yes or no"),
        ("TALLY_DYNAMODB_ENDPOINT", "127.0.0.1:8000", "must be a URL"),
        ("TALLY_DYNAMODB_TABLE_PREFIX", "a b", "must be at most 64 letters"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_wrong(variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({variable: value})
    [problem] = caught.value.problems
    assert problem.startswith(f"{variable} {words}")


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"TALLY_PORT": "x", "TALLY_LOG_LEVEL": "y", "TALLY_HOST": "fine"})
    assert [problem.split()[0] for problem in caught.value.problems] == [
        "TALLY_PORT",
        "TALLY_LOG_LEVEL",
    ]


def test_a_secret_that_is_too_short_is_not_repeated() -> None:
    with pytest.raises(
        SettingsError, match="TALLY_CURSOR_SECRET must have at least 32 characters"
    ) as caught:
        read_settings({"TALLY_CURSOR_SECRET": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TALLY_PROT", "TALLY_PORT"),
        ("TALLY_DATADIR", "TALLY_DATA_DIR"),
        ("TALLY_LOGLEVEL", "TALLY_LOG_LEVEL"),
    ],
)
def test_a_misspelt_variable_is_reported_with_what_was_meant(variable: str, meant: str) -> None:
    assert unknown_variables({variable: "1"}) == [
        f"{variable} is not a setting of Tally; did you mean {meant}?"
    ]


def test_a_variable_like_none_of_ours_is_reported_too() -> None:
    assert unknown_variables({"TALLY_XYZZY_QQQ": "1"}) == [
        "TALLY_XYZZY_QQQ is not a setting of Tally"
    ]


def test_variables_of_others_are_theirs() -> None:
    """Ours that are set, those of the tests, and those of other programs."""
    assert (
        unknown_variables(
            {"TALLY_PORT": "1", "TALLY_TEST_DYNAMODB_URL": "x", "TALLYHO": "1", "HOME": "x"}
        )
        == []
    )


@given(st.text(min_size=1))
def test_a_secret_shows_itself_nowhere(value: str) -> None:
    secret = Secret(f"<{value}>")
    assert f"<{value}>" not in f"{secret} {secret!r} {[secret]} {Settings(cursor_secret=secret)}"
    assert secret.reveal() == f"<{value}>"


def test_secrets_are_equal_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_the_rows_say_where_each_value_comes_from() -> None:
    environ = {"TALLY_PORT": "9000", "TALLY_CURSOR_SECRET": KEY}
    told = {
        row.variable: (row.value, row.source)
        for row in setting_rows(read_settings(environ), environ)
    }
    assert told["TALLY_PORT"] == ("9000", "environment")
    assert told["TALLY_HOST"] == ("127.0.0.1", "default")
    assert told["TALLY_CURSOR_SECRET"] == (MASK, "environment")
    assert told["TALLY_ACCESS_LOG"] == ("no", "default")
    assert len(told) == len(SETTINGS)


def test_every_setting_has_help() -> None:
    assert [setting.variable for setting in SETTINGS if not setting.help.endswith(".")] == []


def test_the_page_of_settings_is_up_to_date() -> None:
    """Made by: tally settings --markdown > docs/settings.md."""
    assert (ROOT / "docs" / "settings.md").read_text() == settings_markdown()


def test_several_secrets_and_addresses_with_passwords_are_taken_and_masked() -> None:
    other, address = KEY.upper(), "postgresql://ana:hunter2@db/scores"
    environ = {
        "TALLY_SCOREBOARD_ACTION_KEYS": f"{KEY}, {other}",
        "TALLY_SCOREBOARD_DATABASE_URL": address,
    }
    given = read_settings(environ)
    assert given.scoreboard_action_keys == (Secret(KEY), Secret(other))
    assert given.scoreboard_database_url == Secret(address)
    told = {row.variable: row.value for row in setting_rows(given, environ)}
    assert (told["TALLY_SCOREBOARD_ACTION_KEYS"], told["TALLY_SCOREBOARD_DATABASE_URL"]) == (
        f"{MASK},{MASK}",
        MASK,
    )


def test_a_wrong_list_of_secrets_or_address_is_named_and_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        read_settings(
            {
                "TALLY_SCOREBOARD_ACTION_KEYS": f"{KEY},short",
                "TALLY_SCOREBOARD_REDIS_URL": "hunter2://x",
            }
        )
    assert refused.value.problems == (
        "TALLY_SCOREBOARD_REDIS_URL must be a URL that starts with redis://",
        "TALLY_SCOREBOARD_ACTION_KEYS must be comma-separated secrets of at least 32 characters each",
    )


def test_the_usual_names_of_a_database_and_a_redis_are_read_where_ours_are_not_set() -> None:
    usual = {"DATABASE_URL": "postgresql://db/usual", "REDIS_URL": "redis://cache/0"}
    given = read_settings(usual)
    assert given.scoreboard_database_url == Secret("postgresql://db/usual")
    assert given.scoreboard_redis_url == Secret("redis://cache/0")
    ours = read_settings(usual | {"TALLY_SCOREBOARD_DATABASE_URL": "postgresql://db/ours"})
    assert ours.scoreboard_database_url == Secret("postgresql://db/ours")
    sources = {row.variable: row.source for row in setting_rows(given, usual)}
    assert sources["TALLY_SCOREBOARD_REDIS_URL"] == "environment"
    with pytest.raises(
        SettingsError, match=r"^DATABASE_URL must be a URL that starts with postgresql://$"
    ):
        read_settings({"DATABASE_URL": "mysql://db/other"})
