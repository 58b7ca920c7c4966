"""FIT, GPX and TCX files become the summary of a workout."""

import gzip
import math
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import gpxpy.gpx
import pytest
from fit_tool.profile.profile_type import Sport as FitSport
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.collect.activity_files.__main__ import parse
from tally.collect.activity_files.track import Track, TrackPoint, great_circle_metres
from tally.collect.model.files import check_start, sport_type_of
from tally.errors import Invalid, TooLarge
from tests.collect import activity_file_factory as files
from tests.collect.activity_file_factory import FORMATS, RIDE, sample

MAX_BYTES = 2_000_000


@pytest.mark.parametrize("file_format", FORMATS)
def test_each_format_gives_the_same_workout(file_format: str) -> None:
    parsed = parse(sample(file_format), MAX_BYTES)
    assert parsed.file_format == file_format
    assert (parsed.started_at, parsed.sport_type) == ("2026-01-01T06:00:00Z", "Ride")
    assert abs(parsed.distance - 10_000) < 1
    assert parsed.elevation == 120
    assert (parsed.moving_seconds, parsed.elapsed_seconds) == (1800, 1800)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_compressed_file_is_the_same_file(file_format: str) -> None:
    content = sample(file_format)
    assert parse(gzip.compress(content), MAX_BYTES) == parse(content, MAX_BYTES)


def test_a_fit_file_without_sessions_is_summed_from_its_records() -> None:
    """A device that was switched off early writes no session."""
    parsed = parse(files.fit(RIDE, sports=()), MAX_BYTES)
    assert abs(parsed.distance - 10_000) < 1
    assert parsed.elevation == 120
    assert parsed.elapsed_seconds == 1800
    assert parsed.sport_type == "Unknown"


def test_sessions_of_one_sport_are_added() -> None:
    parsed = parse(files.fit(RIDE, sports=(FitSport.RUNNING, FitSport.RUNNING)), MAX_BYTES)
    assert parsed.distance == 10_000
    assert parsed.elevation == 120
    assert parsed.sport_type == "Run"


def test_gpx_of_an_independent_writer_is_parsed() -> None:
    """Two segments: the way between them does not count."""
    document = gpxpy.gpx.GPX()
    track = gpxpy.gpx.GPXTrack(name="Lunch walk")
    track.type = "walking"  # type: ignore[assignment]
    document.tracks.append(track)
    for first in (0, 20):
        segment = gpxpy.gpx.GPXTrackSegment()
        rows = RIDE.rows()[first : first + 11]
        segment.points = [
            gpxpy.gpx.GPXTrackPoint(latitude, longitude, elevation=elevation, time=time)
            for time, latitude, longitude, elevation, _ in rows
        ]
        track.segments.append(segment)
    parsed = parse(document.to_xml().encode(), MAX_BYTES)
    assert (parsed.name, parsed.sport_type) == ("Lunch walk", "Walk")
    assert abs(parsed.distance - Decimal(document.length_2d())) < parsed.distance / 200
    assert (parsed.moving_seconds, parsed.elapsed_seconds) == (1200, 1800)


def test_utf_16_is_xml_too() -> None:
    text = files.gpx(RIDE, name="Wörgl").decode().replace("UTF-8", "UTF-16")
    assert parse(text.encode("utf-16"), MAX_BYTES).name == "Wörgl"


@pytest.mark.parametrize(
    ("label", "sport_type"),
    [
        ("Biking", "Ride"),
        ("trail_running", "TrailRun"),
        ("Open Water Swimming", "OpenWaterSwim"),
        ("HIKING", "Hike"),
        ("9", "Run"),
        ("Kite surfing", "Kite surfing"),
        ("", "Unknown"),
        ("\x00\x1b[31m", "[31m"),
    ],
)
def test_sports_of_files_map_to_those_of_strava(label: str, sport_type: str) -> None:
    assert sport_type_of(label) == sport_type


@pytest.mark.parametrize(
    "started_at", ["1989-12-31T00:00:00Z", "1900-01-01T00:00:00Z", "2026-01-03T00:00:00Z"]
)
def test_a_workout_starts_between_1990_and_now(started_at: str) -> None:
    with pytest.raises(Invalid, match="must start between 1990 and now"):
        check_start(started_at, datetime(2026, 1, 1, tzinfo=UTC))
    check_start("2025-12-31T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC))


def test_the_number_of_points_is_limited() -> None:
    track = Track(max_points=2)
    for _ in range(2):
        track.add(TrackPoint(0.0, 47.0, 8.0))
    with pytest.raises(TooLarge, match="at most 2 points"):
        track.add(TrackPoint(0.0, 47.0, 8.0))


def test_noise_is_no_climb_and_a_slow_rise_is() -> None:
    noisy, rising = Track(), Track()
    for index in range(100):
        noisy.add(TrackPoint(float(index), elevation=400.0 + 2 * (index % 2)))
        rising.add(TrackPoint(float(index), elevation=400.0 + index))
    assert noisy.climb == 0
    assert 96 <= rising.climb <= 99


@pytest.mark.parametrize(
    ("file_format", "pause", "high"),
    [("GPX", b"</trkseg><trkseg>", b"<ele>520.0"), ("TCX", b"</Track><Track>", b">520.0<")],
)
def test_a_cable_car_during_a_pause_is_no_climb(
    file_format: str, pause: bytes, high: bytes
) -> None:
    """The sample rises 120 m between two points; here the recording pauses between them."""
    content = sample(file_format)
    assert parse(content, MAX_BYTES).elevation == 120
    point = b"<trkpt" if file_format == "GPX" else b"<Trackpoint"
    first_high = content.rindex(point, 0, content.index(high))
    paused = content[:first_high] + pause + content[first_high:]
    assert parse(paused, MAX_BYTES).elevation == 0


def test_pauses_on_the_way_up_lose_no_climb() -> None:
    track = Track()
    for index in range(100):
        track.add(TrackPoint(float(index), elevation=400.0 + index))
        track.end_segment()
        track.add(TrackPoint(float(index), elevation=400.0 + index))
    assert 96 <= track.climb <= 99


def test_distance_is_measured_on_the_sphere() -> None:
    """From Paris to London, and around the antimeridian."""
    assert math.isclose(great_circle_metres(48.8566, 2.3522, 51.5074, -0.1278), 343_556, abs_tol=9)
    assert great_circle_metres(0, 179.9, 0, -179.9) < 23_000


@settings(max_examples=60, deadline=None)
@given(
    metres=st.floats(min_value=0, max_value=400_000),
    seconds=st.integers(min_value=4_000, max_value=86_400),
)
def test_gpx_and_tcx_of_one_ride_agree(metres: float, seconds: int) -> None:
    """The distance of the points is within 0.1 % of the distance of the device."""
    ride = replace(RIDE, metres=metres, seconds=seconds)
    by_points, by_device = parse(files.gpx(ride), MAX_BYTES), parse(files.tcx(ride), MAX_BYTES)
    assert abs(by_points.distance - by_device.distance) <= by_device.distance / 1000 + 1
    assert by_points.elapsed_seconds == by_device.elapsed_seconds == seconds
