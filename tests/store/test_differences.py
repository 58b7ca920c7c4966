"""Every known difference of an emulator is on the public page, and points at tests that are there."""

import re
from pathlib import Path

from tally.store.sqlite import open_sqlite
from tests.store.differences import DIFFERENCES, LOCAL, MINISTACK
from tests.store.features import Features, features

ROOT = Path(__file__).parents[2]
TITLES = {LOCAL: "DynamoDB Local", MINISTACK: "ministack"}


def test_the_page_has_a_row_for_each_difference_and_no_other() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    section = page.split("## The emulators", 1)[1].split("\n## ", 1)[0]
    rows = [
        tuple(cell.strip() for cell in row.strip("|").split("|"))
        for row in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    assert rows[2:] == [
        (" and ".join(TITLES[name] for name in each.engines), each.what, each.why)
        for each in DIFFERENCES
    ]


def test_every_difference_names_tests_that_are_there() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parent.glob("test_operations_*.py")
    )
    names = {name for difference in DIFFERENCES for name in difference.tests}
    assert {name for name in names if f"def {name}(" not in source} == set()


def test_every_feature_that_decides_is_one_that_is_asked_for() -> None:
    assert {each.feature for each in DIFFERENCES if each.feature} <= set(
        Features.__dataclass_fields__
    )


async def test_the_embedded_engine_lacks_no_feature(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        able = await features(engine)
    assert able.transaction_limit == 100
    assert {name for name in Features.__dataclass_fields__ if not getattr(able, name)} == set()
