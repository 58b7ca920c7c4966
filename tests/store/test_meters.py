"""The metrics of patterns are correct and equal in rows, Markdown and Prometheus."""

import bisect
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from tally.kit.clock import ManualClock
from tally.store.collector import PatternCollector
from tally.store.meters import BUCKET_BOUNDS, Meter, Meters
from tally.store.report import PatternRow, pattern_rows, patterns_markdown
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tests.store.example import CATALOGUE, Fixtures, Locks, make_tables


@pytest.fixture
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    """A store after some calls of the example's patterns."""
    async with open_sqlite(tmp_path_factory.mktemp("meters")) as engine:
        await make_tables(engine)
        store = Store(engine, ManualClock())
        await Fixtures(store).put_many(
            {"matchId": f"m{n}", "leagueCode": "eng", "startTime": "2026"} for n in range(30)
        )
        await Fixtures(store).get("m1")
        await Fixtures(store).get("m2")
        await Locks(store).acquire("lock", "me", now=1)
        await Locks(store).acquire("lock", "you", now=1)
        yield store


@given(st.lists(st.floats(0, 20), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_off_by_no_more_than_the_width_of_its_bucket(
    durations: list[float], share: float
) -> None:
    meter = Meter()
    for seconds in durations:
        meter.record_call(seconds)
    exact = sorted(durations)[max(0, -(-round(share * len(durations) * 1000) // 1000) - 1)]
    estimate = meter.quantile(share)
    assert 0 <= estimate <= meter.slowest
    assert (
        abs(bisect.bisect_left(BUCKET_BOUNDS, estimate) - bisect.bisect_left(BUCKET_BOUNDS, exact))
        <= 1
    )


def test_a_meter_that_was_never_used_shows_nothing() -> None:
    assert (Meter().quantile(0.5), Meter().slowest, Meter().calls) == (0.0, 0.0, 0)


async def test_rows_have_every_pattern_with_its_fields_and_metrics(store: Store) -> None:
    encoded = msgspec.json.encode(pattern_rows(CATALOGUE, store.meters))
    rows = {row.pattern: row for row in msgspec.json.decode(encoded, type=list[PatternRow])}
    assert len(rows) == len(CATALOGUE.entries())
    row = rows["Get fixture by ID"]
    assert (row.backend, row.table, row.index, row.operation) == (
        "example",
        "example-fixtures",
        None,
        "GetItem",
    )
    assert (row.key_condition, row.by, row.bound, row.method) == (
        "matchId = :matchId",
        "both",
        None,
        "Fixtures.get",
    )
    assert (row.trigger, row.frequency) == (
        "GET /matches/:id, LiveScoreJob",
        "per request, every 2.5 s per live match",
    )
    assert (row.calls, row.items, row.read_units, row.write_units, row.errors) == (
        2,
        2,
        1.0,
        0.0,
        0,
    )
    assert rows["Acquire lock"].refused == 1
    assert rows["Batch write fixtures"].items == 30
    assert [operation.calls for operation in rows["Batch write fixtures"].operations] == [2]
    assert rows["Scan live fixtures"].index == "live-index"


async def test_stores_do_not_share_meters(store: Store) -> None:
    """Counters belong to a store, not to the module or the method."""
    assert all(row.calls == 0 for row in pattern_rows(CATALOGUE, Meters()))
    assert any(row.calls for row in pattern_rows(CATALOGUE, store.meters))


async def test_rows_are_filtered_by_backend(store: Store) -> None:
    assert pattern_rows(CATALOGUE, store.meters, "example") == pattern_rows(CATALOGUE, store.meters)
    assert pattern_rows(CATALOGUE, store.meters, "another") == []


async def test_markdown_has_one_section_per_table_and_metrics_only_on_request(
    store: Store,
) -> None:
    rows = pattern_rows(CATALOGUE, store.meters)
    page = patterns_markdown(rows)
    assert [line for line in page.splitlines() if line.startswith("### ")] == [
        "### example-fixtures",
        "### example-follows",
        "### example-locks",
    ]
    assert (
        "| Get fixture by ID | both | GetItem |  | matchId = :matchId |  |  |  | GET /matches/:id,"
        in page
    )
    assert "| Calls |" not in page
    assert page == patterns_markdown(pattern_rows(CATALOGUE, Meters()))
    assert (
        "| Calls | Errors | Items | Read units | Write units | p50 ms | p99 ms |"
        in patterns_markdown(rows, measured=True)
    )


def test_markdown_keeps_a_bar_or_a_line_break_inside_its_cell() -> None:
    row = replace(pattern_rows(CATALOGUE, Meters())[0], pattern="a|b\nc\\d")
    assert r"| a\|b c\\d |" in patterns_markdown([row])


async def test_prometheus_exports_sums_of_the_same_values(store: Store) -> None:
    """Each operation has a consistent histogram, and each table its counters."""
    registry = CollectorRegistry()
    registry.register(PatternCollector(CATALOGUE, store.meters))
    duration = "tally_store_operation_duration_seconds"
    labels = {"operation": "GetItem"}
    value = registry.get_sample_value
    reads = [row for row in pattern_rows(CATALOGUE, store.meters) if row.operation == "GetItem"]
    calls = sum(row.calls for row in reads)
    assert calls >= 2
    assert value(f"{duration}_count", labels) == calls
    assert value(f"{duration}_bucket", labels | {"le": "+Inf"}) == calls
    fixtures = {"backend": "example", "table": "example-fixtures"}
    rows = [row for row in pattern_rows(CATALOGUE, store.meters) if row.table == "example-fixtures"]
    assert value("tally_store_operation_items_total", fixtures) == sum(row.items for row in rows)
    assert value("tally_store_operation_read_units_total", fixtures) == sum(
        row.read_units for row in rows
    )
    locks = {"backend": "example", "table": "example-locks"}
    assert value("tally_store_operation_rejected_total", locks) == 1
