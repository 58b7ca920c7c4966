"""Cases of conditions, updates and projections, for `evaluate` and for every engine.

`ITEM` is the stored item. A condition is true or false for it, an update changes it or is rejected,
and a projection selects parts of it. Each case has a short description.
"""

from decimal import Decimal
from typing import Any

from tally.store.expressions import (
    Action,
    Condition,
    F,
    Path,
    exists,
    list_append,
    make_path,
    not_exists,
)

ITEM: dict[str, Any] = {
    "string": "xyz",
    "other": "xyza",
    "part": "yz",
    "accent": "é😀",
    "number": 5,
    "same": Decimal("5.0"),
    "less": Decimal("-1.5"),
    "binary": b"\x01\x02\xff",
    "yes": True,
    "nothing": None,
    "list": ["x", 1, {"x"}, {"k": "v"}, [2]],
    "map": {"k": "v", "n": 1, "l": [10, 20, 30], "inner": {"deep": "down"}},
    "strings": {"x", "y"},
    "numbers": {1, Decimal("2.5")},
    "binaries": {b"x", b"y"},
    "empty list": [],
    "a.b": "dotted",
    "size": 7,
}

HOLDS: dict[str, Condition] = {
    "equal strings": F("string") == "xyz",
    "equal numbers with different digits": F("number") == Decimal("5.00"),
    "two fields with one number": F("number") == F("same"),
    "equal binaries": F("binary") == b"\x01\x02\xff",
    "true is true": F("yes") == True,  # noqa: E712 - builds a condition
    "null is null": F("nothing") == None,  # noqa: E711 - builds a condition
    "lists equal by element": F("list") == ["x", 1, {"x"}, {"k": "v"}, [2]],
    "maps equal in any order": F("map")
    == {"n": 1, "k": "v", "inner": {"deep": "down"}, "l": [10, 20, 30]},
    "sets equal in any order": F("strings") == {"y", "x"},
    "number sets equal by number": F("numbers") == {Decimal("2.50"), 1},
    "different strings differ": F("string") != "abc",
    "different types differ": F("number") != "5",
    "a missing field differs from any value": F("gone") != 1,
    "a missing field differs from another missing one": F("gone") != F("gone too"),
    "a field differs from a missing one": F("string") != F("gone"),
    "true is not one": F("yes") != 1,
    "less": F("number") < 6,
    "less by a fraction": F("less") < Decimal("-1.4"),
    "less or equal": F("number") <= 5,
    "greater": F("number") > Decimal("4.999"),
    "greater or equal to a field": F("number") >= F("same"),
    "a longer string is greater": F("other") > F("string"),
    "strings by their bytes, so what is beyond the basic plane comes last": F("accent") > "é\uffff",
    "binaries as unsigned bytes": F("binary") > b"\x01\x02\x7f",
    "not less because missing": ~(F("gone") < 1),
    "not less because of another type": ~(F("string") < 1),
    "between, both ends included": F("number").between(5, 5),
    "between strings": F("string").between("x", "y"),
    "between fields": F("number").between(F("less"), F("same")),
    "not between bounds of another type": ~F("number").between("a", "z"),
    "in": F("number").is_in(1, "5", Decimal("5.0")),
    "in, by a field": F("number").is_in(9, F("same")),
    "in, of a whole list": F("empty list").is_in([1], []),
    "in 100 options": F("number").is_in(*range(100)),
    "present": exists("string"),
    "present as null": exists("nothing"),
    "present inside": exists("map", "inner", "deep"),
    "present in a list": exists("list", 4, 0),
    "absent": not_exists("gone"),
    "absent past the end": not_exists("list", 5),
    "absent inside a scalar": not_exists("string", "k"),
    "absent by position in a map": not_exists("map", 0),
    "absent by name in a list": not_exists("list", "k"),
    "a dot in a name": F("a.b") == "dotted",
    "no attribute behind a dot": not_exists("a", "b"),
    "a reserved word": F("size") == 7,
    "begins with": F("string").begins_with("xy"),
    "begins with itself": F("string").begins_with("xyz"),
    "begins with a field": F("other").begins_with(F("string")),
    "a binary begins with": F("binary").begins_with(b"\x01\x02"),
    "not begins with another type": ~F("string").begins_with(b"x"),
    "a part of a string": F("string").contains("yz"),
    "a part of a string, by a field": F("string").contains(F("part")),
    "a part of a binary": F("binary").contains(b"\x02\xff"),
    "an element of a list": F("list").contains(1),
    "a map in a list": F("list").contains({"k": "v"}),
    "a set in a list": F("list").contains({"x"}),
    "an element of a set": F("strings").contains("x"),
    "a number of a set": F("numbers").contains(Decimal("2.50")),
    "a binary of a set": F("binaries").contains(b"y"),
    "not a part of a number": ~F("number").contains(5),
    "not a name in a map": ~F("map").contains("k"),
    "not a set in a set": ~F("strings").contains({"x"}),
    "size of a string": F("string").size() == 3,
    "size of a string in UTF-16 units": F("accent").size() == 3,
    "size of a binary": F("binary").size() == 3,
    "size of a list": F("list").size() == 5,
    "size of an empty list": F("empty list").size() == 0,
    "size of a map": F("map").size() == 4,
    "size of a set": F("numbers").size() == 2,
    "size between": F("string").size().between(1, 3),
    "size in": F("string").size().is_in(1, 3),
    "two sizes": F("string").size() > F("part").size(),
    "a field against a size": F("number") == F("list").size(),
    "a number has no size": ~(F("number").size() >= 0),
    "a truth value has no size": ~(F("yes").size() >= 0),
    "nothing has no size": ~(F("gone").size() >= 0),
    "and": (F("number") == 5) & (F("yes") == True),  # noqa: E712 - builds a condition
    "or": (F("number") == 6) | (F("yes") == True),  # noqa: E712 - builds a condition
    "not": ~(F("number") == 6),
    "and binds what it joins": ~((F("number") == 5) & (F("number") == 6)),
    **{
        f"the type {kind}": F(name).type_is(kind)  # type: ignore[arg-type]
        for name, kind in (
            ("string", "S"),
            ("number", "N"),
            ("binary", "B"),
            ("yes", "BOOL"),
            ("nothing", "NULL"),
            ("list", "L"),
            ("map", "M"),
            ("strings", "SS"),
            ("numbers", "NS"),
            ("binaries", "BS"),
        )
    },
    "a missing field has no type": ~F("gone").type_is("S"),
}

# What an update makes of ITEM: the attributes that change, `...` for one that goes.
UPDATES: dict[str, tuple[tuple[Action, ...], dict[str, Any]]] = {
    "set": ((F("string").set("new"),), {"string": "new"}),
    "set what was not there": ((F("new").set([1]),), {"new": [1]}),
    "set another type": ((F("number").set("five"),), {"number": "five"}),
    "set inside a map": ((F("map", "k").set("w"),), {"map": ITEM["map"] | {"k": "w"}}),
    "set a new name inside a map": (
        (F("map", "fresh").set(1),),
        {"map": ITEM["map"] | {"fresh": 1}},
    ),
    "set deep": (
        (F("map", "inner", "deep").set(1),),
        {"map": ITEM["map"] | {"inner": {"deep": 1}}},
    ),
    "set in a list": ((F("map", "l", 1).set("b"),), {"map": ITEM["map"] | {"l": [10, "b", 30]}}),
    "set past the end appends": (
        (F("map", "l", 9).set("b"),),
        {"map": ITEM["map"] | {"l": [10, 20, 30, "b"]}},
    ),
    "what is set past the end is in the order of positions": (
        (F("map", "l", 9).set("nine"), F("map", "l", 5).set("five")),
        {"map": ITEM["map"] | {"l": [10, 20, 30, "five", "nine"]}},
    ),
    "set to another field": ((F("string").set(F("map", "k")),), {"string": "v"}),
    "set to the key-like whole": ((F("string").set(F("map")),), {"string": ITEM["map"]}),
    "plus": ((F("number").set(F("number") + 2),), {"number": 7}),
    "minus": ((F("number").set(F("number") - Decimal("7.25")),), {"number": Decimal("-2.25")}),
    "plus of two fields": ((F("number").set(F("number") + F("less")),), {"number": Decimal("3.5")}),
    "plus inside": ((F("map", "n").set(F("map", "n") + 1),), {"map": ITEM["map"] | {"n": 2}}),
    "plus to 38 digits": (
        (F("number").set(F("number") + Decimal("1E-37")),),
        {"number": Decimal("5.0000000000000000000000000000000000001")},
    ),
    "if absent keeps what is there": (
        (F("number").set(F("number").if_not_exists(0)),),
        {"number": 5},
    ),
    "if absent takes the other": ((F("new").set(F("new").if_not_exists(0)),), {"new": 0}),
    "if absent takes another field": (
        (F("new").set(F("new").if_not_exists(F("number"))),),
        {"new": 5},
    ),
    "if absent, twice": (
        (F("new").set(F("gone").if_not_exists(F("gone too").if_not_exists(7))),),
        {"new": 7},
    ),
    "if absent and plus": ((F("new").set(F("new").if_not_exists(10) + 1),), {"new": 11}),
    "join": (
        (F("empty list").set(F("empty list").list_append([1, "x"])),),
        {"empty list": [1, "x"]},
    ),
    "join in front": ((F("list").set(list_append([0], F("list"))),), {"list": [0, *ITEM["list"]]}),
    "join or begin": ((F("new").set(list_append(F("new").if_not_exists([]), [1])),), {"new": [1]}),
    "every right side sees the item as it was": (
        (F("string").set(F("part")), F("part").set(F("string"))),
        {"string": "yz", "part": "xyz"},
    ),
    "a right side sees what another step takes away": (
        (F("new").set(F("number")), F("number").remove()),
        {"new": 5, "number": ...},
    ),
    "remove": ((F("string").remove(),), {"string": ...}),
    "remove what is not there": ((F("gone").remove(),), {}),
    "remove inside a map": (
        (F("map", "inner", "deep").remove(),),
        {"map": ITEM["map"] | {"inner": {}}},
    ),
    "remove from a list": ((F("map", "l", 0).remove(),), {"map": ITEM["map"] | {"l": [20, 30]}}),
    "remove past the end": ((F("map", "l", 3).remove(),), {}),
    "several removals count positions in the list as it was": (
        (F("map", "l", 0).remove(), F("map", "l", 2).remove()),
        {"map": ITEM["map"] | {"l": [20]}},
    ),
    "removal and set in one list count positions as it was": (
        (F("map", "l", 0).remove(), F("map", "l", 1).set("b"), F("map", "l", 7).set("end")),
        {"map": ITEM["map"] | {"l": ["b", 30, "end"]}},
    ),
    "add to a number": ((F("number").add(Decimal("0.5")),), {"number": Decimal("5.5")}),
    "add a negative": ((F("number").add(-6),), {"number": -1}),
    "add to a missing number": ((F("new").add(3),), {"new": 3}),
    "add inside": ((F("map", "n").add(3),), {"map": ITEM["map"] | {"n": 4}}),
    "add a new name inside": ((F("map", "fresh").add(3),), {"map": ITEM["map"] | {"fresh": 3}}),
    "add to a set": ((F("strings").add({"y", "z"}),), {"strings": {"x", "y", "z"}}),
    "add to a set of numbers": (
        (F("numbers").add({Decimal("2.50"), 3}),),
        {"numbers": {1, Decimal("2.5"), 3}},
    ),
    "add to a missing set": ((F("new").add({b"q"}),), {"new": {b"q"}}),
    "discard": ((F("strings").discard({"x", "q"}),), {"strings": {"y"}}),
    "discard the last element and the set goes": (
        (F("strings").discard({"x", "y"}),),
        {"strings": ...},
    ),
    "discard from nothing": ((F("gone").discard({"x"}),), {}),
    "all four kinds in one update": (
        (
            F("string").set("new"),
            F("number").add(1),
            F("other").remove(),
            F("strings").discard({"x"}),
        ),
        {"string": "new", "number": 6, "other": ..., "strings": {"y"}},
    ),
}

# Updates that fail only on certain items, and words of the error.
IMPOSSIBLE: dict[str, tuple[Action, ...]] = {
    "set behind a missing map": (F("gone", "k").set(1),),
    "set behind a missing inner map": (F("map", "gone", "k").set(1),),
    "set inside a scalar": (F("string", "k").set(1),),
    "set by name in a list": (F("list", "k").set(1),),
    "set by position in a map": (F("map", 0).set(1),),
    "set by position in what is missing": (F("gone", 0).set(1),),
    "remove behind a missing map": (F("gone", "k").remove(),),
    "remove inside a scalar": (F("string", "k").remove(),),
    "remove by name in a list": (F("list", "k").remove(),),
    "add behind a missing map": (F("gone", "k").add(1),),
    "discard behind a missing map": (F("gone", "k").discard({1}),),
    "set to a missing field": (F("new").set(F("gone")),),
    "plus a missing field": (F("number").set(F("number") + F("gone")),),
    "plus a string": (F("number").set(F("number") + F("string")),),
    "if absent, and the other is missing too": (
        F("new").set(F("gone").if_not_exists(F("gone too"))),
    ),
    "if absent, and the other is missing while the first is there": (
        F("new").set(F("number").if_not_exists(F("gone"))),
    ),
    "join a string": (F("list").set(F("list").list_append(F("string"))),),
    "join a missing list": (F("list").set(F("gone").list_append([1])),),
    "add a number to a string": (F("string").add(1),),
    "add a number to a set": (F("numbers").add(1),),
    "add a set to a number": (F("number").add({1}),),
    "add strings to numbers": (F("numbers").add({"x"}),),
    "discard from a string": (F("string").discard({"x"}),),
    "discard numbers from strings": (F("strings").discard({1}),),
    "plus to 39 digits": (F("number").set(F("number") + Decimal("1E-38")),),
    "add to 39 digits": (F("number").add(Decimal("1E-38")),),
}

PROJECTIONS: dict[str, tuple[tuple[Path, ...], dict[str, Any]]] = {
    "one attribute": ((make_path("string"),), {"string": "xyz"}),
    "several": ((make_path("string"), make_path("number")), {"string": "xyz", "number": 5}),
    "one that is missing": ((make_path("string"), make_path("gone")), {"string": "xyz"}),
    "inside a map": ((make_path("map", "k"),), {"map": {"k": "v"}}),
    "two inside a map": (
        (make_path("map", "k"), make_path("map", "inner", "deep")),
        {"map": {"k": "v", "inner": {"deep": "down"}}},
    ),
    "an element of a list": ((make_path("list", 1),), {"list": [1]}),
    "elements of a list stand together in their order": (
        (make_path("map", "l", 2), make_path("map", "l", 0)),
        {"map": {"l": [10, 30]}},
    ),
    "an element past the end": ((make_path("list", 9), make_path("string")), {"string": "xyz"}),
    "inside a map in a list": ((make_path("list", 3, "k"),), {"list": [{"k": "v"}]}),
    "by name in a list": ((make_path("list", "k"), make_path("string")), {"string": "xyz"}),
    "by position in a map": ((make_path("map", 0), make_path("string")), {"string": "xyz"}),
    "a dot in a name": ((make_path("a.b"),), {"a.b": "dotted"}),
    "nothing that is there": ((make_path("gone"),), {}),
}


def after(changes: dict[str, Any]) -> dict[str, Any]:
    """ITEM with the changes of a case in UPDATES."""
    return {name: value for name, value in (ITEM | changes).items() if value is not ...}
