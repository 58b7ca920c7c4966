"""Raw requests of every kind, valid and invalid, to compare the served store with emulators."""

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

Body: TypeAlias = dict[str, Any]
Request: TypeAlias = tuple[str, Body]
KEY = {"pk": {"S": "a"}}
ONE = {":v": {"N": "1"}}
PARTITION = {":p": {"S": "p"}}
PARTITION_AND_SORT = {**PARTITION, ":s": {"N": "2"}}
TYPED: dict[str, Body] = {
    ":s": {"S": "x"},
    ":n": {"N": "1"},
    ":b": {"B": "YQ=="},
    ":bool": {"BOOL": True},
    ":null": {"NULL": True},
    ":l": {"L": []},
    ":m": {"M": {}},
    ":ss": {"SS": ["a"]},
    ":ns": {"NS": ["1"]},
    ":bs": {"BS": ["YQ=="]},
}
ITEM = {
    "pk": {"S": "a"},
    "n": {"N": "5"},
    "s": {"S": "hello"},
    "l": {"L": [{"N": "1"}, {"S": "x"}, {"M": {"k": {"N": "1"}}}]},
    "m": {"M": {"x": {"N": "1"}, "y": {"L": [{"N": "1"}, {"N": "2"}]}}},
    "ss": {"SS": ["a", "b"]},
    "ns": {"NS": ["1", "2"]},
}


def schema(*names: str) -> list[Body]:
    """Return the key schema of these attributes."""
    kinds = ("HASH", "RANGE", "RANGE")
    return [
        {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, kinds, strict=False)
    ]


def definitions(types: str) -> list[Body]:
    """Return attribute definitions: `pk:S sk:N`."""
    pairs = [part.split(":") for part in types.split()]
    return [{"AttributeName": name, "AttributeType": kind} for name, kind in pairs]


def index(name: str, *names: str, kind: str = "ALL") -> Body:
    """Return the definition of an index."""
    projection = {"ProjectionType": kind}
    return {"IndexName": name, "KeySchema": schema(*names), "Projection": projection}


def table(name: str, types: str, *names: str, **fields: Any) -> Request:
    body = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": schema(*names),
        "AttributeDefinitions": definitions(types),
        **fields,
    }
    return "CreateTable", {field: value for field, value in body.items() if value is not None}


def setup() -> Iterator[Request]:
    """Yield the requests that create the tables and items."""
    yield table("plain", "pk:S", "pk")
    yield table(
        "indexed",
        "pk:S sk:N g:S h:N",
        *("pk", "sk"),
        GlobalSecondaryIndexes=[index("global", "g"), index("keys", "g", "h", kind="KEYS_ONLY")],
        LocalSecondaryIndexes=[index("local", "pk", "h", kind="KEYS_ONLY")],
    )
    yield "PutItem", {"TableName": "plain", "Item": ITEM}
    for number in range(6):
        numbers = {name: {"N": str(number)} for name in ("sk", "h", "v")}
        item = {"pk": {"S": "p"}, "g": {"S": f"g{number % 2}"}, **numbers}
        yield "PutItem", {"TableName": "indexed", "Item": item}


def names_and_options() -> Iterator[Request]:
    for operation in ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Scan"):
        content = {"PutItem": {"Item": KEY}, "Scan": {}}.get(operation, {"Key": KEY})
        name: Any
        for name in (None, "", "a;b", "absent", 5, True, ["x"], {}):
            yield operation, {"TableName": name, **content}
        yield operation, {"TableName": "plain", "ReturnConsumedCapacity": "X", **content}
    for value in ("ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW", "NONE", "X"):
        body = {"TableName": "plain", "ReturnValues": value}
        yield "PutItem", {**body, "Item": {"pk": {"S": "r"}}}
        yield "DeleteItem", {**body, "Key": {"pk": {"S": "r"}}}


NUMBERS = """
x 1e -- NaN Infinity 1e126 9.99e125 -1e126 1e-131 1e-130 00012 -0 1_0 1,0 0x10
11111111111111111111111111111111111111 111111111111111111111111111111111111111
"""


def values() -> Iterator[Request]:
    found: list[Any] = [{}, {"X": "1"}, {"S": "a", "N": "1"}, {"NULL": False}, {"M": {"a": {}}}]
    found += [{"SS": []}, {"NS": []}, {"BS": []}, {"SS": ["a", "a"]}, {"NS": ["1", "1.0"]}]
    found += [{"BS": ["YQ==", "YQ=="]}, {"L": [{}]}, {"L": [{"N": "x"}]}, {"N": ""}, {"S": ""}]
    found += [{"N": number} for number in NUMBERS.split()]
    for depth in (30, 31, 32, 40):
        nested: Body = {"S": "x"}
        for _ in range(depth):
            nested = {"L": [nested]}
        found.append(nested)
    for value in found:
        yield "PutItem", {"TableName": "plain", "Item": {"pk": {"S": "w"}, "v": value}}
        update = {"UpdateExpression": "SET v = :v", "ExpressionAttributeValues": {":v": value}}
        yield "UpdateItem", {"TableName": "plain", "Key": {"pk": {"S": "w"}}, **update}


def keys() -> Iterator[Request]:
    long = {"S": "a" * 2049}
    for key in ({}, {"pk": {"N": "1"}}, {"pk": {"S": ""}}, {"pk": long}, {"x": {"S": "a"}}):
        yield "PutItem", {"TableName": "plain", "Item": key}
        yield "GetItem", {"TableName": "plain", "Key": key}
        yield (
            "TransactWriteItems",
            {"TransactItems": [{"Put": {"TableName": "plain", "Item": key}}]},
        )
        yield "BatchGetItem", {"RequestItems": {"plain": {"Keys": [key]}}}
        yield "BatchWriteItem", {"RequestItems": {"plain": [{"DeleteRequest": {"Key": key}}]}}
    for changed in ({"g": {"N": "1"}}, {"g": {"S": ""}}, {"h": {"S": "x"}}, {"g": {"NULL": True}}):
        item = {"pk": {"S": "i"}, "sk": {"N": "1"}, **changed}
        yield "PutItem", {"TableName": "indexed", "Item": item}
    yield "PutItem", {"TableName": "plain", "Item": {"pk": {"S": "b"}, "v": {"S": "x" * 409_600}}}


CONDITIONS = """
|a|a =|a = b|a = :v|a = :x|a = :v AND|(a = :v|a = :v)|((a = :v))|NOT|a == :v|a != :v|foo(a)
size(a)|attribute_exists(:v)|attribute_exists(a, b)|size(a) > :v|size(size(a)) > :v|contains(a, a)
a IN ()|a IN :v|a BETWEEN :v AND :v|a BETWEEN :v|a = a|a.b = :v|a[0] = :v|a[-1] = :v|a[b] = :v
a. = :v|.a = :v|1a = :v|a-b = :v|#a = :v|name = :v|a.status = :v|a = 5|a = 'x'|a = :v; b
NOT NOT a = :v|if_not_exists(a, :v) = :v|a + :v = :v|(a) = :v|a[99999999999] = :v
attribute_exists(a) = :v
"""
UPDATES = """
|SET|SET a|SET a =|SET a = :v,|SET a = :v SET b = :v|SET a = :v REMOVE a|SET a.b = :v, a = :v
SET pk = :v|SET a = absent|SET a = n|SET n = n + :v|SET n = n + :v + :v|SET n = (n + :v)
SET n = -n|SET n = n * :v|SET a = list_append(l, l)|SET a = list_append(l, n)
SET a = list_append(l)|SET a = size(l)|SET a = foo(l)|SET a = if_not_exists(:v, l)
SET a = if_not_exists(a.b, :v)|REMOVE|REMOVE a b|REMOVE a, a|REMOVE pk|SET zz.y = :v|SET n.x = :v
SET n[0] = :v|SET l.x = :v|SET m[0] = :v|SET l[9] = :v|ADD a|ADD a n|ADD pk :v|ADD m.x :v|ADD s :v
ADD l :v|DELETE ss :v|DELETE ss|FOO a|SET name = :v|SET #a = :v|SET a = :none|SET s = s + :v
SET a = (:v)|SET a = ((:v))|SET a = list_append(if_not_exists(zz, l), l)
"""
TYPED_CONDITIONS = """
n < ?|n = ?|n BETWEEN ? AND ?|begins_with(s, ?)|contains(s, ?)|attribute_type(s, ?)|n IN (?)
s <> ?
"""
TYPED_UPDATES = """
SET n = n + ?|ADD n ?|DELETE ss ?|ADD new ?|SET l = list_append(l, ?)|SET x = if_not_exists(x, ?)
ADD ss ?
"""


def lines(text: str) -> list[str]:
    return text.strip("\n").replace("\n", "|").split("|")


def expressions() -> Iterator[Request]:
    plain: Body = {"TableName": "plain", "Key": {"pk": {"S": "none"}}}
    update: Body = {"TableName": "plain", "Key": KEY, "ReturnValues": "UPDATED_OLD"}
    for text, defined in product(lines(CONDITIONS), (None, ONE)):
        given = {} if defined is None else {"ExpressionAttributeValues": defined}
        yield "DeleteItem", {**plain, "ConditionExpression": text, **given}
    for text in lines(UPDATES):
        given = {"ExpressionAttributeValues": ONE} if ":v" in text else {}
        yield "UpdateItem", {**update, "UpdateExpression": text, **given}
    for (name, value), text in product(TYPED.items(), lines(TYPED_CONDITIONS)):
        given = {"ExpressionAttributeValues": {name: value}}
        yield "DeleteItem", {**plain, "ConditionExpression": text.replace("?", name), **given}
    for (name, value), text in product(TYPED.items(), lines(TYPED_UPDATES)):
        given = {"ExpressionAttributeValues": {name: value}}
        yield "UpdateItem", {**update, "UpdateExpression": text.replace("?", name), **given}
    for text in (
        "",
        "a",
        "a,",
        "a b",
        "a, a",
        "a.b, a",
        "a[0], a.b",
        "#a",
        "name",
        "size(a)",
        ":v",
    ):
        yield "GetItem", {"TableName": "plain", "Key": KEY, "ProjectionExpression": text}


KEY_CONDITIONS = """
pk = :p|pk = :p AND sk <> :s|pk = :p OR sk = :s|NOT pk = :p|pk > :p|sk = :s|pk = :p AND v = :s
pk = pk|pk = :p AND sk IN (:s)|pk = :p AND contains(sk, :s)|pk = :p AND sk BETWEEN :s AND :s
pk = :p AND :s > sk|pk.a = :p|(pk = :p) AND (sk = :s)|pk = :p AND sk = :s AND v = :s|pk = :s
pk = :p AND sk = :p|pk =
"""


def queries() -> Iterator[Request]:
    for text in lines(KEY_CONDITIONS):
        given = {name: value for name, value in PARTITION_AND_SORT.items() if name in text}
        condition = {"TableName": "indexed", "KeyConditionExpression": text}
        yield "Query", {**condition, "ExpressionAttributeValues": given or None}
    selects = ("ALL_ATTRIBUTES", "ALL_PROJECTED_ATTRIBUTES", "COUNT", "SPECIFIC_ATTRIBUTES", "X")
    for select, name in product(selects, (None, "global", "keys", "local")):
        partition = "g" if name in ("global", "keys") else "pk"
        body: Body = {
            "TableName": "indexed",
            "KeyConditionExpression": f"{partition} = :p",
            "ExpressionAttributeValues": PARTITION,
            "Select": select,
        }
        yield "Query", {**body, "IndexName": name}
        yield "Scan", {"TableName": "indexed", "IndexName": name, "Select": select}
    query = {
        "TableName": "indexed",
        "KeyConditionExpression": "pk = :p",
        "ExpressionAttributeValues": PARTITION,
    }
    start: Any
    for start in ({}, {"pk": {"S": "p"}}, {"pk": {"S": "p"}, "sk": {"S": "x"}}, {"pk": {}}, 5):
        yield "Query", {**query, "ExclusiveStartKey": start}
        yield "Scan", {"TableName": "indexed", "ExclusiveStartKey": start}
    for extra in (
        {"Limit": 0},
        {"IndexName": "none"},
        {"IndexName": "global", "ConsistentRead": True},
    ):
        yield "Query", {**query, **extra}
        yield "Scan", {"TableName": "indexed", **extra}
    for segment, total in ((0, None), (None, 2), (1, 1), (0, 0), (0, 1_000_001)):
        yield "Scan", {"TableName": "indexed", "Segment": segment, "TotalSegments": total}


OPERATORS = "EQ NE LT LE GT GE IN BETWEEN CONTAINS NOT_CONTAINS BEGINS_WITH NULL NOT_NULL"
OPERANDS: tuple[Any, ...] = (
    *(None, [], [{"N": "1"}], [{"S": "x"}], [{"N": "3"}, {"N": "1"}], [{"N": "1"}, {"N": "3"}]),
    *([{"N": "1"}, {"S": "a"}], [{"SS": ["a"]}], [{"BOOL": True}], [{"L": []}], [{"NULL": True}]),
)


def legacy() -> Iterator[Request]:
    for operator, operands in product(OPERATORS.split(), OPERANDS):
        condition = {"ComparisonOperator": operator, "AttributeValueList": operands}
        yield "Scan", {"TableName": "indexed", "ScanFilter": {"v": condition}}
        body = {"TableName": "plain", "Key": {"pk": {"S": "none"}}}
        yield "DeleteItem", {**body, "Expected": {"v": condition}}
    for action, value in product(("PUT", "ADD", "DELETE", None), (None, *TYPED.values())):
        updates = {"n": {"Action": action, "Value": value}}
        body = {"TableName": "plain", "Key": {"pk": {"S": "old"}}}
        yield "UpdateItem", {**body, "AttributeUpdates": updates}


def tables() -> Iterator[Request]:
    for types, names in (
        *(("pk:S", ("pk", "sk")), ("pk:S sk:S", ("pk",)), ("x:S", ("pk",)), ("pk:X", ("pk",))),
        *(("pk:S sk:S x:S", ("pk", "sk", "x")), ("pk:S", ("pk", "pk"))),
    ):
        yield table("new", types, *names)
    units = {"ReadCapacityUnits": 0, "WriteCapacityUnits": 1}
    yield table("new", "pk:S", "pk", BillingMode="PROVISIONED")
    yield table("new", "pk:S", "pk", BillingMode=None, ProvisionedThroughput=units)
    yield table("new", "pk:S", "pk", KeySchema=None)
    yield table("new", "pk:S", "pk", AttributeDefinitions=None)
    yield table("new", "pk:S", "pk", GlobalSecondaryIndexes=[])
    yield table("new", "pk:S", "pk", GlobalSecondaryIndexes=[index("none", "zz")])
    yield table("new", "pk:S h:S", "pk", LocalSecondaryIndexes=[index("none", "pk", "h")])
    yield table("plain", "pk:S", "pk")
    update: Body
    for update in (
        *({}, {"GlobalSecondaryIndexUpdates": []}, {"GlobalSecondaryIndexUpdates": [{}]}),
        {"GlobalSecondaryIndexUpdates": [{"Delete": {"IndexName": "none"}}]},
        {"GlobalSecondaryIndexUpdates": [{"Update": {"IndexName": "global"}}]},
    ):
        yield "UpdateTable", {"TableName": "indexed", **update}
    for name in (None, "ab", "absent"):
        yield "DescribeTable", {"TableName": name}
        yield "DeleteTable", {"TableName": name}
    for limit in (0, 1, 101):
        yield "ListTables", {"Limit": limit}


STATEMENTS = """
SELECT * FROM plain WHERE pk = 'a'|SELECT|SELECT * FROM|SELECT * FROM plain WHERE|FOO
DROP TABLE plain|SELECT * FROM absent WHERE pk = 'a'|SELECT * FROM "indexed"."none"
INSERT INTO plain VALUE {'pk': 'a'}|INSERT INTO plain VALUE {'n': 1}
INSERT INTO plain VALUE {'pk': ''}|UPDATE plain SET n = 1 WHERE n = 1
UPDATE plain SET n = 1 WHERE pk = 'none'|UPDATE plain SET n = 1 WHERE pk = 'a' AND n = 99
DELETE FROM plain WHERE n = 1|DELETE FROM plain WHERE pk = 'none'
DELETE FROM plain WHERE pk = 'a' AND n = 99
"""


def statements() -> Iterator[Request]:
    for text in lines(STATEMENTS):
        yield "ExecuteStatement", {"Statement": text}


def requests() -> list[Request]:
    """Return all requests, in order; members that are None are left out."""
    sources = (names_and_options, values, keys, expressions, queries, legacy, tables, statements)
    return [
        (operation, {name: value for name, value in body.items() if value is not None})
        for source in sources
        for operation, body in source()
    ]
