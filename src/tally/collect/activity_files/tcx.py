"""TCX (Training Center XML): one activity with laps; the totals of the laps take precedence."""

from typing import Any

from tally.collect.activity_files.track import Track, TrackPoint, build_summary
from tally.collect.activity_files.xml_reader import (
    XmlReader,
    child_text,
    parse_instant,
    parse_number,
)
from tally.collect.model.files import ParsedFile, implausible


class _Laps:
    """The totals of the laps. A total counts only if every lap has it."""

    def __init__(self) -> None:
        self.start: float | None = None
        self._sums: dict[str, float | None] = {"DistanceMeters": 0.0, "TotalTimeSeconds": 0.0}
        self._has_laps = False

    def add(self, element: Any) -> None:
        self._has_laps = True
        line = element.sourceline
        started = parse_instant(element.get("StartTime"), "StartTime", line)
        if started is not None:
            self.start = started if self.start is None else min(self.start, started)
        for name, total in self._sums.items():
            value = parse_number(child_text(element, name), name, line)
            if value is not None and value < 0:
                raise implausible(f"{name} must not be negative (line {line})")
            self._sums[name] = None if value is None or total is None else total + value

    def total(self, name: str) -> float | None:
        return self._sums[name] if self._has_laps else None


def parse_tcx(content: bytes, file_id: str) -> ParsedFile:
    track, laps, reader = Track(), _Laps(), XmlReader(content)
    activities, sport, name = 0, "", ""
    for event, element in reader:
        local, parent = reader.path[-1], reader.path[-2:-1]
        if event == "start":
            if local == "Activity":
                activities += 1
                sport = element.get("Sport") or ""
        elif local == "Trackpoint":
            track.add(_point(element))
        elif local == "Track":
            track.end_segment()
        elif local == "Lap":
            laps.add(element)
        elif local == "Notes" and parent == ["Activity"]:
            name = str(element.text or "")
    if activities != 1:
        raise implausible(f"The TCX file must contain one activity, not {activities}")
    # A lap without movement may report 0 m although its points have positions.
    distance = laps.total("DistanceMeters") or None
    totals = {
        "distance": distance,
        "moving": laps.total("TotalTimeSeconds"),
        "start": laps.start,
    }
    return build_summary(track, totals, file_id=file_id, file_format="TCX", name=name, sport=sport)


def _point(element: Any) -> TrackPoint:
    line = element.sourceline
    position = next((child for child in element if str(child.tag).endswith("Position")), None)
    place = element if position is None else position
    return TrackPoint(
        time=parse_instant(child_text(element, "Time"), "Time", line),
        latitude=parse_number(child_text(place, "LatitudeDegrees"), "LatitudeDegrees", line),
        longitude=parse_number(child_text(place, "LongitudeDegrees"), "LongitudeDegrees", line),
        elevation=parse_number(child_text(element, "AltitudeMeters"), "AltitudeMeters", line),
        distance=parse_number(child_text(element, "DistanceMeters"), "DistanceMeters", line),
    )
