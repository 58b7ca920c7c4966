"""A log file is private, bounded, and counts what the status line shows."""

from pathlib import Path

from tally.kit.log_file import FILE_NAME, PREVIOUS_SUFFIX, LogFile


def test_lines_are_appended_to_a_private_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for text in ("one\n", "two\n"):
        with LogFile(data) as log:
            log.write(text.encode())
    assert (data / FILE_NAME).read_text() == "one\ntwo\n"
    assert (data / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert data.stat().st_mode & 0o777 == 0o700


def test_warnings_and_errors_are_counted(tmp_path: Path) -> None:
    with LogFile(tmp_path) as log:
        for level in ("info", "warning", "error", "debug"):
            log.write(f'{{"level":"{level}","message":"a warning"}}\n'.encode())
        assert log.problems == 2


def test_a_large_file_is_replaced_and_one_previous_file_is_kept(tmp_path: Path) -> None:
    with LogFile(tmp_path, max_bytes=100) as log:
        for number in range(50):
            log.write(b"line %03d\n" % number)
    previous = tmp_path / (FILE_NAME + PREVIOUS_SUFFIX)
    assert {path.name for path in tmp_path.iterdir()} == {log.path.name, previous.name}
    assert log.path.stat().st_size <= 100
    lines = (previous.read_text() + log.path.read_text()).split()
    assert lines[-1] == "049"
    assert lines[1::2] == [f"{number:03}" for number in range(50 - len(lines) // 2, 50)]
