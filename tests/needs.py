"""Handles programs that a test needs and the machine lacks, such as Java for DynamoDB Local.

On a developer's machine the test is skipped with a reason, so that nobody must install everything.
In CI (`CI=true`) it fails, because a missing program is a mistake in `.ci/run` and no test may be
silently left out.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the running test, or fail it in CI, because something is not installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"Missing in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def need_program(name: str, package: str) -> Path:
    """Return the path of a program, or end the test; `package` is its Debian package."""
    found = shutil.which(name)
    if found is None:
        skip_or_fail(f"{name} is not on the PATH (apt-get install {package})")
    return Path(found)
