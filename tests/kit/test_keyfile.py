"""A key file is created once, readable by its owner only, and does not change."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tally.kit import keyfile
from tally.settings import SettingsError


def test_the_key_is_created_once(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "cursor.key"
    first = keyfile.read_or_create(path)
    assert keyfile.read_or_create(path) == first
    assert len(first.reveal()) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["cursor.key"]


def test_two_directories_have_two_keys(tmp_path: Path) -> None:
    assert keyfile.read_or_create(tmp_path / "a.key") != keyfile.read_or_create(tmp_path / "b.key")


def test_concurrent_starts_get_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "cursor.key"
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: keyfile.read_or_create(path).reveal(), range(64)))
    assert len(set(keys)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["cursor.key"]


def test_a_file_without_a_key_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "cursor.key"
    path.write_text("short\n")
    with pytest.raises(SettingsError, match=r"TALLY_DATA_DIR: .*cursor.key does not contain a key"):
        keyfile.read_or_create(path)


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    blocking_file = tmp_path / "data"
    blocking_file.write_text("a file")
    with pytest.raises(SettingsError, match=r"TALLY_DATA_DIR: cannot create or read"):
        keyfile.read_or_create(blocking_file / "cursor.key")
