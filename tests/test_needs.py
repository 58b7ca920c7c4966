"""A missing program skips a test on a developer's machine and fails it in CI."""

import shutil

import pytest

from tests.needs import need_program


def test_a_missing_program_skips_the_test_and_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"no-such-program.*apt-get install some-package"
    ):
        need_program("no-such-program", "some-package")


def test_a_missing_program_fails_the_test_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(
        pytest.fail.Exception, match=r"no-such-program.*apt-get install some-package"
    ):
        need_program("no-such-program", "some-package")


def test_an_installed_program_is_found() -> None:
    assert str(need_program("sh", "dash")) == shutil.which("sh")
