"""Exports readings as CSV, newline-delimited JSON or Parquet, in constant memory and short turns.

CSV and Parquet have one column per sensor of seed 004, and one column with all others as JSON.
"""

import csv
import io
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tally.devices.api.schemas.responses import json_number, reading_body
from tally.devices.model.fleet import SensorInfo
from tally.devices.model.records import Reading
from tally.kit.time_slices import TimeSlices

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
_CHUNK_ROWS: Final = 100
_BLOCK_ROWS: Final = 10  # encoded between two looks at the clock
_BATCH_ROWS: Final = 250  # converted to Arrow at a time, in half a millisecond
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


class ExportUnits(NamedTuple):
    """Sensors with units and precisions, and whether the header of a CSV file has the units."""

    sensors: Mapping[str, SensorInfo]
    in_header: bool = False


NO_UNITS: Final = ExportUnits({})


class WriterFactory(Protocol):
    """Builds the writer of a file."""

    def __call__(self, units: ExportUnits = NO_UNITS) -> ExportWriter: ...


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format."""

    media_type: str
    suffix: str
    writer: "WriterFactory"


async def export(
    readings: AsyncGenerator[Reading, None],
    writer: ExportWriter,
    slices: TimeSlices,
    slot: Callable[[], AbstractAsyncContextManager[None]],
) -> AsyncIterator[bytes]:
    """Read and encode each chunk of the file in a slot and in turns, and yield it."""
    is_complete = False
    while not is_complete:
        async with slot():
            pending = await _take(readings, _CHUNK_ROWS)
            encoded = [block async for block in _encode(pending, writer, slices)]
        is_complete = len(pending) < _CHUNK_ROWS
        if is_complete:
            encoded.append(writer.finish())
        if chunk := b"".join(encoded):
            yield chunk


async def _take(readings: AsyncGenerator[Reading, None], count: int) -> list[Reading]:
    """Return the next readings; fewer than `count` are the last ones."""
    taken: list[Reading] = []
    async for reading in readings:
        taken.append(reading)
        if len(taken) == count:
            break
    return taken


async def _encode(
    readings: list[Reading], writer: ExportWriter, slices: TimeSlices
) -> AsyncIterator[bytes]:
    position = 0
    while position < len(readings):
        async with slices as deadline:
            while position < len(readings) and slices.monotonic() < deadline:
                yield writer.write(readings[position : position + _BLOCK_ROWS])
                position += _BLOCK_ROWS


def _row(reading: Reading) -> dict[str, Any]:
    """Return the columns after `time`, in the order of `COLUMNS`."""
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
    def __init__(self, units: ExportUnits = NO_UNITS) -> None:
        self._text = io.StringIO(newline="")
        self._rows = csv.writer(self._text)
        self._rows.writerow(
            [_with_unit(name, units.sensors) for name in COLUMNS] if units.in_header else COLUMNS
        )

    def write(self, readings: list[Reading]) -> bytes:
        for reading in readings:
            time = datetime.fromtimestamp(reading.timestamp_ms / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
            self._rows.writerow((time, *map(_cell, _row(reading).values())))
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


def _with_unit(column: str, sensors: Mapping[str, SensorInfo]) -> str:
    info = sensors.get(column)
    return column if info is None or info.unit is None else f"{column} ({info.unit})"


class _NdjsonWriter:
    def __init__(self, units: ExportUnits = NO_UNITS) -> None:
        del units  # lines have no header

    def write(self, readings: list[Reading]) -> bytes:
        return b"".join(msgspec.json.encode(reading_body(reading)) + b"\n" for reading in readings)

    def finish(self) -> bytes:
        return b""


class _ParquetWriter:
    """Sends each row group when it is full; the footer follows at the end.

    Units and precisions are in the metadata of the columns.
    """

    def __init__(self, units: ExportUnits = NO_UNITS) -> None:
        self._sink = _Sink()
        self._schema = _described_schema(units.sensors)
        self._file = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def write(self, readings: list[Reading]) -> bytes:
        self._rows += [{"time": reading.timestamp_ms, **_row(reading)} for reading in readings]
        if len(self._rows) >= _BATCH_ROWS:
            self._convert()
        if len(self._batches) >= _ROW_GROUP_ROWS // _BATCH_ROWS:
            self._flush()
        return self._sink.drain()

    def finish(self) -> bytes:
        if self._rows:
            self._convert()
        if self._batches:
            self._flush()
        self._file.close()
        return self._sink.drain()

    def _convert(self) -> None:
        self._batches.append(pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
        self._rows = []

    def _flush(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._batches))
        self._batches = []


def _described_schema(sensors: Mapping[str, SensorInfo]) -> pa.Schema:
    fields = []
    for column in _SCHEMA:
        info = sensors.get(column.name)
        known = {} if info is None else {"unit": info.unit, "precision": info.precision}
        metadata = {name: str(value) for name, value in known.items() if value is not None}
        fields.append(column.with_metadata(metadata) if metadata else column)
    return pa.schema(fields)


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
