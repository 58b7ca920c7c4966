"""The embedded engine and the emulators have the same results and contents for random operations.

Our validation is disabled for the emulators, so that checks that are wrong are detected. Known
errors of the jar are excluded from the input. Dynoxide accepts some invalid requests and changes
lists differently (`differences.py`), so it gets only valid conditions.
"""

import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.store.api import Delete, Engine, Get, Operation, Put, Update
from tally.store.errors import TableNotFound
from tally.store.expressions import Action, Condition, Discard, Remove
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.values import Item
from tests.conftest import SOAK_SECONDS
from tests.store.comparison import Plain, clear, contents, describe, normalized_result
from tests.store.differences import DYNOXIDE, LOCAL
from tests.store.emulators import open_engine
from tests.store.operation_strategies import SMALLEST, TableStrategies, shapes, tables
from tests.store.strategies import conditions, items, updates
from tests.store.unchecked import no_validation

# A failing example is made small by running it hundreds of times, for up to five minutes.
pytestmark = [pytest.mark.judge, pytest.mark.soak, pytest.mark.timeout(900 + SOAK_SECONDS)]

# A soak calls a test again and again, so no call should take longer than a few seconds.
EXAMPLES = min(settings().max_examples, 100)
SHAPES = shapes()
PLAIN = SHAPES[-1]


class Pair:
    """Both engines with the same tables."""

    def __init__(self, embedded: Engine, emulator: Engine, *, is_lenient: bool) -> None:
        self.engines = (embedded, emulator)
        self.is_lenient = is_lenient
        self.number = itertools.count()

    async def make(self, table: Table) -> None:
        """Recreate the table on both."""
        for engine in self.engines:
            await self.drop(table, engine)
            await engine.create_table(table)

    async def drop(self, table: Table, *engines: Engine) -> None:
        """Drop the table where it exists."""
        for engine in engines or self.engines:
            try:
                await engine.drop_table(table.name)
            except TableNotFound:
                continue

    async def check_agreement(self, table: Table, operations: list[Operation]) -> None:
        """Run the operations on both and compare all results and the contents.

        Then clear the tables.
        """
        story = [f"on {table}"]
        try:
            for operation in operations:
                if await self._creates_by_removing(operation):
                    continue
                story.append(describe(operation))
                await self._compare_results(story, operation)
            story.append("what is left")
            left = [await contents(engine, table) for engine in self.engines]
            self._compare(story, *[entry.normalized for entry in left])
        except BaseException:
            await self._reset(table)
            raise
        for engine in self.engines:
            await clear(engine, table, left[0].items)

    async def _compare_results(self, story: list[str], operation: Operation) -> None:
        embedded, emulator = self.engines
        expected = await normalized_result(embedded, operation)
        if expected != "invalid" or not self.is_lenient:
            self._compare(story, expected, await normalized_result(emulator, operation))

    async def _reset(self, table: Table) -> None:
        """Clear the table, or recreate it where an index has stale entries."""
        for engine in self.engines:
            await clear(engine, table, (await contents(engine, table)).items)
            if any((await contents(engine, table)).normalized.values()):
                await self.drop(table, engine)
                await engine.create_table(table)

    async def _creates_by_removing(self, operation: Operation) -> bool:
        """Whether an update only removes from a missing item.

        The jar creates an item, the service does not.
        """
        if not isinstance(operation, Update) or not all(
            isinstance(step, Remove | Discard) for step in operation.actions
        ):
            return False
        return (
            await self.engines[0].get(Get(operation.table, operation.key, consistent=True))
        ).item is None

    @staticmethod
    def _compare(story: list[str], embedded: Plain, emulator: Plain) -> None:
        if embedded != emulator:
            pytest.fail(
                "\n".join((*story, f"embedded: {embedded}", f"emulator: {emulator}")),
                pytrace=False,
            )


@pytest.fixture(scope="module", params=[LOCAL])
async def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Pair]:
    """The embedded engine and an emulator with the shared tables."""
    folder = tmp_path_factory.mktemp("differential")
    async with (
        open_sqlite(folder) as embedded,
        open_engine(request.param, folder, ()) as emulator,
    ):
        pair = Pair(embedded, emulator, is_lenient=request.param == DYNOXIDE)
        for table in SHAPES:
            await pair.make(table)
        with no_validation():
            yield pair


@pytest.mark.parametrize("pair", [LOCAL, DYNOXIDE], indirect=True)
@settings(max_examples=2 * EXAMPLES)
@given(items(SMALLEST), conditions(SMALLEST))
async def test_conditions_evaluate_equally(pair: Pair, item: Item, condition: Condition) -> None:
    key = {"id": "p"}
    await pair.check_agreement(PLAIN, [Put(PLAIN, {**item, **key}), Delete(PLAIN, key, condition)])


@settings(max_examples=2 * EXAMPLES)
@given(
    items(SMALLEST), updates(SMALLEST), st.sampled_from(("ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"))
)
async def test_updates_have_the_same_result(
    pair: Pair, item: Item, actions: tuple[Action, ...], returns: str
) -> None:
    key = {"id": "p"}
    update = Update(PLAIN, key, actions, returns=returns)  # type: ignore[arg-type]
    await pair.check_agreement(
        PLAIN, [Put(PLAIN, {**item, **key}), update, Get(PLAIN, key, consistent=True)]
    )


@settings(max_examples=EXAMPLES)
@given(st.one_of(*(TableStrategies(table).examples() for table in SHAPES)))
async def test_sequences_of_operations_have_the_same_results(
    pair: Pair, example: tuple[Table, list[Operation]]
) -> None:
    table, operations = example
    await pair.check_agreement(table, operations)


@settings(max_examples=max(10, EXAMPLES // 5))
@given(tables("made-up").flatmap(lambda table: TableStrategies(table).examples()))
async def test_tables_of_any_shape_have_the_same_results(
    pair: Pair, example: tuple[Table, list[Operation]]
) -> None:
    table, operations = example
    await pair.make(table)
    try:
        await pair.check_agreement(table, operations)
    finally:
        await pair.drop(table)
