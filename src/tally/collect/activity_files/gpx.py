"""GPX 1.0 and 1.1: all tracks of the file are one workout; routes and waypoints do not count."""

from typing import Any

from lxml import etree

from tally.collect.activity_files.track import Track, TrackPoint, build_summary
from tally.collect.activity_files.xml_reader import (
    XmlReader,
    child_text,
    parse_instant,
    parse_number,
)
from tally.collect.model.files import ParsedFile, implausible


def parse_gpx(content: bytes, file_id: str) -> ParsedFile:
    track, reader = Track(), XmlReader(content)
    labels = {"name": "", "type": ""}
    for event, element in reader:
        if event == "start":
            continue
        local, parent = reader.path[-1], reader.path[-2:-1]
        if local == "trkpt":
            track.add(_point(element))
        elif local == "trkseg":
            track.end_segment()
        elif parent == ["trk"] and local in labels and element.text and not labels[local]:
            labels[local] = str(element.text)
    if track.start is None:
        raise implausible("The GPX file must contain a track with times")
    return build_summary(
        track,
        {},
        file_id=file_id,
        file_format="GPX",
        name=labels["name"],
        sport=labels["type"],
    )


def _point(element: Any) -> TrackPoint:
    line = element.sourceline
    latitude = parse_number(element.get("lat"), "lat", line)
    longitude = parse_number(element.get("lon"), "lon", line)
    if latitude is None or longitude is None:
        raise implausible(f"{etree.QName(element).localname} must have lat and lon (line {line})")
    return TrackPoint(
        time=parse_instant(child_text(element, "time"), "time", line),
        latitude=latitude,
        longitude=longitude,
        elevation=parse_number(child_text(element, "ele"), "ele", line),
    )
