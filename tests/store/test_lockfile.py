"""The schema lock records the significant parts of a table in a canonical form."""

import random
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.errors import InvalidLockFile
from tally.store.lockfile import FORMAT, normalize, parse_lock, read_lock, render_lock, write_lock
from tally.store.schema import Attribute, S, Table
from tests.store.example import CATALOGUE, FIXTURES, FOLLOWS
from tests.store.schemas import schemas, tables


@given(schemas())
def test_any_schema_round_trips(schema: list[Table]) -> None:
    expected = sorted(map(normalize, schema), key=lambda table: table.name)
    assert parse_lock(render_lock(schema)) == expected
    assert render_lock(parse_lock(render_lock(schema))) == render_lock(schema)


@given(tables(), st.randoms())
def test_the_order_and_descriptions_of_a_declaration_are_not_significant(
    table: Table, shuffle: random.Random
) -> None:
    indexes, attributes = list(table.indexes), list(table.attributes)
    shuffle.shuffle(indexes)
    shuffle.shuffle(attributes)
    described = tuple(replace(attribute, about="other words") for attribute in attributes)
    other = replace(table, indexes=tuple(indexes), attributes=described)
    assert render_lock([other]) == render_lock([table])


@given(schemas(), st.randoms())
def test_the_order_of_tables_changes_nothing(schema: list[Table], shuffle: random.Random) -> None:
    shuffled = schema.copy()
    shuffle.shuffle(shuffled)
    assert render_lock(shuffled) == render_lock(schema)


def test_the_text_has_one_line_for_each_attribute_and_index() -> None:
    text = render_lock([FIXTURES, FOLLOWS])
    assert '\n"venue" = { type = "S", required = false }\n' in text
    assert '\n"expiresAt" = { type = "N", required = true }\n' in text
    assert '\nttl = "expiresAt"\n' in text
    assert '\n[tables."example-fixtures".indexes]\n"league-index" = { kind = "global", ' in text
    assert text.startswith("# The locked tables.")


def test_a_new_attribute_is_one_new_line() -> None:
    """So a review shows only the change."""
    grown = replace(FOLLOWS, attributes=(*FOLLOWS.attributes, Attribute("since", "N")))
    before, after = (
        render_lock([FIXTURES, FOLLOWS]).splitlines(),
        render_lock([FIXTURES, grown]).splitlines(),
    )
    assert [line for line in after if line not in before] == [
        '"since" = { type = "N", required = false }'
    ]
    assert [line for line in before if line not in after] == []


def test_an_attribute_that_repeats_the_primary_key_is_omitted() -> None:
    table = Table("plain", partition=S("id"))
    assert render_lock(
        [replace(table, attributes=(Attribute("id", "S", required=True),))]
    ) == render_lock([table])


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.lock"
    assert read_lock(path) == []
    write_lock(path, CATALOGUE.tables())
    assert read_lock(path) == [normalize(table) for table in CATALOGUE.tables()]
    write_lock(path, [])
    assert read_lock(path) == []
    assert [file.name for file in tmp_path.iterdir()] == ["schema.lock"]
    assert tomllib.loads(path.read_text(encoding="utf-8")) == {"format": FORMAT}


DAMAGED = {
    "no TOML": ("format = ", "cannot be read"),
    "no format": ("", "does not say which format"),
    "a format that is no number": ('format = "1"', "does not say which format"),
    "a newer format": ("format = 2", "format 2, and this version of Tally knows 1 at most"),
    "no partition": (
        'format = 1\n[tables."abc"]\nversion = "1.0.0"',
        "damaged: KeyError: 'partition'",
    ),
    "a type that is none": (
        'format = 1\n[tables."abc"]\nversion = "1.0.0"\npartition = { name = "a", type = "X" }',
        "damaged: ValueError: 'X' is none of S, N, B",
    ),
    "a name that is a number": (
        'format = 1\n[tables."abc"]\nversion = "1.0.0"\npartition = { name = 1, type = "S" }',
        "damaged: TypeError: 1 is no text",
    ),
    "a table that is a word": ("format = 1\n[tables]\nabc = 1", "damaged: TypeError"),
    "tables that are a word": ("format = 1\ntables = 1", "damaged: AttributeError"),
    "a table that contradicts itself": (
        'format = 1\n[tables."a"]\nversion = "1.0.0"\npartition = { name = "a", type = "S" }',
        "damaged: InvalidSchema: 'a' is not a valid name",
    ),
    "required that is neither true nor false": (
        (
            'format = 1\n[tables."abc"]\nversion = "1.0.0"\n'
            'partition = { name = "a", type = "S" }\nattributes.b.required = "yes"'
        ),
        "damaged: TypeError: required is true or false",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_rejected_with_what_is_wrong(damage: str) -> None:
    text, message = DAMAGED[damage]
    with pytest.raises(InvalidLockFile, match=message):
        parse_lock(text)


def test_a_file_that_is_no_text_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "schema.lock"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidLockFile, match="cannot be read"):
        read_lock(path)


@given(tables(), st.data())
def test_a_damaged_file_is_a_schema_or_an_invalid_lock_file_error(
    table: Table, data: st.DataObject
) -> None:
    """Regardless of the change that a merge or an editor made."""
    text = render_lock([table])
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    damaged = text[:start] + data.draw(st.sampled_from(["", "1", '"', "= {", "\n"])) + text[end:]
    try:
        parsed = parse_lock(damaged)
    except InvalidLockFile as error:
        assert str(error).startswith("the schema lock")  # noqa: PT017 - either outcome is right
    else:
        assert all(isinstance(found, Table) for found in parsed)
