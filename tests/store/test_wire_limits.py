"""Values and expressions at the limits of the protocol, which the store's own limits do not cut."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.store.served import call, dynamodb_command, served_store
from tests.store.wire_requests import KEY, ONE, Body, table

PLAIN: Body = {"TableName": "plain"}
TARGET: Body = {**PLAIN, "Key": KEY}
OVERFLOW = (
    "Number overflow. Attempting to store a number with magnitude larger than supported range"
)
UNDERFLOW = (
    "Number underflow. Attempting to store a number with magnitude smaller than supported range"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("limits")) as served:
        assert call(served, *table("plain", "pk:S", "pk"))[0] == 200
        yield served


def verdict(url: str, operation: str, body: Body) -> tuple[int, str, Any]:
    status, response = call(url, operation, body)
    kind = str(response.get("__type", "")).rpartition("#")[2]
    return status, kind, response.get("message", response.get("Message"))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1e99999999999999999999", OVERFLOW),
        (f"{'1' * 900}e900", OVERFLOW),
        ("1e-99999999999999999999", UNDERFLOW),
    ],
)
def test_a_number_out_of_range_is_reported_whatever_its_exponent(
    url: str, number: str, message: str
) -> None:
    put = {**PLAIN, "Item": {**KEY, "n": {"N": number}}}
    assert verdict(url, "PutItem", put) == (400, "ValidationException", message)
    statement = f"INSERT INTO plain VALUE {{'pk': 'new', 'n': {number}}}"
    found = verdict(url, "ExecuteStatement", {"Statement": statement})
    assert found == (400, "ValidationException", message)


@pytest.mark.parametrize("number", [f"1{'0' * 500}e-500", f"0.{'0' * 499}1e500", "0e99999", "-0"])
def test_the_form_of_a_number_does_not_limit_it(url: str, number: str) -> None:
    assert call(url, "PutItem", {**PLAIN, "Item": {**KEY, "n": {"N": number}}})[0] == 200
    stored = call(url, "GetItem", TARGET)[1]["Item"]["n"]
    assert stored == {"N": "0" if number.startswith(("0e", "-0")) else "1"}


@pytest.mark.parametrize("text", ["YWJj=", "YQ", "YQ=", "YQ===", "=", "====", "Y!==", " YQ=="])
def test_malformed_base64_is_a_serialization_error(url: str, text: str) -> None:
    found = verdict(url, "PutItem", {**PLAIN, "Item": {**KEY, "b": {"B": text}}})
    assert found[:2] == (400, "SerializationException")


def test_a_null_must_be_a_boolean_that_is_true(url: str) -> None:
    text = {**PLAIN, "Item": {**KEY, "z": {"NULL": "true"}}}
    assert verdict(url, "PutItem", text)[:2] == (400, "SerializationException")
    false = {**PLAIN, "Item": {**KEY, "z": {"NULL": False}}}
    assert verdict(url, "PutItem", false)[:2] == (400, "ValidationException")


def test_an_expression_may_use_its_4096_bytes(url: str) -> None:
    names = [f"a{number}" for number in range(400)]
    values = {"ExpressionAttributeValues": ONE}
    sets = f"SET {','.join(f'{name}=:v' for name in names)}"
    assert len(sets) <= 4096
    assert call(url, "UpdateItem", {**TARGET, "UpdateExpression": sets, **values}) == (200, {})
    filtered = f"a1 = :v{' ' * 4088}"
    found = call(url, "Scan", {**PLAIN, "FilterExpression": filtered, **values})[1]
    assert found["Count"] == 1
    removes = f"REMOVE {','.join(names)}"
    transaction = {"TransactItems": [{"Update": {**TARGET, "UpdateExpression": removes}}]}
    assert call(url, "TransactWriteItems", transaction) == (200, {})
    stored = call(url, "GetItem", TARGET)[1]["Item"]
    assert set(stored).isdisjoint(names)


def test_thousands_of_paths_are_compared_at_once(url: str) -> None:
    names = [f"c{number}" for number in range(30_000)]
    assert call(url, "GetItem", {**TARGET, "AttributesToGet": names})[0] == 200
    removed = {name: {"Action": "DELETE"} for name in names}
    assert call(url, "UpdateItem", {**TARGET, "AttributeUpdates": removed}) == (200, {})
    found = verdict(url, "GetItem", {**TARGET, "AttributesToGet": [*names, names[-1]]})
    assert found[2].endswith("Duplicate value in attribute name: c29999")


def test_the_older_parameters_have_no_limit_of_operators(url: str) -> None:
    names = [f"b{number}" for number in range(2000)]
    updates = {name: {"Value": {"N": "1"}} for name in names}
    assert call(url, "UpdateItem", {**TARGET, "AttributeUpdates": updates}) == (200, {})
    present: Body = {name: {"ComparisonOperator": "NOT_NULL"} for name in names}
    absent: Body = {name: {"ComparisonOperator": "NULL"} for name in names}
    assert call(url, "Scan", {**PLAIN, "ScanFilter": present})[1]["Count"] == 1
    any_absent = {"ScanFilter": absent, "ConditionalOperator": "OR"}
    assert call(url, "Scan", {**PLAIN, **any_absent})[1]["Count"] == 0
    failed = verdict(url, "DeleteItem", {**TARGET, "Expected": absent})
    assert failed[:2] == (400, "ConditionalCheckFailedException")


def test_a_long_select_lets_other_requests_run(tmp_path: Path) -> None:
    """In a process of its own: threads of one process wait for each other."""
    with dynamodb_command(tmp_path) as (url, _):
        assert call(url, *table("plain", "pk:S", "pk"))[0] == 200
        for start in range(0, 5_000, 25):
            keys = [{"pk": {"S": f"s{start + n}"}, "n": {"N": "1"}} for n in range(25)]
            items = [{"PutRequest": {"Item": key}} for key in keys]
            assert call(url, "BatchWriteItem", {"RequestItems": {"plain": items}})[0] == 200
        assert call(url, "PutItem", {**PLAIN, "Item": KEY})[0] == 200
        statement = " OR ".join(["SELECT * FROM plain WHERE n = -1", *["n = -1"] * 289])
        with ThreadPoolExecutor(1) as pool:
            selecting = pool.submit(call, url, "ExecuteStatement", {"Statement": statement})
            reads = 0
            while not selecting.done():
                assert call(url, "GetItem", TARGET)[0] == 200
                reads += 1
            assert selecting.result() == (200, {"Items": []})
    assert reads > 20  # without turns, one before and one after it


def test_more_conditions_than_an_item_can_be_tested_with_are_refused(url: str) -> None:
    conditions = {f"c{number}": {"ComparisonOperator": "NULL"} for number in range(2001)}
    found = verdict(url, "Scan", {**PLAIN, "ScanFilter": conditions})
    assert (found[0], str(found[2]).endswith("more than 2000 conditions")) == (400, True)
    assert verdict(url, "DeleteItem", {**TARGET, "Expected": conditions})[0] == 400
