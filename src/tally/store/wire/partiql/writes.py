"""Turns PartiQL statements into the store's writes."""

from functools import reduce

from tally.store.api import Check, Delete, Engine, Get, Put, Update, Write
from tally.store.expressions import Absent, And, Condition, Exists, Or, make_path
from tally.store.schema import Table
from tally.store.wire.items import check_targets
from tally.store.wire.keys import check_new_item, check_primary_key
from tally.store.wire.partiql.key_lookup import no_key, split_key
from tally.store.wire.partiql.statements import (
    DeleteStatement,
    InsertStatement,
    SelectStatement,
    UpdateStatement,
    WriteStatement,
)
from tally.store.wire.table_names import find_table


async def plan_write(engine: Engine, statement: WriteStatement) -> Write:
    """Return the write of a statement; its condition contains the rest of the WHERE clause."""
    table = await find_table(engine, statement.table)
    path = make_path(table.partition.name)
    exists: Condition = Exists(path)
    absent = Absent(path)
    if isinstance(statement, InsertStatement):
        return Put(table, check_new_item(table, statement.item), absent)
    if statement.where is None:
        raise no_key()
    key, others = split_key(table, statement.where)
    check_primary_key(table, key)
    condition = reduce(And, others, exists)
    if isinstance(statement, UpdateStatement):
        check_targets(table, statement.actions)
        return Update(table, key, statement.actions, condition, statement.returns, is_parsed=True)
    if isinstance(statement, DeleteStatement):
        return Delete(
            table, key, Or(absent, condition) if others else None, statement.returns, True
        )
    return Check(table, key, condition, is_parsed=True)


async def plan_get(
    engine: Engine, statement: SelectStatement, *, consistent: bool = False
) -> tuple[Get, Condition | None]:
    """Return the read of a single item, and the condition that the item must meet."""
    table: Table = await find_table(engine, statement.table)
    if statement.index is not None:
        raise no_key()
    key, others = split_key(table, statement.where)
    check_primary_key(table, key)
    condition = reduce(And, others) if others else None
    return Get(table, key, (), consistent), condition
