"""Applies the settings of CreateTable and UpdateTable to the metadata and the indexes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tally.store.schema import Table
from tally.store.wire.service_errors import ServiceError, dynamodb_error, invalid
from tally.store.wire.table_metadata import TableMetadata
from tally.store.wire.table_options import INDEX_OPTIONS, apply_index_options, apply_options
from tally.store.wire.table_requests import attribute_types, read_index

Body = Mapping[str, Any]
_MAX_TAGS: Final = 50
_RESERVED_TAG: Final = "aws:"
_MAX_UNITS: Final = 10**12
_BLOCKED: Final = (
    "This operation cannot be performed with given input values. Please contact DynamoDB service"
    " team for more info: Action Blocked: IndexUpdate"
)


def billing_mode(metadata: TableMetadata) -> str:
    """Return the billing mode of a table."""
    summary = metadata.settings.get("BillingModeSummary", {})
    return str(
        summary.get("BillingMode", "PROVISIONED" if metadata.read_units else "PAY_PER_REQUEST")
    )


def apply_settings(
    body: Body, metadata: TableMetadata, billing: str, now: float, *, is_update: bool = False
) -> None:
    """Store what the service only repeats: throughput, billing mode, class and protection."""
    throughput = body.get("ProvisionedThroughput")
    _check_billing(billing, throughput, is_required=not is_update)
    if is_update and billing == "PROVISIONED" and not metadata.read_units and throughput is None:
        raise _parameter("ProvisionedThroughput must be specified when BillingMode is PROVISIONED")
    if throughput is not None:
        _check_units(throughput)
        if is_update and billing_mode(metadata) == "PROVISIONED":
            _check_changed(throughput, "table", (metadata.read_units, metadata.write_units))
        metadata.read_units = throughput["ReadCapacityUnits"]
        metadata.write_units = throughput["WriteCapacityUnits"]
    _apply_billing(metadata, billing, now)
    for index in body.get("GlobalSecondaryIndexes") or ():
        apply_index_units(index, metadata, billing)
        apply_index_options(index, metadata)
    apply_options(body, metadata)
    if body.get("DeletionProtectionEnabled") is not None or not is_update:
        protected = bool(body.get("DeletionProtectionEnabled"))
        metadata.settings["DeletionProtectionEnabled"] = protected


def _apply_billing(metadata: TableMetadata, billing: str, now: float) -> None:
    summary = metadata.settings.get("BillingModeSummary")
    if billing == "PAY_PER_REQUEST":
        metadata.read_units = metadata.write_units = 0
        if summary is None or summary["BillingMode"] != billing:
            changed_at = {"LastUpdateToPayPerRequestDateTime": round(now, 3)}
            metadata.settings["BillingModeSummary"] = {"BillingMode": billing, **changed_at}
    elif summary is not None:
        metadata.settings["BillingModeSummary"] = {**summary, "BillingMode": billing}


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


def _check_units(throughput: Body) -> None:
    for name in ("ReadCapacityUnits", "WriteCapacityUnits"):
        if throughput[name] > _MAX_UNITS:
            raise invalid(f"Given value {throughput[name]} for {name} is out of bounds")


def _check_changed(throughput: Body, what: str, current: tuple[int, int]) -> None:
    """Reject an update of the throughput that would not change it."""
    if (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"]) != current:
        return
    read, write = current
    raise invalid(
        f"The provisioned throughput for the {what} will not change. The requested value equals the"
        f" current value. Current ReadCapacityUnits provisioned for the {what}: {read}. Requested"
        f" ReadCapacityUnits: {read}. Current WriteCapacityUnits provisioned for the {what}:"
        f" {write}. Requested WriteCapacityUnits: {write}. Refer to the Amazon DynamoDB Developer"
        " Guide for current limits and how to request higher limits."
    )


def apply_index_units(index: Body, metadata: TableMetadata, billing: str) -> None:
    """Store the throughput of a global index."""
    throughput, name = index.get("ProvisionedThroughput"), index["IndexName"]
    if billing == "PAY_PER_REQUEST":
        if throughput is not None:
            raise _parameter(
                f"ProvisionedThroughput should not be specified for index: {name} when BillingMode"
                " is PAY_PER_REQUEST"
            )
        return
    if throughput is None:
        raise _parameter(f"ProvisionedThroughput must be specified for index: {name}")
    _check_units(throughput)
    units = (throughput["ReadCapacityUnits"], throughput["WriteCapacityUnits"])
    metadata.index_units[name] = units


def check_index_updates(updates: Sequence[Body]) -> None:
    """Reject updates that the service does not make together."""
    names: list[str] = []
    changes = 0
    for update in updates:
        for action in ("Create", "Delete", "Update"):
            entry = update.get(action)
            if entry is not None:
                changes += action != "Update"
                if entry["IndexName"] in names:
                    raise _parameter(
                        "Only one global secondary index update per index is allowed"
                        f" simultaneously. Index: {entry['IndexName']}"
                    )
                names.append(entry["IndexName"])
    if changes > 1:
        raise dynamodb_error(
            "LimitExceededException",
            "Subscriber limit exceeded: Only 1 online index can be created or deleted"
            " simultaneously per table",
        )


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
            apply_index_units(entry, metadata, billing_mode(metadata))
            apply_index_options(entry, metadata)
            created = read_index(entry, attribute_types(body, table))
            return replace(table, indexes=(*table.by_name.values(), created))
        throughput = entry.get("ProvisionedThroughput")
        if throughput is not None and billing_mode(metadata) == "PAY_PER_REQUEST":
            raise invalid(_BLOCKED)
        index = table.by_name.get(name)
        if index is None or index.local:
            raise dynamodb_error("ResourceNotFoundException", "Requested resource not found")
        if action == "Update":
            if throughput is not None:
                units = metadata.index_units.get(name, (0, 0))
                _check_changed(throughput, f"index {name}", units)
                apply_index_units(entry, metadata, "PROVISIONED")
            apply_index_options(entry, metadata)
            return table
        metadata.index_units.pop(name, None)
        metadata.settings.get(INDEX_OPTIONS, {}).pop(name, None)
        return replace(table, indexes=tuple(i for i in table.by_name.values() if i.name != name))
    raise _parameter(
        "One of GlobalSecondaryIndexUpdate.Update, GlobalSecondaryIndexUpdate.Create,"
        " GlobalSecondaryIndexUpdate.Delete must not be null"
    )


def read_tags(body: Body) -> dict[str, str]:
    """Read the tags of a request; the service keeps some keys for itself."""
    for tag in body.get("Tags") or ():
        if tag["Key"].lower().startswith(_RESERVED_TAG):
            raise _parameter(f"Tag keys must not start with {_RESERVED_TAG} Key: {tag['Key']}")
    return {tag["Key"]: tag["Value"] for tag in body.get("Tags") or ()}


def check_tags(tags: Mapping[str, str]) -> None:
    """Reject more tags than a table may have."""
    if len(tags) > _MAX_TAGS:
        raise _parameter(f"Too many tags: tag limit is {_MAX_TAGS}")


def _parameter(message: str) -> ServiceError:
    return invalid(f"One or more parameter values were invalid: {message}")
