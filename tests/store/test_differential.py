"""The embedded engine and DynamoDB Local have the same results and contents for random operations.

Our validation is disabled for DynamoDB Local, so that checks that are too strict are detected.
Known errors of the jar are excluded from the input.
"""

import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.store import dynamodb, validate
from tally.store.api import Delete, Engine, Get, Operation, Put, Update
from tally.store.errors import TableNotFound
from tally.store.expressions import Action, Condition, Discard, Remove
from tally.store.schema import Table
from tally.store.sqlite import open_sqlite
from tally.store.values import Item
from tests.conftest import SOAK_SECONDS
from tests.store.comparison import Plain, clear, contents, describe, normalized_result
from tests.store.emulators import local_engine
from tests.store.operation_strategies import SMALLEST, TableStrategies, shapes, tables
from tests.store.strategies import conditions, items, updates

# A failing example is made small by running it hundreds of times, for up to five minutes.
pytestmark = [pytest.mark.judge, pytest.mark.soak, pytest.mark.timeout(900 + SOAK_SECONDS)]

# A soak calls a test again and again, so no call should take longer than a few seconds.
EXAMPLES = min(settings().max_examples, 100)
SHAPES = shapes()
PLAIN = SHAPES[-1]
UNCHECKED = SimpleNamespace(
    **{name: lambda _operation: None for name in dir(validate) if name.startswith("check_")}
)


class Pair:
    """Both engines with the same tables."""

    def __init__(self, embedded: Engine, local: Engine) -> None:
        self.engines = (embedded, local)
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
                self._compare(
                    story, *[await normalized_result(engine, operation) for engine in self.engines]
                )
            story.append("what is left")
            left = [await contents(engine, table) for engine in self.engines]
            self._compare(story, *[entry.normalized for entry in left])
        except BaseException:
            await self._reset(table)
            raise
        for engine in self.engines:
            await clear(engine, table, left[0].items)

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
    def _compare(story: list[str], embedded: Plain, local: Plain) -> None:
        if embedded != local:
            pytest.fail(
                "\n".join((*story, f"embedded: {embedded}", f"local:    {local}")), pytrace=False
            )


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Both engines with the shared tables; DynamoDB Local without our validation."""
    async with (
        open_sqlite(tmp_path_factory.mktemp("differential")) as embedded,
        local_engine() as local,
    ):
        pair = Pair(embedded, local)
        for table in SHAPES:
            await pair.make(table)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dynamodb.engine, "validate", UNCHECKED)
            yield pair


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
