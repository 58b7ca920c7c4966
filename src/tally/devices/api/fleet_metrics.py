"""The latest values of a fleet in Prometheus' text format."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tally.devices.model.fleet import SensorInfo
from tally.devices.model.fleet_series import LatestReading

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SAMPLES_RENDERED: Final = 20_000

_VALUE: Final = "tally_device_sensor_value"
_TIME: Final = "tally_device_last_reading_timestamp_seconds"


def render_metrics(
    latest: Iterable[LatestReading], sensors: Mapping[str, SensorInfo], *, is_complete: bool
) -> str:
    """Render the latest value per board and sensor.

    `tally_fleet_metrics_truncated` is 1 if boards or samples are omitted.
    """
    values: list[str] = []
    times: list[str] = []
    for entry in latest:
        if entry.reading is None:
            continue
        lines = [*_value_lines(entry, sensors)]
        if len(values) + len(lines) > MAX_SAMPLES_RENDERED:
            is_complete = False
            break
        values += lines
        labels = _labels(hardware_id=entry.device.hardware_id)
        times.append(f"{_TIME}{labels} {entry.reading.timestamp_ms / 1000}\n")
    return "".join(
        (
            f"# HELP {_VALUE} Latest value of a sensor of a board\n# TYPE {_VALUE} gauge\n",
            *values,
            f"# HELP {_TIME} Timestamp of the latest reading of a board\n# TYPE {_TIME} gauge\n",
            *times,
            "# HELP tally_fleet_metrics_truncated Whether boards or sensors are omitted\n",
            "# TYPE tally_fleet_metrics_truncated gauge\n",
            f"tally_fleet_metrics_truncated {int(not is_complete)}\n",
        )
    )


def _value_lines(entry: LatestReading, sensors: Mapping[str, SensorInfo]) -> Iterator[str]:
    device, reading = entry
    if reading is None:
        return
    for sensor, value in sorted(reading.sensors.items()):
        info = sensors.get(sensor)
        labels = _labels(
            hardware_id=device.hardware_id,
            name=device.friendly_name or "",
            group=device.group or "",
            sensor=sensor,
            unit=(info.unit if info else None) or "",
        )
        yield f"{_VALUE}{labels} {float(value)}\n"


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
