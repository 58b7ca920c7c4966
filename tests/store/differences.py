"""Known differences of the emulators from the current DynamoDB service.

`docs/differences.md` has one row for each. A test that meets a difference must fail, so that a
fixed difference is noticed too. `features.py` probes a service for some differences; the others
depend on the name of the engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.store.features import Features

LOCAL, MINISTACK = "local", "ministack"
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

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (LOCAL,),
        "Empty strings and binaries are rejected as values.",
        f"{OLD_JAR} The service has accepted them since that year.",
        {"test_an_empty_string_or_binary_is_valid_outside_of_keys": ALL},
        feature="empty_strings",
    ),
    Difference(
        (LOCAL,),
        "A transaction may have at most 10 items.",
        f"{OLD_JAR} The service raised the limit to 25 and then to 100.",
        {"test_100_writes_are_one_transaction": ALL},
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
        (LOCAL, MINISTACK),
        "An update that only removes creates a missing item; the service does not.",
        "A simplification in both.",
        {"test_an_update_that_only_removes_creates_no_item": ALL},
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
        },
    ),
    Difference(
        (LOCAL,),
        "begins_with on a binary sort key with the prefix 0xFF also matches keys of 0xFE.",
        "A bug in the jar's upper bound.",
        {"test_begins_with_selects_binaries_of_the_highest_bytes": ALL},
    ),
    Difference(
        (LOCAL,),
        "begins_with on a string sort key of an index ignores case.",
        "The jar's SQLite ignores case.",
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
            "test_a_batch_that_reads_more_than_16_mb_leaves_the_rest_unprocessed": ALL,
        },
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
        (MINISTACK,),
        "A value set past the end of a list leaves null elements, and several removals affect"
        " each other's positions.",
        "It applies list changes one by one.",
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
        (MINISTACK,),
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
        (MINISTACK,),
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
