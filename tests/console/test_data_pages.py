"""Reads, edits, exports and redaction of the data pages, without a browser."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from tally.app import CATALOGUE
from tally.console.data_pages.edits import (
    compare,
    delete,
    editable_text,
    load_item,
    parse_item,
    save,
)
from tally.console.data_pages.reads import ItemQuery, key_from_address, key_parameters, read_page
from tally.console.data_pages.redaction import is_editable, is_hidden, visible
from tally.errors import Conflict, Invalid
from tally.store import api
from tally.store.schema import Attribute, GlobalIndex, N, S, Table
from tally.store.sqlite import open_sqlite

NOTES = Table(
    "notes",
    partition=S("author"),
    sort=N("number"),
    indexes=(GlobalIndex("by_topic", partition=S("topic"), sort=S("title")),),
    attributes=(Attribute("title", "S", required=True),),
)
NOTE = {
    "author": "ada",
    "number": 1,
    "title": "Engines",
    "topic": "maths",
    "ratio": Decimal("0.10"),
    "tags": {"b", "a", "c"},
    "raw": b"\x00\xff",
    "updateToken": "do-not-show",
}
KEY = {"author": "ada", "number": 1}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[api.Engine]:
    async with open_sqlite(tmp_path / "data") as opened:
        await opened.ensure_table(NOTES)
        for number in range(1, 4):
            await opened.put(api.Put(NOTES, {**NOTE, "number": number, "title": f"T{number}"}))
        yield opened


async def titles(engine: api.Engine, query: ItemQuery) -> list[str]:
    return [item["title"] for item in (await read_page(engine, query.read(NOTES, 10))).items]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ItemQuery(), ["T1", "T2", "T3"]),
        (ItemQuery(partition="ada", order="descending"), ["T3", "T2", "T1"]),
        (ItemQuery(partition="ada", value="2"), ["T2"]),
        (ItemQuery(partition="ada", condition="between", value="2", upper="3"), ["T2", "T3"]),
        (ItemQuery("by_topic", "maths", "begins with", "T3"), ["T3"]),
        (ItemQuery("by_topic", "nothing"), []),
    ],
)
async def test_items_are_read_by_key_and_by_index(
    engine: api.Engine, query: ItemQuery, expected: list[str]
) -> None:
    assert sorted(await titles(engine, query)) == sorted(expected)
    if query.partition:
        assert await titles(engine, query) == expected
    assert ItemQuery.of(query.parameters()) == query


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (ItemQuery(value="2"), "Enter author too"),
        (ItemQuery(partition="ada", value="two"), "number must be a number"),
        (ItemQuery("by_nothing", "x"), "no index by_nothing"),
        (ItemQuery(partition="ada", condition="!", value="2"), "condition must be one of"),
    ],
)
def test_a_query_that_cannot_be_read_says_why(query: ItemQuery, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        query.read(NOTES, 10)


def test_the_address_of_an_item_names_its_key() -> None:
    assert key_parameters(NOTES, NOTE) == {"partition": "ada", "sort": "1"}
    assert key_from_address(NOTES, "ada", "1") == KEY
    with pytest.raises(Invalid, match="must name author and number"):
        key_from_address(NOTES, "ada", "")


async def test_an_edit_changes_what_differs_and_keeps_types_and_secrets(
    engine: api.Engine,
) -> None:
    before = await load_item(engine, NOTES, KEY)
    assert before is not None
    text = editable_text(before)
    assert "do-not-show" not in text
    assert compare(before, parse_item(NOTES, before, text)) == []
    changes = compare(before, parse_item(NOTES, before, text.replace('"T1"', '"Changed"')))
    assert [change.name for change in changes] == ["title"]
    await save(engine, NOTES, before, changes)
    assert await load_item(engine, NOTES, KEY) == {**NOTE, "title": "Changed"}


@pytest.mark.parametrize("other", [{"title": "by somebody else"}, {"ratio": Decimal("0.2")}])
async def test_an_item_that_changed_meanwhile_is_neither_overwritten_nor_deleted(
    engine: api.Engine, other: dict[str, object]
) -> None:
    before = await load_item(engine, NOTES, KEY)
    assert before is not None
    current = {**before, **other}
    await engine.put(api.Put(NOTES, current))
    changes = compare(before, {**before, "title": "mine"})
    with pytest.raises(Conflict, match="changed or deleted since you opened it"):
        await save(engine, NOTES, before, changes)
    with pytest.raises(Conflict, match="changed or deleted since you opened it"):
        await delete(engine, NOTES, before)
    assert await load_item(engine, NOTES, KEY) == current


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "This is not JSON"),
        ("[]", "An item is an object"),
        ('{"author":{"S":"eve"},"number":{"N":"1"},"title":{"S":"x"}}', "key cannot be changed"),
        ('{"author":{"S":"ada"},"number":{"N":"1"}}', "missing required attributes: title"),
        ('{"author":{"S":"ada"},"number":{"N":"1"},"title":{"N":"1"}}', "title is of type S"),
        ('{"author":{"S":"ada"},"number":{"N":"one"},"title":{"S":"x"}}', "^number: "),
        ('{"author":{"S":"ada"},"number":{"N":"1"},"title":"x"}', "^title: "),
        ('{"author":{"S":"ada"},"updateToken":{"S":"x"}}', "updateToken is masked"),
    ],
)
def test_an_invalid_edit_names_the_problem(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        parse_item(NOTES, NOTE, text)


def test_credentials_are_hidden_and_audit_trails_are_read_only() -> None:
    """Attributes with the name of a secret are masked in every other table."""
    tables = {table.name: table for table in CATALOGUE.tables()}
    hidden = {name for name, table in tables.items() if is_hidden(table)}
    assert {"tally-operators", "tally-console-sessions", "tally-webhooks", "api_keys"} <= hidden
    read_only = {name for name, table in tables.items() if not is_editable(table)} - hidden
    assert read_only == {"tally-operator-audit", "CommitCollectAudit"}
    assert visible(NOTE)["updateToken"] == "***"
    assert visible({"a": {"b": [{"refresh_token": "x"}]}})["a"] == "***"
    assert visible({"note": "Bearer abcdefgh"})["note"] == "***"
    assert visible(NOTE)["ratio"] == pytest.approx(0.1)
