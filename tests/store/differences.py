"""Where an emulator is not as today's DynamoDB, and cannot be made so.

`docs/differences.md` has one row for each of these.

A test that meets a difference must fail there, so that a difference which has been mended is
noticed as well. Where `features.py` can ask for it, the answer decides, on any service; otherwise
the name of the engine does.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.store.features import Features

LOCAL, MINISTACK = "local", "ministack"
OLD_JAR = "The jar is of 2020."
NOT_MODELLED = "Not modelled by this emulator."


@dataclass(frozen=True, slots=True)
class Difference:
    """What is different, on which engines of `conftest.py`, and which tests fail for it: all their cases or some."""

    engines: tuple[str, ...]
    what: str
    why: str
    tests: Mapping[str, tuple[str, ...]]
    feature: str | None = None

    def met(self, engine: str, able: Features) -> bool:
        """Whether the engine has this difference."""
        if self.feature is None:
            return engine in self.engines
        found = getattr(able, self.feature)
        return found < 100 if self.feature == "transaction_limit" else not found


ALL: tuple[str, ...] = ()

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (LOCAL,),
        "An empty string or binary is refused as a value.",
        f"{OLD_JAR} The service takes them since that year.",
        {"test_an_empty_string_or_binary_is_a_value_where_it_is_no_key": ALL},
        feature="empty_strings",
    ),
    Difference(
        (LOCAL,),
        "A transaction holds at most 10 items.",
        f"{OLD_JAR} The service raised the limit to 25 and then to 100.",
        {"test_100_writes_are_one_transaction": ALL},
        feature="transaction_limit",
    ),
    Difference(
        (LOCAL,),
        "A failed condition of a single write does not carry the item.",
        f"{OLD_JAR} The service can tell since 2023.",
        {
            "test_a_failed_condition_of_a_put_carries_the_item_that_stood_there": ALL,
            "test_a_failed_condition_of_an_update_carries_the_item_that_stood_there": ALL,
            "test_a_failed_condition_of_a_delete_carries_the_item_that_stood_there": ALL,
        },
        feature="failed_item_on_condition",
    ),
    Difference(
        (LOCAL, MINISTACK),
        "UPDATED_OLD and UPDATED_NEW return whole attributes, not only the nested parts that changed.",
        "A shortcut of both.",
        {"test_an_update_returns_only_the_parts_it_touched": ALL},
        feature="nested_updated_values",
    ),
    Difference(
        (LOCAL, MINISTACK),
        "An update that does not fit its item is not a reason of a cancelled transaction.",
        "Local raises the error as that of the whole request; ministack applies the rest.",
        {"test_an_update_that_does_not_fit_its_item_cancels_with_a_reason": ALL},
        feature="reasons_for_invalid_updates",
    ),
    Difference(
        (LOCAL, MINISTACK),
        "An update that only takes away makes an item of its key where there was none; the service makes nothing.",
        "A shortcut of both.",
        {"test_an_update_that_only_takes_away_makes_no_item": ALL},
    ),
    Difference(
        (LOCAL,),
        "An update may give an attribute of an index a type, a length or an emptiness that the index's key cannot have.",
        "Local checks index keys of puts only.",
        {"test_an_update_that_makes_a_bad_index_key_is_refused": ALL},
    ),
    Difference(
        (LOCAL,),
        "IN takes 99 options, not 100.",
        "Local counts the operand on its left as well.",
        {
            "test_a_write_happens_if_its_condition_holds_and_only_then": ("in 100 options",),
            "test_a_filter_lets_through_what_its_condition_holds_of": ("in 100 options",),
        },
    ),
    Difference(
        (LOCAL,),
        "begins_with on a binary sort key of bytes 0xFF finds keys of 0xFE as well.",
        "An error in the jar's upper bound.",
        {"test_begins_with_finds_binaries_even_of_the_highest_bytes": ALL},
    ),
    Difference(
        (LOCAL,),
        "begins_with on a string sort key of an index takes small and capital letters for one.",
        "The jar's own SQLite does.",
        {"test_begins_with_in_an_index_tells_small_letters_from_capitals": ALL},
    ),
    Difference(
        (LOCAL,),
        "A write costs a global index that the item had half a key of before, and the other half after.",
        "An error in the jar.",
        {"test_an_index_that_never_had_the_whole_key_costs_nothing": ALL},
    ),
    Difference(
        (LOCAL,),
        "A query without a result costs nothing; the service bills the least that a read can cost.",
        OLD_JAR,
        {"test_an_empty_query_costs_the_least": ALL},
    ),
    Difference(
        (LOCAL,),
        "A transaction is billed at more than twice its writes, and one that is sent again under its token as writes.",
        OLD_JAR,
        {
            "test_a_transaction_costs_twice": ALL,
            "test_a_transaction_sent_again_under_its_token_costs_reads": ALL,
        },
    ),
    Difference(
        (LOCAL, MINISTACK),
        "What a filter leaves out does not count towards the 1 MB of a page.",
        "A shortcut of both.",
        {"test_the_1_mb_count_what_is_read_and_not_what_is_shown": ALL},
    ),
    Difference(
        (LOCAL, MINISTACK),
        "The filter of an index scan sees attributes that the index does not carry.",
        "Both filter the items of the table.",
        {"test_a_scan_of_an_index_takes_what_it_does_not_carry_for_missing": ALL},
    ),
    Difference(
        (MINISTACK,),
        "Capacity does not grow with the size of what is read or written, and every index counts for every write.",
        NOT_MODELLED,
        {
            "test_a_read_costs_a_unit_for_each_4_kb_and_half_if_eventual": (
                "4097 bytes",
                "8192 bytes",
                "8193 bytes",
                "409600 bytes",
            ),
            "test_a_write_costs_a_unit_for_each_kb": ("1025 bytes", "3072 bytes", "409600 bytes"),
            "test_a_write_costs_by_the_larger_of_before_and_after": ALL,
            "test_a_query_adds_up_what_it_read_before_it_rounds": ALL,
            "test_a_filter_saves_nothing": ALL,
            "test_an_index_query_costs_what_the_index_carries": ALL,
            "test_a_local_index_that_fetches_pays_for_every_item_it_fetches": ALL,
            "test_a_put_writes_every_index_that_the_item_is_in": ALL,
            "test_an_index_is_written_only_if_what_it_carries_changes": ALL,
            "test_an_index_that_never_had_the_whole_key_costs_nothing": ALL,
            "test_batches_cost_the_sum_of_their_parts": ALL,
            "test_a_transaction_costs_twice": ALL,
            "test_a_transaction_sent_again_under_its_token_costs_reads": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "Pages do not end at 1 MB, and a batch of reads not at 16 MB.",
        NOT_MODELLED,
        {
            "test_a_page_ends_at_1_mb": ALL,
            "test_a_batch_that_reads_more_than_16_mb_leaves_the_rest_unprocessed": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "A number is measured by how it is spelt, so an item full of numbers may be refused before it has 400 KB.",
        "It keeps numbers as text.",
        {"test_an_item_of_400_kb_fits_and_one_byte_more_does_not": ("numbers",)},
    ),
    Difference(
        (MINISTACK,),
        "Sums are rounded to 28 digits, and one of more than 38 is not refused.",
        "It adds with Python's default precision.",
        {
            "test_an_update_changes_what_it_names": ("plus to 38 digits",),
            "test_an_update_that_the_item_does_not_allow_is_refused_and_changes_nothing": (
                "plus to 39 digits",
                "add to 39 digits",
            ),
        },
    ),
    Difference(
        (MINISTACK,),
        "What is set past the end of a list leaves a gap of nulls, and several removals shift each other.",
        "It changes a list step by step.",
        {
            "test_an_update_changes_what_it_names": (
                "set past the end appends",
                "what is set past the end is in the order of positions",
                "several removals count positions in the list as it was",
                "removal and set in one list count positions as it was",
            ),
            "test_what_was_appended_past_the_end_is_not_among_the_updated_parts": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "An update along a path that leads nowhere, or with an operand of the wrong type, is passed over in places.",
        NOT_MODELLED,
        {
            "test_an_update_that_the_item_does_not_allow_is_refused_and_changes_nothing": (
                "set by position in a map",
                "remove behind a missing map",
                "remove inside a scalar",
                "remove by name in a list",
                "add behind a missing map",
                "discard behind a missing map",
                "plus a string",
                "if absent, and the other is missing while the first is there",
                "join a string",
            ),
            "test_nesting_deeper_than_32_levels_by_an_update_is_refused": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "A right side of an update cannot read a key attribute.",
        "It takes the key's name anywhere for an attempt to change it.",
        {
            "test_a_right_side_may_read_the_key": ALL,
            "test_a_right_side_may_read_the_key_of_an_item_in_the_making": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "Some conditions on missing fields, binaries, sizes and prefixes of another type are judged otherwise.",
        NOT_MODELLED,
        dict.fromkeys(
            (
                "test_a_write_happens_if_its_condition_holds_and_only_then",
                "test_a_filter_lets_through_what_its_condition_holds_of",
            ),
            (
                "a missing field differs from another missing one",
                "not begins with another type",
                "a part of a binary",
                "a number has no size",
                "a truth value has no size",
            ),
        ),
    ),
    Difference(
        (MINISTACK,),
        "An update may give an index key too many bytes, and an empty one is refused as a bad request in general.",
        NOT_MODELLED,
        {"test_an_update_that_makes_a_bad_index_key_is_refused": ("empty", "too long")},
    ),
    Difference(
        (MINISTACK,),
        "An update that makes an item too large does not cancel a transaction.",
        NOT_MODELLED,
        {"test_an_update_that_makes_its_item_too_large_cancels_with_a_reason": ALL},
    ),
    Difference(
        (MINISTACK,),
        "A local index does not fetch attributes that it does not carry.",
        NOT_MODELLED,
        {"test_a_local_index_fetches_what_it_does_not_carry": ALL},
    ),
    Difference(
        (MINISTACK,),
        "The page key of an index scan lacks the key of the index.",
        "It pages through the table.",
        {"test_a_scan_of_an_index_finds_only_what_is_in_it": ALL},
    ),
)


def expected_to_fail(test: str, case: str, engine: str, able: Features) -> str | None:
    """Why this case of this test must fail on this engine, or None if it must pass."""
    for difference in DIFFERENCES:
        cases = difference.tests.get(test)
        if cases is not None and (not cases or case in cases) and difference.met(engine, able):
            return difference.what
    return None
