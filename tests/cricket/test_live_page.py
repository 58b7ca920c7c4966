"""docs/live-activities.md names the test behind each arrow, and all that can become of a Live Activity."""

import re
from pathlib import Path

from tally.cricket.model.records import ActivityStatus, EndReason
from tally.cricket.service.sheets import ATTRIBUTES_TYPE

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "live-activities.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    """In the file that the page links to."""
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", PAGE)
    assert len(named) > 15
    missing = [(test, file) for test, file in named if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")]
    assert missing == []


def test_every_state_and_every_reason_is_on_the_page() -> None:
    """And the name that the app's type must have."""
    words = [*(status.value for status in ActivityStatus), *(reason.value for reason in EndReason), ATTRIBUTES_TYPE]
    assert [word for word in words if word not in PAGE] == []
