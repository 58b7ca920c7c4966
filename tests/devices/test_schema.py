"""The lock file and the store contain the four tables exactly as in the seed."""

import tomllib
from typing import Any

import pytest

from tally.app import open_engine
from tally.cli.schema import LOCK_FILE
from tally.kit.clock import SystemClock
from tally.store.lockfile import normalize, read_lock
from tests.devices.conftest import TABLES, StoreTarget

REQUIRED, OPTIONAL = True, False


def key(name: str) -> dict[str, str]:
    return {"name": name, "type": "S"}


def index(partition: str, sort: str | None = None) -> dict[str, Any]:
    base = {"kind": "global", "partition": key(partition), "projection": "ALL"}
    return base if sort is None else base | {"sort": key(sort)}


def attributes(**fields: tuple[str, bool]) -> dict[str, Any]:
    return {name: {"type": kind, "required": required} for name, (kind, required) in fields.items()}


# The tables of the seed; key attributes are listed only as keys. Additions are optional attributes
# and the index `by_group`, which the rules of the seed allow.
SEED: dict[str, dict[str, Any]] = {
    "devices": {
        "version": "1.0.0",
        "partition": key("hardware_id"),
        "indexes": {
            "gsi1": index("gsi1pk", "gsi1sk"),
            "by_group": index("group", "hardware_id") | {"projection": "KEYS_ONLY"},
        },
        "attributes": attributes(
            confirmation_id=("S", REQUIRED),
            capabilities=("M", REQUIRED),
            first_registered_at=("S", REQUIRED),
            last_seen_at=("S", REQUIRED),
            last_boot_id=("S", REQUIRED),
            firmware_version=("S", REQUIRED),
            friendly_name=("S", OPTIONAL),
            group=("S", OPTIONAL),
            tags=("L", OPTIONAL),
            is_registered=("BOOL", OPTIONAL),
            clock_offset_ms=("N", OPTIONAL),
            gsi1pk=("S", REQUIRED),
            gsi1sk=("S", REQUIRED),
        ),
    },
    "device_readings": {
        "version": "1.0.0",
        "partition": key("hardware_id"),
        "sort": key("ts_batch"),
        "ttl": "expiration_time",
        "stream": "NEW_AND_OLD_IMAGES",
        "attributes": attributes(
            timestamp_ms=("N", REQUIRED),
            batch_id=("S", REQUIRED),
            boot_id=("S", REQUIRED),
            firmware_version=("S", REQUIRED),
            friendly_name=("S", OPTIONAL),
            sensors=("M", REQUIRED),
            sensor_status=("M", REQUIRED),
            expiration_time=("N", OPTIONAL),
            clock_ahead=("BOOL", OPTIONAL),
        ),
    },
    "processed_batches": {
        "version": "1.0.0",
        "partition": key("batch_id"),
        "ttl": "expiration_time",
        "attributes": attributes(
            hardware_id=("S", REQUIRED),
            received_at=("S", REQUIRED),
            content_digest=("B", OPTIONAL),
            expiration_time=("N", REQUIRED),
        ),
    },
    "api_keys": {
        "version": "1.0.0",
        "partition": key("key_id"),
        "indexes": {"api_key_hash_index": index("api_key_hash"), "gsi1": index("gsi1pk", "gsi1sk")},
        "attributes": attributes(
            api_key_hash=("S", REQUIRED),
            created_at=("S", REQUIRED),
            last_used_at=("S", OPTIONAL),
            is_active=("BOOL", REQUIRED),
            description=("S", OPTIONAL),
            hardware_ids=("L", OPTIONAL),
            group=("S", OPTIONAL),
            key_prefix=("S", OPTIONAL),
            gsi1pk=("S", REQUIRED),
            gsi1sk=("S", REQUIRED),
        ),
    },
}


@pytest.mark.parametrize("table", SEED)
def test_the_lock_file_matches_the_seed(table: str) -> None:
    locked = tomllib.loads((LOCK_FILE).read_text(encoding="utf-8"))
    assert locked["tables"][table] == SEED[table]


def test_the_code_matches_the_lock_file() -> None:
    locked = {table.name: table for table in read_lock(LOCK_FILE)}
    assert [locked[table.name] for table in TABLES] == [normalize(table) for table in TABLES]
    own = {table.name for table in TABLES if not table.name.startswith("tally-")}
    assert own == set(SEED) | {
        "device_rollups",
        "device_sensors",
        "device_desired_states",
        "device_alarm_rules",
        "device_alarm_boards",
        "device_alarms",
        "device_rate_limits",
        "device_claims",
        "device_deletions",
    }


async def test_created_tables_match_the_declaration(store_target: StoreTarget) -> None:
    """As described by the engine."""
    settings = await store_target.new_settings()
    async with open_engine(settings, SystemClock()) as engine:
        for table in TABLES:
            described = await engine.describe_table(table.name)
            assert (described.key, described.ttl, described.by_name) == (
                table.key,
                table.ttl,
                table.by_name,
            )
