"""Applies the settings of CreateTable and UpdateTable to the metadata and the indexes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tally.store.schema import Table
from tally.store.wire.service_errors import ServiceError, dynamodb_error, invalid
from tally.store.wire.table_metadata import TableMetadata
from tally.store.wire.table_requests import attribute_types, read_index

Body = Mapping[str, Any]


def billing_mode(metadata: TableMetadata) -> str:
    """Return the billing mode of a table."""
    summary = metadata.settings.get("BillingModeSummary", {})
    return str(
        summary.get("BillingMode", "PROVISIONED" if metadata.read_units else "PAY_PER_REQUEST")
    )


def apply_settings(
    body: Body, metadata: TableMetadata, billing: str, *, is_update: bool = False
) -> None:
    """Store what the service only repeats: throughput, billing mode, class and protection."""
    throughput = body.get("ProvisionedThroughput")
    _check_billing(billing, throughput, is_required=not is_update)
    if throughput is not None:
        metadata.read_units = throughput["ReadCapacityUnits"]
        metadata.write_units = throughput["WriteCapacityUnits"]
    if billing == "PAY_PER_REQUEST":
        metadata.read_units = metadata.write_units = 0
        metadata.settings["BillingModeSummary"] = {"BillingMode": billing}
    else:
        metadata.settings.pop("BillingModeSummary", None)
    for index in body.get("GlobalSecondaryIndexes") or ():
        _apply_units(index, metadata, billing)
    if body.get("TableClass") is not None:
        metadata.settings["TableClassSummary"] = {"TableClass": body["TableClass"]}
    if body.get("DeletionProtectionEnabled") is not None or not is_update:
        protected = bool(body.get("DeletionProtectionEnabled"))
        metadata.settings["DeletionProtectionEnabled"] = protected


def _check_billing(billing: str, throughput: Body | None, *, is_required: bool) -> None:
    if billing == "PAY_PER_REQUEST" and throughput is not None:
        raise _parameter(
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is"
            " PAY_PER_REQUEST"
        )
    if billing == "PROVISIONED" and throughput is None and is_required:
        raise _parameter(
            "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is"
            " PROVISIONED"
        )


def _apply_units(index: Body, metadata: TableMetadata, billing: str) -> None:
    throughput = index.get("ProvisionedThroughput")
    if throughput is not None and billing == "PROVISIONED":
        units = (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"])
        metadata.index_units[index["IndexName"]] = units


def changed_indexes(body: Body, table: Table, update: Body, metadata: TableMetadata) -> Table:
    """Return the table after one entry of `GlobalSecondaryIndexUpdates`."""
    for action in ("Create", "Delete", "Update"):
        entry = update.get(action)
        if entry is None:
            continue
        name = entry["IndexName"]
        if action == "Create":
            if name in table.by_name:
                raise _parameter(f"Index already exists: {name}")
            _apply_units(entry, metadata, billing_mode(metadata))
            index = read_index(entry, attribute_types(body, table))
            return replace(table, indexes=(*table.by_name.values(), index))
        if name not in table.by_name:
            raise dynamodb_error("ResourceNotFoundException", "Requested resource not found")
        if action == "Update":
            _apply_units(entry, metadata, "PROVISIONED")
            return table
        metadata.index_units.pop(name, None)
        others = [index for index in table.by_name.values() if index.name != name]
        return replace(table, indexes=tuple(others))
    raise _parameter("One of GlobalSecondaryIndexUpdate.Update, Create or Delete must not be null")


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")
