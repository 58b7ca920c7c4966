"""PartiQL statements over the wire: reads, writes, batches, transactions and invalid statements."""
# ruff: noqa: S608 - the statements are constants of this test, not SQL

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.served import boto3_resource, call, served_store

ITEMS = 5
NOT_WELL_FORMED = "Statement wasn't well formed, can't be processed: "
NO_KEY = "Where clause does not contain a mandatory equality on all key attributes"
FAILED = "The conditional request failed"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_store(tmp_path_factory.mktemp("partiql")) as served:
        definitions = [("pk", "S"), ("sk", "N"), ("g", "S")]
        body = {
            "TableName": "songs",
            "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": kind} for name, kind in definitions
            ],
            "GlobalSecondaryIndexes": [
                {
                    "IndexName": "by-g",
                    "KeySchema": [{"AttributeName": "g", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
        }
        assert call(served, "CreateTable", body)[0] == 200
        for number in range(ITEMS):
            insert = (
                f"INSERT INTO songs VALUE {{'pk': 'p', 'sk': {number}, 'g': 'g{number % 2}',"
                f" 'm': {{'l': [{number}, 'x'], 'name': 'n{number}'}}, 'tags': <<'a', 'b'>>}}"
            )
            assert run(served, insert) == {}
        yield served


def run(url: str, statement: str, *parameters: Any, **fields: Any) -> dict[str, Any]:
    """Execute a statement and return the response, or the error."""
    given = {"Parameters": [*parameters]} if parameters else {}
    return call(url, "ExecuteStatement", {"Statement": statement, **given, **fields})[1]


def numbers(url: str, condition: str, *parameters: Any) -> list[int]:
    """Return the sort keys of the selected items."""
    found = run(url, f"SELECT sk FROM songs WHERE {condition}", *parameters)
    return [int(item["sk"]["N"]) for item in found["Items"]]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("pk = 'p'", [0, 1, 2, 3, 4]),
        ("pk = 'p' AND sk = 3", [3]),
        ("'p' = pk AND 2 < sk", [3, 4]),
        ("pk = 'p' AND sk >= 1 AND sk < 3", [1, 2]),
        ("pk = 'p' AND sk BETWEEN 1 AND 2", [1, 2]),
        ("pk IN ['p', 'q'] AND sk IN (0, 4)", [0, 4]),
        ("(pk = 'p' AND sk = 1) OR (pk = 'p' AND sk = 3)", [1, 3]),
        ("pk = 'p' AND NOT sk = 1 AND sk <> 2 AND sk != 3", [0, 4]),
        ("pk = 'p' ORDER BY sk DESC", [4, 3, 2, 1, 0]),
        ("begins_with(g, 'g1') AND pk = 'p'", [1, 3]),
        ("contains(tags, 'a') AND m.l[0] = 2", [2]),
        ("size(tags) = 2 AND attribute_type(m, 'M') AND m.\"name\" = 'n1'", [1]),
        ("nothing IS MISSING AND m IS NOT MISSING AND sk = 0", [0]),
        ("nothing IS NOT MISSING", []),
        ("sk IS NULL", []),
        ("pk = 'it''s'", []),
    ],
)
def test_select_finds_the_items_that_meet_the_condition(
    url: str, condition: str, expected: list[int]
) -> None:
    assert numbers(url, condition) == expected


def test_select_returns_the_last_name_of_each_path(url: str) -> None:
    statement = 'SELECT m.name, m.l[1], nothing FROM "songs" WHERE pk = ? AND sk = ?'
    found = run(url, statement, {"S": "p"}, {"N": "2"})
    assert found == {"Items": [{"name": {"S": "n2"}, "l[1]": {"S": "x"}}]}


def test_select_reads_an_index(url: str) -> None:
    statement = 'SELECT sk FROM "songs"."by-g" WHERE g = \'g1\''
    found = run(url, statement, ReturnConsumedCapacity="INDEXES")
    assert [item["sk"]["N"] for item in found["Items"]] == ["1", "3"]
    assert found["ConsumedCapacity"]["GlobalSecondaryIndexes"] == {"by-g": {"CapacityUnits": 0.5}}


@pytest.mark.parametrize("condition", ["pk = 'p'", "pk IN ['p', 'q', 'p']", "sk >= 0"])
def test_pages_continue_after_the_token(url: str, condition: str) -> None:
    statement = f"SELECT sk FROM songs WHERE {condition}"
    found: list[int] = []
    token: dict[str, str] = {}
    for _ in range(ITEMS + 3):
        page = run(url, statement, Limit=2, **token)
        found += [int(item["sk"]["N"]) for item in page["Items"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert found == [0, 1, 2, 3, 4]
    assert run(url, "SELECT * FROM songs", **token)["message"] == "Invalid NextToken"


def test_update_changes_an_item_and_returns_what_was_asked(url: str) -> None:
    run(url, "INSERT INTO songs VALUE {'pk': 'u', 'sk': 1, 'n': 1, 'l': [1], 's': <<'a'>>}")
    where = "WHERE pk = 'u' AND sk = 1"
    changed = run(
        url,
        "UPDATE songs SET n = n + 2, l = list_append(l, ?) SET s = set_add(s, <<'b'>>)"
        f" REMOVE nothing {where} RETURNING MODIFIED NEW *",
        {"L": [{"S": "x"}]},
    )["Items"][0]
    assert (changed["n"], changed["l"]) == ({"N": "3"}, {"L": [{"N": "1"}, {"S": "x"}]})
    assert sorted(changed["s"]["SS"]) == ["a", "b"]
    run(url, f"UPDATE songs SET s = set_delete(s, <<'a', 'b'>>) REMOVE l[0] {where}")
    assert run(url, f"SELECT l, s FROM songs {where}")["Items"] == [{"l": {"L": [{"S": "x"}]}}]
    failed = run(
        url,
        f"UPDATE songs SET n = 1 {where} AND n = 9",
        ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )
    assert (failed["message"], failed["Item"]["n"]) == (FAILED, {"N": "3"})
    assert run(url, "UPDATE songs SET n = 1 WHERE pk = 'none' AND sk = 1")["message"] == FAILED


def test_delete_returns_the_old_item_and_succeeds_without_one(url: str) -> None:
    run(url, "INSERT INTO songs VALUE {'pk': 'd', 'sk': 1, 'n': 1}")
    where = "WHERE pk = 'd' AND sk = 1"
    assert run(url, f"DELETE FROM songs {where} AND n = 2")["message"] == FAILED
    old = run(url, f"DELETE FROM songs {where} RETURNING ALL OLD *")["Items"]
    assert old == [{"pk": {"S": "d"}, "sk": {"N": "1"}, "n": {"N": "1"}}]
    assert run(url, f"DELETE FROM songs {where} RETURNING ALL OLD *") == {"Items": []}
    assert run(url, f"DELETE FROM songs {where} AND n = 2") == {}


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP TABLE songs", NOT_WELL_FORMED + "Expected data manipulation"),
        ("SELECT * FROM songs LIMIT 1", NOT_WELL_FORMED + "Unexpected token after expression"),
        ("SELECT * FROM songs WHERE where = 1", NOT_WELL_FORMED + "Unexpected keyword"),
        ("SELECT * FROM songs WHERE pk = 'p", NOT_WELL_FORMED + "Unterminated string literal"),
        ("SELECT * FROM songs WHERE f(pk, 1)", NOT_WELL_FORMED + "No such function: f"),
        ("SELECT * FROM songs WHERE pk = ?", "Number of parameters in request and statement don't"),
        ('SELECT * FROM "songs"."none"', "The table does not have the specified index"),
        ("SELECT * FROM none", "Requested resource not found"),
        ("SELECT * FROM songs ORDER BY sk", "Must have WHERE clause in the statement when using"),
        ("SELECT * FROM songs WHERE sk = 1 ORDER BY sk", "Must have at least one non-optional has"),
        (
            "SELECT * FROM songs WHERE pk = 'p' ORDER BY m",
            "Variable reference m in ORDER BY clause",
        ),
        ("INSERT INTO songs VALUE {'pk': 'p', 'sk': 1}", "Duplicate primary key exists in table"),
        (
            "INSERT INTO songs VALUE {'pk': 'p'}",
            "One or more parameter values were invalid: Missing",
        ),
        ("UPDATE songs SET n = 1", NO_KEY),
        ("UPDATE songs SET n = 1 WHERE pk = 'p' AND sk > 1", NO_KEY),
        ("UPDATE songs SET n = 1, n = 2 WHERE pk = 'p'", "Invalid UpdateExpression: Two document"),
        (
            "UPDATE songs SET sk = 2 WHERE pk = 'p' AND sk = 1",
            "One or more parameter values were i",
        ),
        ("DELETE FROM songs WHERE pk = 'p'", NO_KEY),
        ("DELETE FROM songs WHERE sk = 1 RETURNING ALL NEW *", "Invalid returning clause: RETURN"),
        ("EXISTS(SELECT * FROM songs WHERE sk = 1)", NOT_WELL_FORMED + "Expected data manip"),
    ],
)
def test_an_invalid_statement_is_rejected_with_a_reason(
    url: str, statement: str, message: str
) -> None:
    assert run(url, statement)["message"].startswith(message)


def test_long_white_space_and_many_changes_do_not_occupy_the_server(url: str) -> None:
    """The time of both grew with the square of the length, here to more than `call` waits."""
    reads = [f"SELECT sk FROM songs WHERE pk = 'p' AND sk = {number}" for number in range(100)]
    statements = [{"Statement": read + " " * 8_000} for read in reads]
    found = call(url, "ExecuteTransaction", {"TransactStatements": statements})[1]
    assert sum("Item" in response for response in found["Responses"]) == ITEMS
    changes = ", ".join(f"a{number} = 1" for number in range(301))
    found = run(url, f"UPDATE songs SET {changes} WHERE pk = 'p' AND sk = 1")
    assert found["message"] == f"{NOT_WELL_FORMED}The statement has more than 300 changes"


def test_a_batch_has_a_result_for_each_statement(url: str) -> None:
    client = boto3_resource(url).meta.client
    statements = [
        {"Statement": "INSERT INTO songs VALUE {'pk': 'b', 'sk': 1}"},
        {"Statement": "INSERT INTO songs VALUE {'pk': 'p', 'sk': 1}"},
        {"Statement": "UPDATE songs SET n = ? WHERE pk = 'b' AND sk = 9", "Parameters": [1]},
        {"Statement": "nonsense"},
    ]
    responses = client.batch_execute_statement(Statements=statements)["Responses"]
    assert [entry.get("Error", {}).get("Code") for entry in responses] == [
        *(None, "DuplicateItem"),
        *("ConditionalCheckFailed", "ValidationError"),
    ]
    reads = [
        {"Statement": "SELECT g FROM songs WHERE pk = 'p' AND sk = 1"},
        {"Statement": "SELECT g FROM songs WHERE pk = 'p'"},
    ]
    found = client.batch_execute_statement(Statements=reads)["Responses"]
    assert found[0] == {"Item": {"g": "g1"}, "TableName": "songs"}
    assert "must specify the primary key" in found[1]["Error"]["Message"]
    _, refused = call(url, "BatchExecuteStatement", {"Statements": [statements[0], reads[0]]})
    assert refused["message"].startswith("Read and write requests together")


def transact(url: str, *statements: str, **fields: Any) -> dict[str, Any]:
    body = {"TransactStatements": [{"Statement": text} for text in statements], **fields}
    return call(url, "ExecuteTransaction", body)[1]


def test_a_transaction_writes_all_or_nothing(url: str) -> None:
    insert = "INSERT INTO songs VALUE {'pk': 't', 'sk': 1}"
    exists = "EXISTS(SELECT * FROM songs WHERE pk = 'p' AND sk = 1 AND g = 'g1')"
    absent = "EXISTS(SELECT * FROM songs WHERE pk = 'p' AND sk = 1 AND g IS MISSING)"
    reasons = transact(url, insert, absent)["CancellationReasons"]
    assert [reason["Code"] for reason in reasons] == ["None", "ConditionalCheckFailed"]
    for _ in range(2):  # a repeated token has no effect
        assert transact(url, insert, exists, ClientRequestToken="once")["Responses"] == [{}, {}]
    assert transact(url, insert)["CancellationReasons"][0] == {
        "Code": "DuplicateItem",
        "Message": "Duplicate primary key exists in table",
    }
    select = "SELECT sk FROM songs WHERE pk = 't' AND sk = 1"
    none = "SELECT sk FROM songs WHERE pk = 't' AND sk = 2"
    assert transact(url, select, none)["Responses"] == [{"Item": {"sk": {"N": "1"}}}, {}]
    assert "read and write operations" in transact(url, select, insert)["message"]
    assert "multiple operations on one item" in transact(url, select, select)["message"]


WORDS = """
SELECT * FROM songs WHERE pk = 'p' AND OR NOT ( ) [ ] { } << >> , . : ? - 1 'x' "sk" IN BETWEEN IS
MISSING NULL ORDER BY DESC INSERT INTO VALUE UPDATE SET REMOVE DELETE RETURNING ALL OLD NEW n size
begins_with contains set_add list_append if_not_exists EXISTS true + <> >= ; "by-g" 1e400
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["", "SELECT * FROM songs WHERE ", "UPDATE songs SET ", "INSERT INTO songs "]),
    st.lists(st.sampled_from(WORDS.split()), max_size=14),
    st.text(max_size=3),
    st.sampled_from(["ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"]),
)
def test_no_statement_causes_a_server_error(
    url: str, start: str, words: list[str], noise: str, operation: str
) -> None:
    statement = {"Statement": start + " ".join(words) + noise}
    body = {
        "ExecuteStatement": statement,
        "BatchExecuteStatement": {"Statements": [statement]},
        "ExecuteTransaction": {"TransactStatements": [statement]},
    }[operation]
    status, response = call(url, operation, body)
    assert status in (200, 400), response
