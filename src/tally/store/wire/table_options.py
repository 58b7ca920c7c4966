"""Options of tables and indexes that have no effect here and are described as the service does.

These are the table class, the encryption, the warm throughput and the limits of on-demand tables.
"""

from collections.abc import Mapping
from typing import Any, Final

from tally.store.wire.service_errors import invalid
from tally.store.wire.table_metadata import ACCOUNT, REGION, TableMetadata

Body = Mapping[str, Any]
INDEX_OPTIONS: Final = "IndexOptions"  # in the settings of a table, by the names of its indexes
_KEYS: Final = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/"
_MANAGED_KEY: Final = "00000000-0000-0000-0000-000000000000"
_NO_LIMIT: Final = -1
_WARM_UNITS: Final = {"ReadUnitsPerSecond": 12_000, "WriteUnitsPerSecond": 4_000}


def apply_options(body: Body, metadata: TableMetadata) -> None:
    """Store the options of a table."""
    settings = metadata.settings
    if body.get("TableClass") is not None:
        settings["TableClassSummary"] = {"TableClass": body["TableClass"]}
    encryption = body.get("SSESpecification")
    if encryption is not None:
        settings.pop("SSEDescription", None)
        if encryption.get("Enabled"):
            settings["SSEDescription"] = _describe_encryption(encryption)
    units = (metadata.read_units, metadata.write_units)
    _apply_throughput(body, settings, warm_units(units), "table")


def apply_index_options(entry: Body, metadata: TableMetadata) -> None:
    """Store the options of a global index."""
    name = entry["IndexName"]
    options = metadata.settings.setdefault(INDEX_OPTIONS, {}).setdefault(name, {})
    units = metadata.index_units.get(name, (0, 0))
    _apply_throughput(entry, options, warm_units(units), f"index {name}")


def warm_units(units: tuple[int, int]) -> dict[str, int]:
    """Return the warm throughput of a table or index that sets none; 0 units are on demand."""
    if not any(units):
        return dict(_WARM_UNITS)
    return dict(zip(_WARM_UNITS, units, strict=True))


def describe_options(options: Body, units: tuple[int, int], *, is_new: bool) -> dict[str, Any]:
    """Describe options; there is a warm throughput in any case."""
    described = {name: value for name, value in options.items() if name != INDEX_OPTIONS}
    warm = options.get("WarmThroughput") or warm_units(units)
    described["WarmThroughput"] = {**warm, "Status": "UPDATING" if is_new else "ACTIVE"}
    return described


def _apply_throughput(
    body: Body, options: dict[str, Any], default: dict[str, int], what: str
) -> None:
    warm = body.get("WarmThroughput")
    if warm is not None:
        current = options.get("WarmThroughput") or default
        requested = {name: value for name, value in warm.items() if value is not None}
        for name, units in current.items():
            if requested.get(name, units) < units:
                raise invalid(
                    f"One or more parameter values were invalid: Requested {name} for"
                    f" WarmThroughput for {what} is lower than current WarmThroughput, decreasing"
                    " WarmThroughput is not supported"
                )
        options["WarmThroughput"] = {**current, **requested}
    limits = body.get("OnDemandThroughput")
    if limits is not None:
        names = ("MaxReadRequestUnits", "MaxWriteRequestUnits")
        for name in names:
            units = limits.get(name)
            if units is not None and units < 1 and units != _NO_LIMIT:
                raise invalid(
                    f"One or more parameter values were invalid: Requested {name} for"
                    f" OnDemandThroughput for {what} is outside of valid range"
                )
        current = options.get("OnDemandThroughput") or dict.fromkeys(names, _NO_LIMIT)
        options["OnDemandThroughput"] = {name: limits.get(name) or current[name] for name in names}


def _describe_encryption(encryption: Body) -> dict[str, str]:
    key = encryption.get("KMSMasterKeyId") or _MANAGED_KEY
    arn = key if key.startswith("arn:") else _KEYS + key
    return {"Status": "ENABLED", "SSEType": "KMS", "KMSMasterKeyArn": arn}
