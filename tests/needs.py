"""What a test does when the machine lacks something that it needs, such as Java for DynamoDB Local.

A person who works on one corner of Tally should not have to install everything, so there the test
is skipped, with the reason. Where `CI` is `true`, a missing program is a mistake in `.ci/run`, so
there the same test fails: nothing goes untested unnoticed.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def skip_or_fail(reason: str) -> NoReturn:
    """End the running test for want of something that an install would bring; `reason` says what."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have it: {reason}", pytrace=False)
    pytest.skip(reason)


def need_program(name: str, package: str) -> Path:
    """Where the program `name` is, or the end of the test; `package` is what Debian calls it."""
    found = shutil.which(name)
    if found is None:
        skip_or_fail(f"{name} is not on the PATH (apt-get install {package})")
    return Path(found)
