"""Probes what a DynamoDB service supports; services differ, some only by age.

found = await features(engine)
if not found.empty_strings: pytest.skip(...)
"""

import uuid
from dataclasses import dataclass

from tally.store.api import Engine, Get, Put, Transaction, Update
from tally.store.errors import ConditionFailed, InvalidRequest, TokenMismatch, TransactionCancelled
from tally.store.expressions import F, not_exists
from tally.store.schema import S, Table

SCRATCH = Table("features-scratch", partition=S("id"), ttl="expiresAt")


@dataclass(frozen=True, slots=True)
class Features:
    """Each field is true for DynamoDB itself, or 100."""

    failed_item_on_condition: bool  # a failed condition of a single write returns the item
    empty_strings: bool  # an attribute that is no key may be an empty string or binary
    transaction_limit: int  # how many writes fit in one transaction
    token_guard: bool  # a client token that is reused with other writes is rejected
    ttl: bool  # the table keeps the name of its TTL attribute
    reasons_for_invalid_updates: (
        bool  # an update that does not fit its item cancels a transaction, with a reason
    )
    nested_updated_values: bool  # UPDATED_NEW returns the changed part of a map, not the whole map


async def features(engine: Engine) -> Features:
    """Probe the engine with a separate table."""
    await engine.ensure_table(SCRATCH)
    return Features(
        failed_item_on_condition=await _failed_item_on_condition(engine),
        empty_strings=await _empty_strings(engine),
        transaction_limit=await _transaction_limit(engine),
        token_guard=await _token_guard(engine),
        ttl=(await engine.describe_table(SCRATCH.name)).ttl == SCRATCH.ttl,
        reasons_for_invalid_updates=await _reasons_for_invalid_updates(engine),
        nested_updated_values=await _nested_updated_values(engine),
    )


def _fresh() -> str:
    return str(uuid.uuid4())


async def _failed_item_on_condition(engine: Engine) -> bool:
    item = {"id": _fresh(), "held": True}
    await engine.put(Put(SCRATCH, item))
    try:
        await engine.put(Put(SCRATCH, item, condition=not_exists("id")))
    except ConditionFailed as refusal:
        return refusal.item == item
    raise AssertionError("a condition that does not hold was passed over")


async def _empty_strings(engine: Engine) -> bool:
    item = {"id": _fresh(), "text": "", "bytes": b""}
    try:
        await engine.put(Put(SCRATCH, item))
    except InvalidRequest:
        return False
    return (await engine.get(Get(SCRATCH, {"id": item["id"]}, consistent=True))).item == item


async def _transaction_limit(engine: Engine) -> int:
    for count in (100, 25):
        try:
            await engine.transact(
                Transaction(tuple(Put(SCRATCH, {"id": _fresh()}) for _ in range(count)))
            )
        except InvalidRequest:
            continue
        return count
    return 10


async def _token_guard(engine: Engine) -> bool:
    token = _fresh()
    await engine.transact(Transaction((Put(SCRATCH, {"id": _fresh()}),), token))
    try:
        await engine.transact(Transaction((Put(SCRATCH, {"id": _fresh()}),), token))
    except TokenMismatch:
        return True
    return False


async def _reasons_for_invalid_updates(engine: Engine) -> bool:
    key = {"id": _fresh()}
    await engine.put(Put(SCRATCH, {**key, "word": "seven"}))
    try:
        await engine.transact(Transaction((Update(SCRATCH, key, (F("word").set(F("word") + 1),)),)))
    except TransactionCancelled as refusal:
        return [reason.code for reason in refusal.reasons] == ["ValidationError"]
    except InvalidRequest:
        pass
    return False


async def _nested_updated_values(engine: Engine) -> bool:
    key = {"id": _fresh()}
    await engine.put(Put(SCRATCH, {**key, "map": {"one": 1, "two": 2}}))
    written = await engine.update(
        Update(SCRATCH, key, (F("map", "one").set(3),), returns="UPDATED_NEW")
    )
    return written.item == {"map": {"one": 3}}
