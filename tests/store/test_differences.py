"""Every known difference of an emulator is documented and refers to existing tests."""

import re
from pathlib import Path

from tally.store.sqlite import open_sqlite
from tests.store.differences import DIFFERENCES, DYNOXIDE, LOCAL, MINISTACK
from tests.store.features import Features, features

ROOT = Path(__file__).parents[2]
TITLES = {LOCAL: "DynamoDB Local", MINISTACK: "ministack", DYNOXIDE: "Dynoxide"}


def test_docs_list_exactly_the_known_differences() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    section = page.split("## The emulators", 1)[1].split("\n## ", 1)[0]
    rows = [
        tuple(cell.strip() for cell in row.strip("|").split("|"))
        for row in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    assert rows[2:] == [
        (
            " and ".join(TITLES[name] for name in difference.engines),
            difference.description,
            difference.reason,
        )
        for difference in DIFFERENCES
    ]


def test_every_difference_refers_to_existing_tests() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    names = {name for difference in DIFFERENCES for name in difference.tests}
    assert {name for name in names if f"def {name}(" not in source} == set()


def test_every_feature_of_a_difference_is_probed() -> None:
    assert {difference.feature for difference in DIFFERENCES if difference.feature} <= set(
        Features.__dataclass_fields__
    )


async def test_embedded_engine_has_every_feature(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path) as engine:
        found = await features(engine)
    assert found.transaction_limit == 100
    assert {name for name in Features.__dataclass_fields__ if not getattr(found, name)} == set()
