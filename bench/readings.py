"""Generates readings as request bodies, store transactions and rows of a long history."""

import uuid
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tally.devices.repository.readings import DEVICE_READINGS, PROCESSED_BATCHES
from tally.store.api import BatchPut, TransactionBatch
from tally.store.expressions import not_exists
from tally.store.sqlite.checkpoint import Checkpoint
from tally.store.sqlite.files import connect
from tally.store.sqlite.layout import Layout, compile_layout
from tally.store.sqlite.shapes import Shapes

BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
FIRMWARE = "1.0.16"
WINDOW_MS = 300_000
STATUS = {"bme280": "ok", "ds18b20": "ok", "soil_moisture": "ok"}
_NEW = not_exists("batch_id")
_ROW_BYTES = 600


def hardware_id(number: int) -> str:
    return ":".join(f"{byte:02X}" for byte in (2, *number.to_bytes(5, "big")))


class Boards:
    """Generates readings of many boards with unique batch ids."""

    def __init__(self, boards: int, now_ms: int, seed: int = 3) -> None:
        self._random = Random(seed)
        self._boards = boards
        self._next_ms = dict.fromkeys(range(boards), now_ms - 80 * 86_400_000)
        self._board = 0

    def bodies(self, count: int, readings: int) -> list[bytes]:
        """Generate request bodies."""
        return [msgspec.json.encode(self._request(readings)) for _ in range(count)]

    def requests(self, count: int, readings: int) -> list[dict[str, Any]]:
        """Generate requests before they are encoded."""
        return [self._request(readings) for _ in range(count)]

    def transactions(self, count: int, readings: int, now: int) -> list[TransactionBatch]:
        """Generate the store transactions of requests."""
        return [_transactions(self._request(readings), now) for _ in range(count)]

    def _request(self, readings: int) -> dict[str, Any]:
        self._board = (self._board + 1) % self._boards
        board = hardware_id(self._board)
        start = self._next_ms[self._board]
        self._next_ms[self._board] += readings * WINDOW_MS
        generated = [self._reading(board, start + number * WINDOW_MS) for number in range(readings)]
        return {
            "hardware_id": board,
            "boot_id": BOOT_ID,
            "firmware_version": FIRMWARE,
            "readings": generated,
        }

    def _reading(self, board: str, start: int) -> dict[str, Any]:
        end = start + WINDOW_MS
        gauss = self._random.gauss
        sensors = {
            "bme280_temp_c": round(gauss(22, 3), 2),
            "ds18b20_temp_c": round(gauss(21, 3), 2),
            "humidity_pct": round(gauss(45, 5), 1),
            "pressure_hpa": round(gauss(1013, 3), 2),
            "soil_moisture_pct": round(gauss(62, 5), 1),
        }
        batch_id = f"{board}_{BOOT_ID}_{start}_{end}"
        return {
            "batch_id": batch_id,
            "timestamp_ms": end,
            "sensors": sensors,
            "sensor_status": STATUS,
        }


def _transactions(request: dict[str, Any], now: int) -> TransactionBatch:
    board, readings = request["hardware_id"], request["readings"]
    receipt = {
        "hardware_id": board,
        "received_at": "2026-01-01T00:00:00Z",
        "expiration_time": now + 30 * 86_400,
    }
    batches = [
        {"batch_id": reading["batch_id"], "content_digest": b"8 bytes."} for reading in readings
    ]
    return TransactionBatch(
        BatchPut(PROCESSED_BATCHES, batches, receipt, _NEW),
        BatchPut(DEVICE_READINGS, [_item(board, reading) for reading in readings]),
    )


def _item(board: str, reading: dict[str, Any]) -> dict[str, Any]:
    timestamp_ms, batch_id = reading["timestamp_ms"], reading["batch_id"]
    return {
        "hardware_id": board,
        "ts_batch": f"{timestamp_ms:013}#{batch_id}",
        "timestamp_ms": timestamp_ms,
        "batch_id": batch_id,
        "boot_id": BOOT_ID,
        "firmware_version": FIRMWARE,
        "sensors": {name: _exact(value) for name, value in reading["sensors"].items()},
        "sensor_status": STATUS,
        "expiration_time": timestamp_ms // 1000 + 3650 * 86_400,
    }


@lru_cache(maxsize=20_000)
def _exact(value: float) -> Decimal:
    """Convert a value to a cached decimal, as the server does."""
    return Decimal(str(value))


def fill_history(path: Path, board: str, count: int, last_ms: int) -> None:
    """Write a history of one reading per minute directly into the table."""
    layout = compile_layout(DEVICE_READINGS, Shapes())
    connection, checkpoint = connect(path), Checkpoint(path)
    connection.set_wal_hook(checkpoint.on_commit)
    rows = _history(layout, board, count, last_ms)
    done = 0
    while done < count:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            layout.upsert_rows(1), (row for row, _ in zip(rows, range(20_000), strict=False))
        )
        connection.execute("COMMIT")
        checkpoint.restart_if_long(connection)
        done += 20_000
    connection.close()
    checkpoint.close()


def _history(layout: Layout, board: str, count: int, last_ms: int) -> Iterator[tuple[Any, ...]]:
    sensors = {"bme280_temp_c": 22.5, "humidity_pct": 45.2, "soil_moisture_pct": 62.3}
    boot = uuid.uuid4()
    for number in range(count):
        timestamp_ms = last_ms - (count - 1 - number) * 60_000
        reading = {
            "timestamp_ms": timestamp_ms,
            "batch_id": f"{board}_{boot}_{timestamp_ms - 60_000}_{timestamp_ms}",
            "sensors": sensors,
        }
        item = _item(board, reading)
        yield *layout.read_key(item), layout.packer.pack(item), _ROW_BYTES
