"""Writes activity files for tests: GPX and TCX as text, FIT with the library `fit-tool`."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from fit_tool.fit_file_builder import FitFileBuilder
from fit_tool.profile.messages.file_id_message import FileIdMessage
from fit_tool.profile.messages.record_message import RecordMessage
from fit_tool.profile.messages.session_message import SessionMessage
from fit_tool.profile.profile_type import FileType, Manufacturer
from fit_tool.profile.profile_type import Sport as FitSport

METRES_PER_DEGREE = 111_194.93


@dataclass(frozen=True, slots=True)
class RecordedRide:
    """A ride due north at constant speed, with a climb halfway."""

    start: datetime
    metres: float = 10_000.0
    seconds: int = 1_800
    points: int = 31
    climb: float = 120.0

    def rows(self) -> list[tuple[datetime, float, float, float, float]]:
        """Return time, latitude, longitude, elevation and distance of each point."""
        rows = []
        for index in range(self.points):
            share = index / (self.points - 1)
            rows.append(
                (
                    self.start + timedelta(seconds=self.seconds * share),
                    47.0 + self.metres * share / METRES_PER_DEGREE,
                    8.0,
                    400.0 + (self.climb if share >= 0.5 else 0.0),
                    self.metres * share,
                )
            )
        return rows


RIDE = RecordedRide(datetime(2026, 1, 1, 6, 0, tzinfo=UTC))
FORMATS = ("FIT", "GPX", "TCX")


@cache
def sample(file_format: str) -> bytes:
    """Return a fixed ride as a file of this format."""
    return as_file(RIDE, file_format)


def as_file(ride: RecordedRide, file_format: str) -> bytes:
    if file_format == "FIT":
        return fit(ride)
    return gpx(ride) if file_format == "GPX" else tcx(ride)


def gpx(ride: RecordedRide, *, sport: str = "cycling", name: str = "Evening ride") -> bytes:
    points = "".join(
        f'<trkpt lat="{latitude:.7f}" lon="{longitude}"><ele>{elevation}</ele>'
        f"<time>{_iso(time)}</time></trkpt>\n"
        for time, latitude, longitude, elevation, _ in ride.rows()
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1">'
        f"<metadata><time>{_iso(ride.start)}</time></metadata>"
        f"<trk><name>{name}</name><type>{sport}</type><trkseg>\n{points}</trkseg></trk></gpx>"
    ).encode()


def tcx(ride: RecordedRide, *, sport: str = "Biking") -> bytes:
    points = "".join(
        f"<Trackpoint><Time>{_iso(time)}</Time><Position><LatitudeDegrees>{latitude:.7f}"
        f"</LatitudeDegrees><LongitudeDegrees>{longitude}</LongitudeDegrees></Position>"
        f"<AltitudeMeters>{elevation}</AltitudeMeters><DistanceMeters>{distance:.2f}"
        "</DistanceMeters></Trackpoint>\n"
        for time, latitude, longitude, elevation, distance in ride.rows()
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<TrainingCenterDatabase'
        ' xmlns="http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2"><Activities>'
        f'<Activity Sport="{sport}"><Id>{_iso(ride.start)}</Id>'
        f'<Lap StartTime="{_iso(ride.start)}"><TotalTimeSeconds>{ride.seconds}'
        f"</TotalTimeSeconds><DistanceMeters>{ride.metres}</DistanceMeters>"
        f"<Track>{points}</Track></Lap></Activity></Activities></TrainingCenterDatabase>"
    ).encode()


def fit(
    ride: RecordedRide,
    *,
    sports: tuple[FitSport, ...] = (FitSport.CYCLING,),
    file_type: FileType = FileType.ACTIVITY,
) -> bytes:
    """Build a FIT file with a session per sport; without a sport, with records only."""
    builder = FitFileBuilder(auto_define=True)
    file_id = FileIdMessage()
    file_id.type = file_type
    file_id.manufacturer = Manufacturer.DEVELOPMENT.value
    file_id.time_created = _milliseconds(ride.start)
    builder.add(file_id)
    for time, latitude, longitude, elevation, distance in ride.rows():
        record = RecordMessage()
        record.timestamp = _milliseconds(time)
        record.position_lat = latitude
        record.position_long = longitude
        record.altitude = elevation
        record.distance = distance
        builder.add(record)
    for sport in sports:
        session = SessionMessage()
        session.sport = sport
        session.start_time = _milliseconds(ride.start)
        session.timestamp = _milliseconds(ride.start) + ride.seconds * 1000
        session.total_distance = ride.metres / len(sports)
        session.total_elapsed_time = ride.seconds / len(sports)
        session.total_timer_time = ride.seconds / len(sports)
        session.total_ascent = round(ride.climb / len(sports))
        builder.add(session)
    return bytes(builder.build().to_bytes())


def _iso(time: datetime) -> str:
    return time.isoformat().removesuffix("+00:00") + "Z"


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)
