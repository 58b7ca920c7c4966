"""Domain errors have a code, a message and details, and do not depend on HTTP."""

import ast
from pathlib import Path

import pytest

from tally import errors


def test_an_error_has_a_code_a_message_and_details() -> None:
    error = errors.NotFound("No device AA", code="device_not_found", hardware_id="AA")
    assert (error.code, error.message, dict(error.details)) == (
        "device_not_found",
        "No device AA",
        {"hardware_id": "AA"},
    )
    assert str(error) == "No device AA"


def test_every_class_has_its_own_default_code() -> None:
    kinds = errors.TallyError.__subclasses__()
    codes = [kind.default_code for kind in kinds]
    assert len(set(codes)) == len(kinds) > 5
    assert errors.Conflict("Taken").code == "conflict"


def test_details_are_immutable() -> None:
    error = errors.Invalid("Wrong", field="limit")
    with pytest.raises(TypeError):
        error.details["field"] = "other"  # type: ignore[index]


def test_retry_after_is_set_if_known() -> None:
    assert errors.RateLimited("Slow down", retry_after=2.5).retry_after == 2.5
    assert errors.Unavailable("Down").retry_after is None
    assert errors.Unavailable("Down", retry_after=1, code="store_down").code == "store_down"


def test_the_module_does_not_import_http() -> None:
    tree = ast.parse(Path(errors.__file__).read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported == ["collections.abc", "types"]
