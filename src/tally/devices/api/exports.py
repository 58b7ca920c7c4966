"""Readings as files: CSV, one JSON object a line, or Parquet, made as they are read, with a few hundred rows in memory.

CSV and Parquet have a column for each sensor that the seed names, and one for the others as JSON.
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

from tally.devices.api.schemas import plain, reading_shown
from tally.devices.model import Reading

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
_STRIDE: Final = 500
_ROW_GROUP: Final = 5_000
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


class Writer(Protocol):
    """Takes readings and gives bytes: what is ready so far, and at the end the rest."""

    def write(self, readings: list[Reading]) -> bytes: ...

    def finish(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file."""

    media_type: str
    suffix: str
    writer: Callable[[], Writer]


async def export(readings: AsyncIterator[Reading], writer: Writer) -> AsyncIterator[bytes]:
    """The file, piece by piece."""
    waiting: list[Reading] = []
    async for reading in readings:
        waiting.append(reading)
        if len(waiting) == _STRIDE:
            piece = writer.write(waiting)
            waiting = []
            if piece:
                yield piece
    yield writer.write(waiting) + writer.finish()


def _row(reading: Reading) -> dict[str, Any]:
    others = {name: plain(value) for name, value in reading.sensors.items() if name not in SENSORS}
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


class _Csv:
    def __init__(self) -> None:
        self._text = io.StringIO(newline="")
        self._rows = csv.DictWriter(self._text, COLUMNS)
        self._rows.writeheader()

    def write(self, readings: list[Reading]) -> bytes:
        for reading in readings:
            moment = datetime.fromtimestamp(reading.timestamp_ms / 1000, UTC).isoformat(
                timespec="milliseconds"
            )
            self._rows.writerow(
                {"time": moment, **{name: _cell(value) for name, value in _row(reading).items()}}
            )
        return self._take()

    def finish(self) -> bytes:
        return self._take()

    def _take(self) -> bytes:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text.encode()


def _cell(value: Any) -> Any:
    """A name that a spreadsheet would take for a formula is shown as the text it is."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


class _Ndjson:
    def write(self, readings: list[Reading]) -> bytes:
        return b"".join(msgspec.json.encode(reading_shown(reading)) + b"\n" for reading in readings)

    def finish(self) -> bytes:
        return b""


class _Parquet:
    """Row groups go out as they are full; the index of all of them is the end of the file."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._file = pq.ParquetWriter(self._sink, _SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, readings: list[Reading]) -> bytes:
        self._rows += [{"time": reading.timestamp_ms, **_row(reading)} for reading in readings]
        if len(self._rows) >= _ROW_GROUP:
            self._flush()
        return self._sink.take()

    def finish(self) -> bytes:
        self._flush()
        self._file.close()
        return self._sink.take()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(pa.Table.from_pylist(self._rows, schema=_SCHEMA))
            self._rows = []


class _Sink(io.RawIOBase):
    """A file that can only be written to, and gives away what was written."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        content = bytes(piece)
        self._waiting.append(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

    def take(self) -> bytes:
        content = b"".join(self._waiting)
        self._waiting.clear()
        return content


FORMATS: Final = {
    "csv": Format("text/csv; charset=utf-8", "csv", _Csv),
    "ndjson": Format("application/x-ndjson", "ndjson", _Ndjson),
    "parquet": Format("application/vnd.apache.parquet", "parquet", _Parquet),
}
