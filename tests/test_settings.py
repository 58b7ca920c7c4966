"""Settings are read once, validated together and reported when invalid; secrets are masked."""

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
SECRET_LIST_ERROR = "must be comma-separated secrets of at least 32 characters each"


def test_without_variables_all_settings_have_defaults() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"PATH": "x", "TALLY_PORT": " "}) == Settings()


def test_each_type_of_setting_is_parsed() -> None:
    settings = read_settings(
        {
            "TALLY_HOST": "0.0.0.0",  # noqa: S104  (as in a container)
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
    assert settings == Settings(
        host="0.0.0.0",  # noqa: S104  (as in a container)
        port=9000,
        data_dir=Path("/var/lib/tally"),
        log_level="debug",
        log_format="json",
        access_log=True,
        trusted_proxies=("10.0.0.1",),
        shutdown_grace=30,
        store_engine="dynamodb",
        dynamodb_endpoint="http://127.0.0.1:8000",
        dynamodb_region="ap-southeast-2",
        dynamodb_table_prefix="staging-",
        cursor_secret=Secret(KEY),
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)
def test_a_displayed_default_is_a_valid_value(setting: Setting) -> None:
    """Copying a line of the page into the environment changes nothing."""
    displayed = format_value(setting.default)
    assert getattr(read_settings({setting.variable: displayed}), setting.name) == setting.default


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
        ("TALLY_TRUSTED_PROXIES", "nginx", "must be * or a comma-separated list of IP addresses"),
        ("TALLY_TRUSTED_PROXIES", "10.0.0.1/33", "must be * or"),
        ("TALLY_TRUSTED_PROXIES", "10.0.0.1, *", "must be * or"),
    ],
)
def test_an_invalid_value_is_reported_with_the_reason(
    variable: str, value: str, words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({variable: value})
    [problem] = caught.value.problems
    assert problem.startswith(f"{variable} {words}")


def test_a_proxy_may_be_named_by_an_address_in_its_network() -> None:
    settings = read_settings({"TALLY_TRUSTED_PROXIES": "172.18.0.1/16, fd00::7"})
    assert settings.trusted_proxies == ("172.18.0.0/16", "fd00::7")


def test_all_invalid_variables_are_reported_together() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"TALLY_PORT": "x", "TALLY_LOG_LEVEL": "y", "TALLY_HOST": "fine"})
    assert [problem.split()[0] for problem in caught.value.problems] == [
        "TALLY_PORT",
        "TALLY_LOG_LEVEL",
    ]


def test_a_short_secret_is_not_repeated_in_the_error() -> None:
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
def test_a_misspelt_variable_is_reported_with_the_closest_name(variable: str, meant: str) -> None:
    assert unknown_variables({variable: "1"}) == [
        f"{variable} is not a setting of Tally and has no effect; did you mean {meant}?"
    ]


@pytest.mark.parametrize(
    "variable", ["TALLY_XYZZY_QQQ", "TALLY_DEVICES_ADMIN_TOKEN", "TALLY_CONSOLE_PASSWORD"]
)
def test_an_unknown_variable_is_reported_without_a_guess(variable: str) -> None:
    """A setting that merely shares its prefix is no hint."""
    assert unknown_variables({variable: "1"}) == [
        f"{variable} is not a setting of Tally and has no effect"
    ]


def test_other_variables_are_ignored() -> None:
    """Known settings, variables of the tests, and variables of other programs."""
    assert (
        unknown_variables(
            {"TALLY_PORT": "1", "TALLY_TEST_DYNAMODB_URL": "x", "TALLYHO": "1", "HOME": "x"}
        )
        == []
    )


@given(st.text(min_size=1))
def test_a_secret_is_not_in_any_representation(value: str) -> None:
    secret = Secret(f"<{value}>")
    assert f"<{value}>" not in f"{secret} {secret!r} {[secret]} {Settings(cursor_secret=secret)}"
    assert secret.reveal() == f"<{value}>"


def test_secrets_are_equal_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


def test_settings_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_rows_contain_the_source_of_each_value() -> None:
    environ = {"TALLY_PORT": "9000", "TALLY_CURSOR_SECRET": KEY}
    rows = {
        row.variable: (row.value, row.source)
        for row in setting_rows(read_settings(environ), environ)
    }
    assert rows["TALLY_PORT"] == ("9000", "environment")
    assert rows["TALLY_HOST"] == ("127.0.0.1", "default")
    assert rows["TALLY_CURSOR_SECRET"] == (MASK, "environment")
    assert rows["TALLY_ACCESS_LOG"] == ("no", "default")
    assert len(rows) == len(SETTINGS)


def test_every_setting_has_help() -> None:
    assert [setting.variable for setting in SETTINGS if not setting.help.endswith(".")] == []


def test_the_settings_page_is_up_to_date() -> None:
    """Regenerate it with: tally settings --markdown > docs/settings.md."""
    assert (ROOT / "docs" / "settings.md").read_text() == settings_markdown()


def test_secret_lists_and_server_urls_are_parsed_and_masked() -> None:
    other, address = KEY.upper(), "postgresql://ana:hunter2@db/scores"
    environ = {
        "TALLY_SCOREBOARD_ACTION_KEYS": f"{KEY}, {other}",
        "TALLY_SCOREBOARD_DATABASE_URL": address,
    }
    settings = read_settings(environ)
    assert settings.scoreboard_action_keys == (Secret(KEY), Secret(other))
    assert settings.scoreboard_database_url == Secret(address)
    rows = {row.variable: row.value for row in setting_rows(settings, environ)}
    assert (rows["TALLY_SCOREBOARD_ACTION_KEYS"], rows["TALLY_SCOREBOARD_DATABASE_URL"]) == (
        f"{MASK},{MASK}",
        MASK,
    )


def test_an_invalid_secret_list_or_server_url_is_reported_without_its_value() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(
            {
                "TALLY_SCOREBOARD_ACTION_KEYS": f"{KEY},short",
                "TALLY_SCOREBOARD_REDIS_URL": "hunter2://x",
            }
        )
    assert caught.value.problems == (
        "TALLY_SCOREBOARD_REDIS_URL must be a URL that starts with redis://",
        f"TALLY_SCOREBOARD_ACTION_KEYS {SECRET_LIST_ERROR}",
    )


def test_database_url_and_redis_url_are_fallbacks() -> None:
    usual = {"DATABASE_URL": "postgresql://db/usual", "REDIS_URL": "redis://cache/0"}
    settings = read_settings(usual)
    assert settings.scoreboard_database_url == Secret("postgresql://db/usual")
    assert settings.scoreboard_redis_url == Secret("redis://cache/0")
    ours = read_settings(usual | {"TALLY_SCOREBOARD_DATABASE_URL": "postgresql://db/ours"})
    assert ours.scoreboard_database_url == Secret("postgresql://db/ours")
    sources = {row.variable: row.source for row in setting_rows(settings, usual)}
    assert sources["TALLY_SCOREBOARD_REDIS_URL"] == "environment"
    with pytest.raises(
        SettingsError, match=r"^DATABASE_URL must be a URL that starts with postgresql://$"
    ):
        read_settings({"DATABASE_URL": "mysql://db/other"})


def test_a_secret_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    file.write_text(f"{KEY}\n")
    environ = {"TALLY_CURSOR_SECRET_FILE": str(file), "DATABASE_URL_FILE": str(tmp_path / "url")}
    (tmp_path / "url").write_text("postgresql://tally:secret@db/tally")
    settings = read_settings(environ)
    assert settings.cursor_secret == Secret(KEY)
    assert settings.scoreboard_database_url == Secret("postgresql://tally:secret@db/tally")
    rows = {row.variable: row for row in setting_rows(settings, environ)}
    assert (rows["TALLY_CURSOR_SECRET"].value, rows["TALLY_CURSOR_SECRET"].source) == (
        MASK,
        "environment",
    )
    assert unknown_variables(environ) == []
    assert len(unknown_variables({"TALLY_PORT_FILE": "x"})) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "names {file}, which cannot be read: No such file or directory"),
        (b"", "names {file}, which is empty"),
        (b"\xff" * 40, "names {file}, which is not UTF-8 text"),
        (b"x" * 65_537, "names {file}, which has more than 65536 bytes"),
        (b"hidden", "must have at least 32 characters"),
    ],
)
def test_a_secret_file_that_cannot_be_used_is_reported_without_its_content(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        read_settings({"TALLY_CURSOR_SECRET_FILE": str(file), "TALLY_PORT": "x"})
    assert len(caught.value.problems) == 2
    [problem] = [text for text in caught.value.problems if "CURSOR" in text]
    assert problem == f"TALLY_CURSOR_SECRET_FILE {words.format(file=file)}"
    assert "hidden" not in problem


def test_a_secret_with_two_sources_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(KEY)
    with pytest.raises(SettingsError, match="are both set; set only one"):
        read_settings(
            {"TALLY_CURSOR_SECRET": KEY, "TALLY_CURSOR_SECRET_FILE": str(tmp_path / "secret")}
        )
