"""Expression strings become the store's trees, and errors have DynamoDB's wording."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.store.encode import Placeholders, item_from_wire
from tally.store.errors import InvalidExpression
from tally.store.expressions import (
    Action,
    Add,
    And,
    BeginsWith,
    Compare,
    Condition,
    Contains,
    Discard,
    F,
    IfAbsent,
    Literal,
    Not,
    Or,
    Path,
    Remove,
    Set,
    Size,
    TypeIs,
    exists,
    list_append,
    not_exists,
)
from tally.store.parse import ExpressionError, Substitutions
from tally.store.schema import S, Table
from tally.store.validate_expressions import check_actions, check_condition
from tests.store.strategies import conditions, paths, updates

TABLE = Table("parsed", partition=S("the-key"))
VALUES: dict[str, Any] = {":s": "x", ":n": 1, ":zero": 0, ":l": [], ":ss": {"x"}, ":t": "SS"}
A, B = F("a"), F("b")


def substitutions(placeholders: Placeholders) -> Substitutions:
    fields = placeholders.fields()
    return Substitutions(
        fields.get("ExpressionAttributeNames"),
        item_from_wire(fields.get("ExpressionAttributeValues", {})),
    )


def left_associative(tree: Condition) -> Condition:
    """The same condition with chains of AND and OR grouped from the left, as strings are read."""
    if isinstance(tree, Not):
        return Not(left_associative(tree.inner))
    if not isinstance(tree, And | Or):
        return tree
    kind = type(tree)
    members = [left_associative(member) for member in _members(tree, kind)]
    joined = members[0]
    for member in members[1:]:
        joined = kind(joined, member)
    return joined


def _members(tree: Condition, kind: type[And | Or]) -> list[Condition]:
    if not isinstance(tree, kind):
        return [tree]
    return [*_members(tree.left, kind), *_members(tree.right, kind)]


@given(conditions())
def test_an_encoded_condition_is_parsed_to_the_same_tree(tree: Condition) -> None:
    placeholders = Placeholders()
    text = placeholders.condition(tree)
    request = substitutions(placeholders)
    try:
        check_condition(tree)
    except InvalidExpression:
        with pytest.raises(ExpressionError):
            request.condition("ConditionExpression", text)
        return
    assert request.condition("ConditionExpression", text) == left_associative(tree)
    request.check_all_used()


@given(updates())
def test_an_encoded_update_is_parsed_to_the_same_actions(actions: tuple[Action, ...]) -> None:
    placeholders = Placeholders()
    text = placeholders.update(actions)
    request = substitutions(placeholders)
    try:
        check_actions(TABLE, actions)
    except InvalidExpression:
        with pytest.raises(ExpressionError):
            request.update(text)
        return
    order = list(dict.fromkeys(type(action) for action in actions))
    expected = sorted(actions, key=lambda action: order.index(type(action)))
    assert request.update(text) == tuple(expected)
    request.check_all_used()


@given(st.lists(paths(), min_size=1, max_size=4))
def test_an_encoded_projection_is_parsed_to_the_same_paths(drawn: list[Path]) -> None:
    unique = tuple({path.parts[0]: path for path in drawn}.values())
    placeholders = Placeholders()
    text = placeholders.projection(unique)
    assert substitutions(placeholders).projection(text) == unique


FRAGMENTS = """
a b #x #y :s :n :l :ss = <> < <= ( ) [ ] 0 01 99999999999 . , + - AND or NOT BETWEEN IN SET remove
ADD DELETE size( contains( begins_with( attribute_type( attribute_exists( if_not_exists(
list_append( foo( status "x" é \ud800 _
"""
TOKENS = st.sampled_from(FRAGMENTS.split())


@given(st.one_of(st.lists(TOKENS, max_size=25).map(" ".join), st.text(max_size=60)))
def test_any_text_is_parsed_or_rejected_with_an_expression_error(text: str) -> None:
    request = Substitutions({"#x": "x"}, VALUES)
    for parse in (
        lambda: request.condition("FilterExpression", text),
        lambda: request.key_condition(text),
        lambda: request.update(text),
        lambda: request.projection(text),
    ):
        try:
            parse()
        except ExpressionError as error:
            assert str(error)  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 1000 + "a = :s",
        "(" * 4000,
        "(a = :s OR " * 300 + "a = :s",
        "size(" * 800,
        "SET a = " + "if_not_exists(a, " * 200,
    ],
)
def test_deep_nesting_is_rejected_without_exhausting_the_stack(text: str) -> None:
    request = Substitutions({}, VALUES)
    for parse in (lambda: request.condition("F", text), lambda: request.update(text)):
        with pytest.raises(ExpressionError):
            parse()


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = :s or b = :s and not b < :n", (A == "x") | ((B == "x") & ~(B < 1))),
        ("(a = :s OR b = :s) AND a <> :n", ((A == "x") | (B == "x")) & (A != 1)),
        ("(a) = (:s)", A == "x"),
        ("((a = :s) AND (b = :s))", (A == "x") & (B == "x")),
        ("((a = :s OR b = :s) AND (a <> :n))", ((A == "x") | (B == "x")) & (A != 1)),
        ("a\t=\r\n:s", A == "x"),
        ("a [0] . b = :s", F("a", 0, "b") == "x"),
        ("#x.y[1] >= :n", F("z z", "y", 1) >= 1),
        ("a between :zero and :n", A.between(0, 1)),
        ("a in (:s, :n)", A.is_in("x", 1)),
        ("attribute_exists(a) AND attribute_not_exists(b)", exists("a") & not_exists("b")),
        ("size(:s) = :n", Compare("=", Size(Literal("x")), Literal(1))),
        ("begins_with(:s, :s)", BeginsWith(Literal("x"), Literal("x"))),
        ("contains(:s, a)", Contains(Literal("x"), Path(("a",)))),
        ("attribute_type(a, :t)", TypeIs(Path(("a",)), "SS")),
    ],
)
def test_conditions_follow_the_grammar(text: str, tree: Condition) -> None:
    assert Substitutions({"#x": "z z"}, VALUES).condition("ConditionExpression", text) == tree


def test_updates_follow_the_grammar() -> None:
    text = (
        "set a = (b + :n), #x[0] = if_not_exists(c, :n) - :n, d = list_append(if_not_exists(d, :l),"
        " :l) remove e, f.g ADD h :n, i :ss DELETE j :ss"
    )
    assert Substitutions({"#x": "x"}, VALUES).update(text) == (
        A.set(B + 1),
        F("x", 0).set(F("c").if_not_exists(1) - 1),
        F("d").set(list_append(F("d").if_not_exists([]), [])),
        Remove(Path(("e",))),
        Remove(Path(("f", "g"))),
        Add(Path(("h",)), Literal(1)),
        Add(Path(("i",)), Literal({"x"})),
        Discard(Path(("j",)), Literal({"x"})),
    )
    text = "SET a = ((b) + (:n)), d = list_append((d), (if_not_exists(e, :l)))"
    assert Substitutions({}, VALUES).update(text) == (
        A.set(B + 1),
        F("d").set(list_append(F("d"), F("e").if_not_exists([]))),
    )
    nested = Substitutions({}, VALUES).update("SET a = if_not_exists(a, if_not_exists(b, :n))")
    inner = IfAbsent(Path(("b",)), Literal(1))
    assert nested == (Set(Path(("a",)), IfAbsent(Path(("a",)), inner)),)


def test_a_key_condition_may_name_the_value_first() -> None:
    parsed = Substitutions({}, VALUES).key_condition(":s = a AND (:n < b)")
    assert parsed == (A == "x") & (B > 1)


REPEATED = "The first operand must be distinct from the remaining operands for this operator or"
MISUSED = "The function is not allowed to be used this way in an expression; function: "
COUNT = "Incorrect number of operands for operator or function; operator or function: "
UNORDERED = (
    "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower"
    " bound operand: AttributeValue: {N:1}, upper bound operand: AttributeValue: {N:0}"
)
TYPE = "Incorrect operand type for operator or function; operator or function: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The expression can not be empty;"),
        (" ", 'Syntax error; token: "<EOF>", near: " "'),
        ("a = = :s", 'Syntax error; token: "=", near: "= = :s"'),
        ("a =", 'Syntax error; token: "<EOF>", near: "="'),
        ("(a = :s", 'Syntax error; token: "<EOF>", near: ":s"'),
        ("a = :s)", 'Syntax error; token: ")", near: ":s)"'),
        ("a = 5", 'Syntax error; token: "5", near: "= 5"'),
        ("a[x] = :s", 'Syntax error; token: "x", near: "[x]"'),
        ('a = "x"', 'Syntax error; token: ""x"", near: "= "x""'),
        ("_a = :s", 'Syntax error; token: "_", near: "_a"'),
        ("between = :s", 'Syntax error; token: "between", near: "between ="'),
        ("NOT a", 'Syntax error; token: "<EOF>", near: "a"'),
        ("remove = :s", 'Syntax error; token: "remove", near: "remove ="'),
        ("a\u00a0= :s", 'Syntax error; token: "\u00a0", near: "a\u00a0="'),
        (
            "a = :s" + " " * 5000,
            "Expression size has exceeded the maximum allowed size; expression",
        ),
        ("((a = :s))", "The expression has redundant parentheses;"),
        ("a = :s AND ((b = :s)) AND c = :s", "The expression has redundant parentheses;"),
        ("Status = :s", "Attribute name is a reserved keyword; reserved keyword: Status"),
        ("#x = :s", "An expression attribute name used in the document path is not defined; "),
        ("a = :x", "An expression attribute value used in expression is not defined; attribute"),
        ("foo(a)", "Invalid function name; function: foo"),
        ("a = :s AND foo(a) AND", 'Syntax error; token: "<EOF>", near: "AND"'),
        ("attribute_exists(a, b)", COUNT + "attribute_exists, number of operands: 2"),
        ("attribute_exists(:s)", "Operator or function requires a document path; operator or"),
        ("attribute_type(a, :s)", "Invalid attribute type name found; type: x, valid types: {B,"),
        ("begins_with(a, :n)", TYPE + "begins_with, operand type: N"),
        ("begins_with(a, size(a))", TYPE + "begins_with, operand type: N"),
        ("size(:n) = :n", TYPE + "size, operand type: N"),
        ("a < :l", TYPE + "<, operand type: L"),
        ("a = a", REPEATED + " function; operator: =, first operand: [a]"),
        ("a.b[0] = a.b[0]", REPEATED + " function; operator: =, first operand: [a, b, [0]]"),
        ("a = attribute_exists(a)", MISUSED + "attribute_exists"),
        ("contains(a, :s) = :s", MISUSED + "contains"),
        ("size(a)", MISUSED + "size"),
        ("a[99999999999] = :s", "List index is not within the allowable range; index: [99999"),
        ("a" + ".b" * 32 + " = :s", "The document path has too many nesting levels; nesting"),
        ("a BETWEEN :n AND :zero", UNORDERED),
    ],
)
def test_an_invalid_condition_has_the_message_of_the_service(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Substitutions({}, VALUES).condition("ConditionExpression", text)
    assert str(caught.value).startswith(f"Invalid ConditionExpression: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET a = :s SET b = :s", 'The "SET" section can only be used once in an update express'),
        ("a = :s", 'Syntax error; token: "a", near: "a ="'),
        ("SET a = b - c - :n", 'Syntax error; token: "-", near: "c - :n"'),
        ("SET a = (b + :n) + :n", 'Syntax error; token: "+", near: ") + :n"'),
        ("SET a = b + ((:n))", "The expression has redundant parentheses;"),
        ("ADD a b", 'Syntax error; token: "b", near: "a b"'),
        ("SET a = :s REMOVE a", "Two document paths overlap with each other; must remove or rewr"),
        ("SET a.b = :s, a[0] = :s", "Two document paths conflict with each other; must remove or"),
        ("SET a = :s + :n", TYPE + "+, operand type: S"),
        ("SET a = list_append(a, :n)", TYPE + "list_append, operand type: N"),
        ("SET a = list_append(a)", COUNT + "list_append, number of operands: 1"),
        ("SET a = if_not_exists(:s, :n)", "Operator or function requires a document path; opera"),
        ("SET a = if_not_exists(a, a)", REPEATED + " function; operator: if_not_exists, first"),
        ("SET a = size(a)", "The function is not allowed in an update expression; function: size"),
        ("SET a = if_not_exists(a, list_append(b, :l))", MISUSED + "list_append"),
        ("SET a = b - list_append(a, :l)", MISUSED + "list_append"),
        ("ADD a :s", "Incorrect operand type for operator or function; operator: ADD, operand ty"),
        ("DELETE a :n", "Incorrect operand type for operator or function; operator: DELETE, oper"),
    ],
)
def test_an_invalid_update_has_the_message_of_the_service(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Substitutions({}, VALUES).update(text)
    assert str(caught.value).startswith(f"Invalid UpdateExpression: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = :s OR b = :n", "Invalid operator used in KeyConditionExpression: OR"),
        ("a = :s AND NOT b = :n", "Invalid operator used in KeyConditionExpression: NOT"),
        ("a <> :s", "Invalid operator used in KeyConditionExpression: <>"),
        ("contains(a, :s)", "Invalid operator used in KeyConditionExpression: contains"),
        ("size(a) = :n", "KeyConditionExpressions cannot contain nested operations"),
        ("a.b = :s", "Invalid KeyConditionExpression: KeyConditionExpressions cannot have cond"),
        (":s = :s", "Invalid condition in KeyConditionExpression: No key attribute specified"),
        ("a = b", "Invalid condition in KeyConditionExpression: Multiple attribute names used in"),
        ("begins_with(:s, a)", "Invalid condition in KeyConditionExpression: begins_with operat"),
        ("begins_with(a, :n)", "Invalid KeyConditionExpression: Incorrect operand type"),
    ],
)
def test_an_invalid_key_condition_has_the_message_of_the_service(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Substitutions({}, VALUES).key_condition(text)
    assert str(caught.value).startswith(message)


def test_names_and_values_that_no_expression_uses_are_rejected() -> None:
    request = Substitutions({"#a": "a"}, {":v": 1, ":w": 2})
    request.condition("ConditionExpression", "#a = :v")
    with pytest.raises(ExpressionError) as caught:
        request.check_all_used()
    assert str(caught.value) == (
        "Value provided in ExpressionAttributeValues unused in expressions: keys: {:w}"
    )
    request.update("SET #a = :w")
    request.check_all_used()
