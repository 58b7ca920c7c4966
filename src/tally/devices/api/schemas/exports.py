"""Exports readings as CSV, newline-delimited JSON or Parquet, in constant memory.

CSV and Parquet have one column per sensor of seed 004, and one column with all others as JSON.
"""

import csv
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tally.devices.api.schemas.responses import json_number, reading_body
from tally.devices.model.records import Reading

SENSORS: Final = (
    "bme280_temp_c",
    "ds18b20_temp_c",
    "humidity_pct",
    "pressure_hpa",
    "soil_moisture_pct",
)
COLUMNS: Final = (
    "time",
    "timestamp_ms",
    "hardware_id",
    "friendly_name",
    *SENSORS,
    "other_sensors",
    "sensor_status",
    "batch_id",
    "boot_id",
    "firmware_version",
    "clock_ahead",
)
_CHUNK_ROWS: Final = 500
_ROW_GROUP_ROWS: Final = 5_000
_SCHEMA: Final = pa.schema(
    [
        pa.field("time", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("hardware_id", pa.string()),
        pa.field("friendly_name", pa.string()),
        *(pa.field(sensor, pa.float64()) for sensor in SENSORS),
        *(pa.field(name, pa.string()) for name in COLUMNS[len(SENSORS) + 4 : -1]),
        pa.field("clock_ahead", pa.bool_()),
    ]
)


class ExportWriter(Protocol):
    """Encodes readings incrementally; both methods return the bytes that are ready to send."""

    def write(self, readings: list[Reading]) -> bytes: ...

    def finish(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format."""

    media_type: str
    suffix: str
    writer: Callable[[], ExportWriter]


async def export(readings: AsyncIterator[Reading], writer: ExportWriter) -> AsyncIterator[bytes]:
    """Encode readings and yield the file in chunks."""
    pending: list[Reading] = []
    async for reading in readings:
        pending.append(reading)
        if len(pending) == _CHUNK_ROWS:
            chunk = writer.write(pending)
            pending = []
            if chunk:
                yield chunk
    yield writer.write(pending) + writer.finish()


def _row(reading: Reading) -> dict[str, Any]:
    others = {
        name: json_number(value) for name, value in reading.sensors.items() if name not in SENSORS
    }
    return {
        "timestamp_ms": reading.timestamp_ms,
        "hardware_id": reading.hardware_id,
        "friendly_name": reading.friendly_name,
        **{
            name: float(reading.sensors[name]) if name in reading.sensors else None
            for name in SENSORS
        },
        "other_sensors": msgspec.json.encode(others).decode() if others else None,
        "sensor_status": msgspec.json.encode(reading.sensor_status).decode(),
        "batch_id": reading.batch_id,
        "boot_id": reading.boot_id,
        "firmware_version": reading.firmware_version,
        "clock_ahead": reading.clock_ahead,
    }


class _CsvWriter:
    def __init__(self) -> None:
        self._text = io.StringIO(newline="")
        self._rows = csv.DictWriter(self._text, COLUMNS)
        self._rows.writeheader()

    def write(self, readings: list[Reading]) -> bytes:
        for reading in readings:
            time = datetime.fromtimestamp(reading.timestamp_ms / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
            self._rows.writerow(
                {"time": time, **{name: _cell(value) for name, value in _row(reading).items()}}
            )
        return self._drain()

    def finish(self) -> bytes:
        return self._drain()

    def _drain(self) -> bytes:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode()


def _cell(value: Any) -> Any:
    """Quote text that a spreadsheet would evaluate as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


class _NdjsonWriter:
    def write(self, readings: list[Reading]) -> bytes:
        return b"".join(msgspec.json.encode(reading_body(reading)) + b"\n" for reading in readings)

    def finish(self) -> bytes:
        return b""


class _ParquetWriter:
    """Sends each row group when it is full; the footer follows at the end."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._file = pq.ParquetWriter(self._sink, _SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, readings: list[Reading]) -> bytes:
        self._rows += [{"time": reading.timestamp_ms, **_row(reading)} for reading in readings]
        if len(self._rows) >= _ROW_GROUP_ROWS:
            self._flush()
        return self._sink.drain()

    def finish(self) -> bytes:
        self._flush()
        self._file.close()
        return self._sink.drain()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=_SCHEMA))
            self._rows = []


class _Sink(io.RawIOBase):
    """A write-only file in memory. `drain` returns and removes what was written."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, chunk: Any) -> int:
        content = bytes(chunk)
        self._pending.append(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

    def drain(self) -> bytes:
        content = b"".join(self._pending)
        self._pending.clear()
        return content


FORMATS: Final = {
    "csv": ExportFormat("text/csv; charset=utf-8", "csv", _CsvWriter),
    "ndjson": ExportFormat("application/x-ndjson", "ndjson", _NdjsonWriter),
    "parquet": ExportFormat("application/vnd.apache.parquet", "parquet", _ParquetWriter),
}
