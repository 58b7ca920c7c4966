"""Operator accounts: tokens, expiry, last use, removal, and the audit of changes."""

import asyncio
import io
import secrets
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tally.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from tally.instance.operators import (
    TOKEN_ID_LENGTH,
    OperatorAccounts,
    open_operators,
    operator_token_hash,
)
from tally.instance.repository.operators import OPERATORS, OperatorAccount
from tally.kit import logs
from tally.kit.clock import ManualClock
from tally.kit.operators import Operator, Role, check_may_change
from tally.settings import Secret, Settings
from tally.store.api import Scan
from tally.store.store import Store

AUTOMATION_TOKEN = "automation-token-of-forty-characters-012"


def make_operators(store: Store, clock: ManualClock, **settings: Any) -> OperatorAccounts:
    """Build the accounts as one instance does."""
    return open_operators(Settings(**settings), store, clock)


@pytest.fixture
def operators(store: Store, clock: ManualClock) -> OperatorAccounts:
    return make_operators(store, clock)


def new_name() -> str:
    return f"op-{secrets.token_hex(4)}"


async def account(operators: OperatorAccounts, name: str) -> OperatorAccount:
    return next(entry for entry in await operators.list() if entry.name == name)


async def test_a_token_authenticates_its_operator_with_its_role(
    operators: OperatorAccounts,
) -> None:
    viewer, admin = new_name(), new_name()
    tokens = {
        viewer: await operators.add(viewer, Role.VIEWER, None),
        admin: await operators.add(admin, Role.OPERATOR, None),
    }
    for name, role in ((viewer, Role.VIEWER), (admin, Role.OPERATOR)):
        operator = await operators.authenticate(tokens[name])
        assert (operator.name, operator.role) == (name, role)
        assert await operators.get(name) == operator


async def test_wrong_names_and_wrong_tokens_get_the_same_answer(
    operators: OperatorAccounts,
) -> None:
    name = new_name()
    token = await operators.add(name, Role.OPERATOR, None)
    wrong_token = token[:-1] + ("0" if token[-1] != "0" else "1")
    answers = set()
    for wrong in (wrong_token, token.replace(name, new_name()), token[:-1], token.upper(), "", "x"):
        with pytest.raises(Unauthenticated) as refused:
            await operators.authenticate(wrong)
        answers.add((refused.value.code, refused.value.message))
    assert answers == {("invalid_token", "Invalid operator token")}


async def test_the_store_holds_only_the_hash_of_a_token(operators: OperatorAccounts) -> None:
    name = new_name()
    token = await operators.add(name, Role.VIEWER, None)
    page = await operators.accounts.store._engine.scan(Scan(OPERATORS))
    assert token not in str(page.items)
    assert (await account(operators, name)).token_hash == operator_token_hash(token)


async def test_a_token_expires(operators: OperatorAccounts, clock: ManualClock) -> None:
    name = new_name()
    token = await operators.add(name, Role.OPERATOR, clock.now() + timedelta(seconds=2))
    await operators.authenticate(token)
    await clock.advance(2)
    with pytest.raises(Unauthenticated, match="has expired") as refused:
        await operators.authenticate(token)
    assert refused.value.code == "token_expired"
    assert await operators.get(name) is None


async def test_last_use_is_recorded_at_most_every_five_minutes(
    operators: OperatorAccounts, clock: ManualClock, store: Store
) -> None:
    name = new_name()
    token = await operators.add(name, Role.VIEWER, None)
    assert (await account(operators, name)).last_used_at is None
    await operators.authenticate(token)
    assert (await account(operators, name)).last_used_at == "2096-01-01T00:00:00Z"
    await clock.advance(299)
    await operators.authenticate(token)
    await make_operators(store, clock).authenticate(token)
    assert (await account(operators, name)).last_used_at == "2096-01-01T00:00:00Z"
    await clock.advance(1)
    await operators.authenticate(token)
    assert (await account(operators, name)).last_used_at == "2096-01-01T00:05:00Z"


async def test_removal_ends_a_token_at_once_here_and_within_five_seconds_elsewhere(
    operators: OperatorAccounts, clock: ManualClock, store: Store
) -> None:
    name, elsewhere = new_name(), make_operators(store, clock)
    token = await operators.add(name, Role.OPERATOR, None)
    await operators.authenticate(token)
    await elsewhere.authenticate(token)
    await operators.remove(name)
    with pytest.raises(Unauthenticated):
        await operators.authenticate(token)
    await clock.advance(5)
    with pytest.raises(Unauthenticated):
        await elsewhere.authenticate(token)
    assert await elsewhere.get(name) is None


async def test_an_operator_who_is_added_again_has_a_new_token_and_identity(
    operators: OperatorAccounts, clock: ManualClock, store: Store
) -> None:
    name, elsewhere = new_name(), make_operators(store, clock)
    old = await operators.add(name, Role.OPERATOR, None)
    former = await elsewhere.authenticate(old)
    await operators.remove(name)
    new = await operators.add(name, Role.VIEWER, None)
    with pytest.raises(Unauthenticated):
        await operators.authenticate(old)
    # The other instance still has the old account in its cache, and reads the new one.
    current = await elsewhere.authenticate(new)
    assert (current.name, current.role) == (name, Role.VIEWER)
    assert current.token_id != former.token_id


async def test_a_name_is_unique(operators: OperatorAccounts) -> None:
    name = new_name()
    token = await operators.add(name, Role.OPERATOR, None)
    with pytest.raises(Conflict, match=f"Operator {name} exists already"):
        await operators.add(name, Role.VIEWER, None)
    assert (await operators.authenticate(token)).role is Role.OPERATOR


@pytest.mark.parametrize("name", ["", "Ada", "-a", "a-", "a b", "a.b", "ä", "a" * 33, "a\n"])
async def test_names_are_short_and_plain(operators: OperatorAccounts, name: str) -> None:
    for refused in (operators.add(name, Role.VIEWER, None), operators.remove(name)):
        with pytest.raises(Invalid, match="name must have 1 to 32") as error:
            await refused
        assert error.value.details["field"] == "name"


async def test_only_an_existing_operator_can_be_removed(operators: OperatorAccounts) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        await operators.remove(new_name())


async def test_a_configured_token_defines_the_operator_automation(
    store: Store, clock: ManualClock, operators: OperatorAccounts
) -> None:
    configured = make_operators(store, clock, operator_token=Secret(AUTOMATION_TOKEN))
    token_id = operator_token_hash(AUTOMATION_TOKEN)[:TOKEN_ID_LENGTH]
    expected = Operator("automation", Role.OPERATOR, token_id)
    assert await configured.authenticate(AUTOMATION_TOKEN) == expected
    assert await configured.get("automation") == expected
    with pytest.raises(Unauthenticated):
        await configured.authenticate(AUTOMATION_TOKEN[:-1])
    with pytest.raises(Unauthenticated):
        await operators.authenticate(AUTOMATION_TOKEN)
    assert await operators.get("automation") is None
    with pytest.raises(Invalid, match="reserved"):
        await operators.add("automation", Role.OPERATOR, None)


def test_a_viewer_may_not_make_changes() -> None:
    check_may_change(Operator("ada", Role.OPERATOR))
    with pytest.raises(Forbidden) as refused:
        check_may_change(Operator("vera", Role.VIEWER))
    assert refused.value.code == "read_only_operator"


async def test_a_change_is_recorded_before_it_happens_and_its_outcome_after(
    operators: OperatorAccounts,
) -> None:
    operator = Operator(new_name(), Role.OPERATOR)
    logs.bind(request_id="request-1")
    async with operators.recording(operator, "POST /things", "/things/7", amount=3):
        (started,), _ = await operators.changes(operator.name, 10)
    (finished,), _ = await operators.changes(operator.name, 10)
    assert (started.action, started.target, started.outcome) == (
        "POST /things",
        "/things/7",
        "started",
    )
    assert (started.time, started.request_id) == ("2096-01-01T00:00:00Z", "request-1")
    assert started.details == {"amount": 3}
    assert finished == replace(started, outcome="succeeded")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("gone", code="thing_not_found"), "thing_not_found"),
        (ValueError("bug"), "internal_error"),
    ],
)
async def test_a_failed_change_is_recorded_with_its_error(
    operators: OperatorAccounts, error: Exception, code: str
) -> None:
    operator = Operator(new_name(), Role.OPERATOR)
    with pytest.raises(type(error)):
        async with operators.recording(operator, "DELETE /things", "/things/7"):
            raise error
    (record,), _ = await operators.changes(operator.name, 10)
    assert (record.outcome, record.error) == ("failed", code)


async def test_a_cancelled_change_has_no_recorded_outcome(operators: OperatorAccounts) -> None:
    """The client disconnected or the server stopped: nobody knows how far it got."""
    operator = Operator(new_name(), Role.OPERATOR)
    with pytest.raises(asyncio.CancelledError):
        async with operators.recording(operator, "POST /things", "/things/7"):
            raise asyncio.CancelledError
    (record,), _ = await operators.changes(operator.name, 10)
    assert record.outcome == "started"


async def test_a_change_can_fail_without_an_exception(operators: OperatorAccounts) -> None:
    operator = Operator(new_name(), Role.OPERATOR)
    async with operators.recording(operator, "job run", "sync") as change:
        change.error = "job_timed_out"
    (record,), _ = await operators.changes(operator.name, 10)
    assert (record.outcome, record.error) == ("failed", "job_timed_out")


async def test_changes_are_listed_newest_first_and_by_operator(
    operators: OperatorAccounts, clock: ManualClock
) -> None:
    one, other = Operator(new_name(), Role.OPERATOR), Operator(new_name(), Role.OPERATOR)
    for number, operator in enumerate((one, other, one)):
        await operators.record(operator, "test", f"target {number}")
    page, start = await operators.changes(one.name, 1)
    assert [record.target for record in page] == ["target 2"]
    rest, _ = await operators.changes(one.name, 10, start)
    assert [record.target for record in rest] == ["target 0"]
    latest, _ = await operators.changes(None, 1000)
    targets = [record.target for record in latest if record.operator in {one.name, other.name}]
    assert targets == ["target 2", "target 1", "target 0"]


async def test_the_audit_trail_contains_no_secrets(operators: OperatorAccounts) -> None:
    operator = Operator(new_name(), Role.OPERATOR)
    token = await operators.add(operator.name, Role.OPERATOR, None)
    await operators.record(operator, "test", f"/x/{token}", password="hunter2", note=token)
    (record,), _ = await operators.changes(operator.name, 1)
    assert token.removeprefix(f"tally-{operator.name}-") not in str(record)
    assert "hunter2" not in str(record)


async def test_a_long_target_is_cut(operators: OperatorAccounts) -> None:
    operator = Operator(new_name(), Role.OPERATOR)
    await operators.record(operator, "test", "/x/" + "y" * 100_000)
    (record,), _ = await operators.changes(operator.name, 1)
    assert len(record.target) == 512


async def test_records_expire_after_the_configured_days(store: Store, clock: ManualClock) -> None:
    operators = make_operators(store, clock, operator_audit_days=30)
    operator = Operator(new_name(), Role.OPERATOR)
    await operators.record(operator, "test", "target")
    (item,) = (
        item
        for item in (await store._engine.scan(Scan(operators.audit.tables[0]))).items
        if item["operator"] == operator.name
    )
    assert item["expires_at"] == clock.seconds() + 30 * 86_400


async def test_no_token_reaches_the_log(operators: OperatorAccounts, log: io.StringIO) -> None:
    token = await operators.add(new_name(), Role.OPERATOR, None)
    logs.logger().info("Operator test", action="operator_tested", note=token, header=f"x{token}")
    assert log.getvalue().count("***") == 2
    assert token[-64:] not in log.getvalue()
