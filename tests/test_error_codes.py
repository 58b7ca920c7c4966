"""Every error code in the source is documented once, and no documented code is stale."""

import ast
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

import tally
from tally import errors
from tally.error_codes import ERROR_CODES
from tally.kit.http import CODES, STATUS, UNEXPECTED
from tests import error_codes_page

SOURCE = Path(tally.__file__).parent
# Their errors go to a terminal or to a log, not into a response.
NO_RESPONSES = {"backup", "cli", "embedded", "move", "sim"}


def source_trees() -> Iterator[ast.Module]:
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] not in NO_RESPONSES:
            yield ast.parse(path.read_text(encoding="utf-8"))


def raised_codes() -> set[str]:
    """Return the codes that `code=` arguments of errors and `default_code` attributes contain."""
    codes = {UNEXPECTED.code, "http_error", *CODES.values()}
    codes |= {kind.default_code for kind in STATUS}
    for tree in source_trees():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="Problem"), args=[_, code, *_]):
                    values = [code]
                case ast.Call(func=ast.Name(id=name), keywords=keywords) if name[0].isupper():
                    values = [word.value for word in keywords if word.arg == "code"]
                case ast.Assign(targets=[ast.Name(id="default_code")], value=value):
                    values = [value]
                case _:
                    continue
            codes |= {
                value.value
                for value in values
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            }
    return codes - {errors.TallyError.default_code}


def all_texts() -> set[str]:
    """Return all string constants, including those that are parts of formatted strings."""
    return {
        node.value
        for tree in source_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_code_in_the_source_is_documented() -> None:
    """To document one, add it to `src/tally/error_codes.toml`."""
    assert raised_codes() - ERROR_CODES.keys() == set()


def test_no_documented_code_is_stale() -> None:
    texts = all_texts()
    suffixes = tuple(text for text in texts if text.startswith("_not_found"))
    stale = {code for code in ERROR_CODES if code not in texts and not code.endswith(suffixes)}
    assert stale == set()


@pytest.mark.parametrize("entry", ERROR_CODES.values(), ids=ERROR_CODES)
def test_every_entry_is_complete(entry: tally.error_codes.ErrorCode) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", entry.code)
    assert HTTPStatus(entry.status) >= 400
    assert re.fullmatch(r"[A-Z].*[^.]", entry.title)
    assert entry.meaning.endswith(".")
    assert entry.action.endswith(".")


def test_the_page_lists_the_codes() -> None:
    """To update the page, run `python -m tests.error_codes_page`."""
    assert error_codes_page.PAGE.read_text(encoding="utf-8") == error_codes_page.render()
