"""Known differences of the emulators from the current DynamoDB service.

`docs/differences.md` has one row for each. A test that meets a difference must fail, so that a
fixed difference is noticed too. `features.py` probes a service for some differences; the others
depend on the name of the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.store.features import Features

LOCAL, MINISTACK, DYNOXIDE = "local", "ministack", "dynoxide"
OLD_JAR = "The jar dates from 2020."
NOT_MODELLED = "Not modelled by this emulator."


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference, the engines of `conftest.py` that have it, and the tests or cases that fail."""

    engines: tuple[str, ...]
    description: str
    reason: str
    tests: Mapping[str, tuple[str, ...]]
    feature: str | None = None

    def applies_to(self, engine: str, features: Features) -> bool:
        """Whether the engine has this difference."""
        if self.feature is None:
            return engine in self.engines
        value = getattr(features, self.feature)
        return value < 100 if self.feature == "transaction_limit" else not value


ALL: tuple[str, ...] = ()
VERDICT = "test_a_request_gets_the_verdict_of_the_service"

UNCHANGED = "test_a_write_that_changes_nothing_is_not_recorded"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (LOCAL,),
        "Empty strings and binaries are rejected as values.",
        f"{OLD_JAR} The service has accepted them since that year.",
        {
            "test_an_empty_string_or_binary_is_valid_outside_of_keys": ALL,
            VERDICT: (
                "empty string",
                "empty binary",
                "empty string in a list",
                "empty string in a set",
                "empty binary in a set",
                "begins_with an empty prefix",
            ),
        },
        feature="empty_strings",
    ),
    Difference(
        (LOCAL,),
        "A transaction may have at most 10 items.",
        f"{OLD_JAR} The service raised the limit to 25 and then to 100.",
        {
            "test_100_writes_are_one_transaction": ALL,
            "test_a_transaction_reads_up_to_4_mb": ("400000-11",),
            VERDICT: ("transaction of 100", "transaction get of 100"),
        },
        feature="transaction_limit",
    ),
    Difference(
        (LOCAL,),
        "A failed condition of a single write does not return the item.",
        f"{OLD_JAR} The service has returned it since 2023.",
        {
            "test_a_failed_condition_of_a_put_returns_the_existing_item": ALL,
            "test_a_failed_condition_of_an_update_returns_the_existing_item": ALL,
            "test_a_failed_condition_of_a_delete_returns_the_existing_item": ALL,
        },
        feature="failed_item_on_condition",
    ),
    Difference(
        (LOCAL, MINISTACK),
        "UPDATED_OLD and UPDATED_NEW return whole attributes, not only the changed nested parts.",
        "A simplification in both.",
        {"test_an_update_returns_only_the_changed_parts": ALL},
        feature="nested_updated_values",
    ),
    Difference(
        (LOCAL, MINISTACK),
        "An update that is invalid for its item is not a cancellation reason of a transaction.",
        "Local fails the whole request; ministack applies the other writes.",
        {"test_an_update_that_is_invalid_for_its_item_cancels_with_a_reason": ALL},
        feature="reasons_for_invalid_updates",
    ),
    Difference(
        (LOCAL, MINISTACK, DYNOXIDE),
        "An update that only removes creates a missing item; the service does not.",
        "A simplification in all.",
        {
            "test_an_update_that_only_removes_creates_no_item": ALL,
            UNCHANGED: ("removal from nothing",),
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A stream records writes that change nothing.",
        NOT_MODELLED,
        {
            UNCHANGED: (
                "identical put",
                "identical put in another order",
                "identical conditional put",
                "update to the same value",
                "identical batch write",
                "identical transaction",
                "identical bulk put",
            )
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A stream that is turned on again begins with the records of the previous one.",
        NOT_MODELLED,
        {"test_a_stream_can_be_turned_on_and_off": ALL},
    ),
    Difference(
        (LOCAL,),
        "An update may set an index key to an invalid type, an invalid length or an empty value.",
        "Local validates index keys of puts only.",
        {"test_an_update_that_makes_a_bad_index_key_is_rejected": ALL},
    ),
    Difference(
        (LOCAL,),
        "IN accepts 99 options, not 100.",
        "Local counts the left operand too.",
        {
            "test_a_write_is_applied_only_if_its_condition_is_true": ("in 100 options",),
            "test_a_filter_returns_the_items_that_match": ("in 100 options",),
            VERDICT: ("IN of 100 options",),
        },
    ),
    Difference(
        (LOCAL,),
        "begins_with on a binary sort key with the prefix 0xFF also matches keys of 0xFE.",
        "A bug in the jar's upper bound.",
        {"test_begins_with_selects_binaries_of_the_highest_bytes": ALL},
    ),
    Difference(
        (LOCAL, DYNOXIDE),
        "begins_with on a string sort key of an index ignores case.",
        "The SQLite of both ignores case.",
        {"test_begins_with_in_an_index_is_case_sensitive": ALL},
    ),
    Difference(
        (LOCAL,),
        "A write is billed for a global index if the item had one half of its key before and the"
        " other half after.",
        "A bug in the jar.",
        {"test_an_index_that_never_had_the_whole_key_costs_nothing": ALL},
    ),
    Difference(
        (LOCAL,),
        "A query without a result costs nothing; the service bills the minimum of a read.",
        OLD_JAR,
        {"test_an_empty_query_costs_the_minimum": ALL},
    ),
    Difference(
        (LOCAL,),
        "A transaction costs more than twice its writes, and a repeated token is billed as writes.",
        OLD_JAR,
        {
            "test_a_transaction_costs_twice": ALL,
            "test_a_repeated_token_costs_reads": ALL,
        },
    ),
    Difference(
        (LOCAL, MINISTACK),
        "Items that a filter removes do not count towards the 1 MB of a page.",
        "A simplification in both.",
        {"test_the_page_limit_counts_items_before_the_filter": ALL},
    ),
    Difference(
        (LOCAL, MINISTACK),
        "The filter of an index scan sees attributes that the index does not project.",
        "Both filter the table's items.",
        {"test_the_filter_of_an_index_scan_treats_other_attributes_as_missing": ALL},
    ),
    Difference(
        (MINISTACK,),
        "Capacity does not depend on item sizes, and every index counts for every write.",
        NOT_MODELLED,
        {
            "test_a_read_costs_a_unit_for_each_4_kb_and_half_if_eventual": (
                "4097 bytes",
                "8192 bytes",
                "8193 bytes",
                "409600 bytes",
            ),
            "test_a_write_costs_a_unit_for_each_kb": ("1025 bytes", "3072 bytes", "409600 bytes"),
            "test_a_write_costs_by_the_larger_item_size": ALL,
            "test_a_query_rounds_the_total_size": ALL,
            "test_a_filter_does_not_reduce_the_cost": ALL,
            "test_an_index_query_costs_by_the_projected_size": ALL,
            "test_a_fetching_local_index_pays_for_every_fetched_item": ALL,
            "test_a_put_pays_for_every_index_of_the_item": ALL,
            "test_an_index_costs_only_if_its_projection_changes": ALL,
            "test_an_index_that_never_had_the_whole_key_costs_nothing": ALL,
            "test_batches_cost_the_sum_of_their_parts": ALL,
            "test_a_transaction_costs_twice": ALL,
            "test_a_repeated_token_costs_reads": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "Pages are not limited to 1 MB, nor batch reads to 16 MB.",
        NOT_MODELLED,
        {
            "test_a_page_ends_at_1_mb": ALL,
            "test_a_count_ends_a_page_at_1_mb": ALL,
            "test_a_batch_that_reads_more_than_16_mb_leaves_the_rest_unprocessed": ALL,
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A page ends before the item that passes 1 MB, and items that a filter removes do not"
        " count.",
        "A simplification.",
        {
            "test_a_page_ends_at_1_mb": ALL,
            "test_a_count_ends_a_page_at_1_mb": ALL,
            "test_the_page_limit_counts_items_before_the_filter": ALL,
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A projection reduces the capacity of a read, and a fetching local index costs no more.",
        "It measures the returned attributes.",
        {
            "test_a_read_costs_a_unit_for_each_4_kb_and_half_if_eventual": (
                "4097 bytes",
                "8192 bytes",
                "8193 bytes",
                "409600 bytes",
            ),
            "test_a_fetching_local_index_pays_for_every_fetched_item": ALL,
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A number of 38 digits counts for a byte more than the service bills.",
        "It does not limit the size of a number to 21 bytes.",
        {"test_an_item_of_400_kb_fits_and_one_byte_more_does_not": ("38 digits",)},
    ),
    Difference(
        (MINISTACK,),
        "A number counts with the length of its text, so an item with many numbers may be"
        " rejected below 400 KB.",
        "It stores numbers as text.",
        {"test_an_item_of_400_kb_fits_and_one_byte_more_does_not": ("numbers",)},
    ),
    Difference(
        (MINISTACK,),
        "Sums are rounded to 28 digits, and sums of more than 38 digits are accepted.",
        "It adds with Python's default precision.",
        {
            "test_an_update_changes_the_named_paths": ("plus to 38 digits",),
            "test_an_update_that_is_invalid_for_its_item_changes_nothing": (
                "plus to 39 digits",
                "add to 39 digits",
            ),
        },
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "A value set past the end of a list leaves null elements, and several removals affect"
        " each other's positions.",
        "Both apply list changes one by one.",
        {
            "test_an_update_changes_the_named_paths": (
                "set past the end appends",
                "what is set past the end is in the order of positions",
                "several removals count positions in the list as it was",
                "removal and set in one list count positions as it was",
            ),
            "test_elements_appended_past_the_end_are_not_among_the_updated_parts": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "Some updates with an invalid path or an operand of the wrong type are ignored.",
        NOT_MODELLED,
        {
            "test_an_update_that_is_invalid_for_its_item_changes_nothing": (
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
            "test_nesting_deeper_than_32_levels_by_an_update_is_rejected": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "The right side of an update cannot read a key attribute.",
        "It treats any use of the key's name as an attempt to change it.",
        {
            "test_a_right_side_may_read_the_key": ALL,
            "test_a_right_side_may_read_the_key_of_a_new_item": ALL,
        },
    ),
    Difference(
        (MINISTACK,),
        "Some conditions on missing fields, binaries, sizes and prefixes of another type"
        " evaluate differently.",
        NOT_MODELLED,
        dict.fromkeys(
            (
                "test_a_write_is_applied_only_if_its_condition_is_true",
                "test_a_filter_returns_the_items_that_match",
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
        (DYNOXIDE,),
        "Some updates with an invalid path are ignored, and UPDATED_NEW returns whole lists.",
        NOT_MODELLED,
        {
            "test_an_update_that_is_invalid_for_its_item_changes_nothing": (
                "remove behind a missing map",
                "remove inside a scalar",
                "remove by name in a list",
                "discard behind a missing map",
                "if absent, and the other is missing while the first is there",
            ),
            "test_an_update_returns_only_the_changed_parts": (
                "in a list",
                "in both",
                "removed from a list",
            ),
        },
    ),
    Difference(
        (DYNOXIDE,),
        "ALL_OLD of an update that creates an item returns its key.",
        "A simplification.",
        {"test_an_update_of_a_missing_item_returns_no_old_item": ("ALL_OLD-None",)},
    ),
    Difference(
        (DYNOXIDE,),
        "A transaction ignores the projection of its reads.",
        NOT_MODELLED,
        {"test_a_transaction_reads_items_in_the_order_of_its_gets": ALL},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "An update may make an index key too long; an empty index key causes a generic"
        " validation error.",
        NOT_MODELLED,
        {"test_an_update_that_makes_a_bad_index_key_is_rejected": ("empty", "too long")},
    ),
    Difference(
        (MINISTACK,),
        "An update that makes an item too large does not cancel the transaction.",
        NOT_MODELLED,
        {"test_an_update_that_makes_its_item_too_large_cancels_with_a_reason": ALL},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "A local index does not fetch attributes that it does not project.",
        NOT_MODELLED,
        {"test_a_local_index_fetches_attributes_that_it_does_not_project": ALL},
    ),
    Difference(
        (MINISTACK,),
        "The page key of an index scan lacks the index key.",
        "It pages through the table instead.",
        {"test_a_scan_of_an_index_returns_only_its_items": ALL},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "A transaction may read more than 4 MB.",
        NOT_MODELLED,
        {"test_a_transaction_reads_up_to_4_mb": ("400000-11",)},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "A parallel scan accepts the page key of another segment.",
        NOT_MODELLED,
        {"test_a_page_key_of_another_segment_is_rejected": ALL},
    ),
    Difference(
        (LOCAL, MINISTACK, DYNOXIDE),
        "An update may make an item and its entries in local indexes exceed 400 KB.",
        "Local checks puts only.",
        {"test_an_update_counts_the_entries_in_local_indexes": ALL},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "The entries in local indexes do not count towards the 400 KB of an item.",
        NOT_MODELLED,
        {VERDICT: ("item above 200 KB and its entry in a local index",)},
    ),
    Difference(
        (LOCAL, MINISTACK),
        "A lone surrogate is accepted, or causes an internal error.",
        "Local stores a question mark; ministack fails where it encodes the string.",
        {
            VERDICT: (
                "lone surrogate in a key",
                "get of a key with a lone surrogate",
                "lone surrogate in a value",
                "lone surrogate in a name",
                "lone surrogate in a condition",
                "lone surrogate in a key condition",
                "page key with a lone surrogate",
            )
        },
    ),
    Difference(
        (LOCAL, MINISTACK, DYNOXIDE),
        "A key condition may have a partition key above 2,048 bytes, and a page key a sort key"
        " above 1,024 bytes.",
        "No item can match.",
        {
            VERDICT: (
                "partition key = 2049 bytes",
                "index key = 2049 bytes",
                "page key of 1025 bytes",
            )
        },
    ),
    Difference(
        (LOCAL, MINISTACK, DYNOXIDE),
        "A projection may name attributes that a global index does not project.",
        "All read the table's items.",
        {VERDICT: ("projection that a global index lacks",)},
    ),
    Difference(
        (LOCAL, MINISTACK, DYNOXIDE),
        "A limit above 2^31 - 1 is accepted, or causes an internal error.",
        NOT_MODELLED,
        {VERDICT: ("limit of 2^31",)},
    ),
    Difference(
        (LOCAL, MINISTACK),
        "An update in a transaction needs no action.",
        NOT_MODELLED,
        {VERDICT: ("update without actions in a transaction",)},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "Names and the sort keys of conditions and indexes have no length limit.",
        NOT_MODELLED,
        {
            VERDICT: (
                "index sort key of 1025 bytes",
                "attribute name of 65536 bytes",
                "sort key = 1025 bytes",
                "sort key > 1025 bytes",
                "sort key between with a bound of 1025 bytes",
                "sort key begins with 1025 bytes",
                "binary sort key = 1025 bytes",
            )
        },
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "Expressions have no limits for operators, options and values.",
        NOT_MODELLED,
        {VERDICT: ("301 operators", "IN of 101 options", "values of 3 MB")},
    ),
    Difference(
        (MINISTACK, DYNOXIDE),
        "Some invalid operands and nested functions are accepted.",
        NOT_MODELLED,
        {
            VERDICT: (
                "BETWEEN of a path and itself",
                "IN with the path itself",
                "begins_with the path itself",
                "comparison of a path with itself",
                "comparison with a list",
                "order of a truth value",
                "size ordered with a list",
                "unknown attribute type",
                "if_not_exists of list_append",
                "list_append of list_append",
                "sort key begins with a number",
                "projection of a path as a map and as a list",
                "index query with a filter on an attribute outside of the index",
            )
        },
    ),
    Difference(
        (DYNOXIDE,),
        "A key condition may compare with an empty value or one of another type, and a page key"
        " may be outside of the query.",
        NOT_MODELLED,
        {
            VERDICT: (
                "partition key = empty",
                "sort key > empty",
                "sort key begins with empty",
                "sort key of another type",
                "page key of another partition",
                "page key outside the key condition",
            )
        },
    ),
    Difference(
        (MINISTACK,),
        "Many more invalid requests are accepted: long keys of reads, conditions that are no key"
        " condition, filters on keys, overlapping paths, empty batches and long tokens.",
        NOT_MODELLED,
        {
            VERDICT: (
                "get of a key of 2049 bytes",
                "delete of a key of 2049 bytes",
                "get of a sort key of 1025 bytes",
                "sort key <> value",
                "two conditions on the sort key",
                "key condition with OR",
                "key condition with NOT",
                "filter on a key attribute",
                "filter on an index key",
                "number of 39 digits in a condition",
                "sum of a sum",
                "if_not_exists of a sum",
                "BETWEEN of two types",
                "begins_with a number",
                "update of one path twice",
                "plus a string",
                "list_append of a string",
                "projection of one path twice",
                "projection of overlapping paths",
                "page key with another attribute",
                "page key of another type",
                "empty batch write",
                "empty batch get",
                "token of 37 characters",
            )
        },
    ),
)


def expected_to_fail(test: str, case: str, engine: str, features: Features) -> str | None:
    """Return why this case must fail on this engine, or None if it must pass."""
    for difference in DIFFERENCES:
        cases = difference.tests.get(test)
        if (
            cases is not None
            and (not cases or case in cases)
            and difference.applies_to(engine, features)
        ):
            return difference.description
    return None
