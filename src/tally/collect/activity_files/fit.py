"""FIT: the totals of the sessions, or those of the records if the device was switched off early."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import fitdecode

from tally.collect.activity_files.track import Track, TrackPoint, build_summary
from tally.collect.activity_files.xml_reader import corrupt
from tally.collect.model.files import ParsedFile, implausible, known_sport_type, sport_type_of

SEMICIRCLES_PER_DEGREE: Final = 2**31 / 180
MAX_SESSIONS: Final = 100


def parse_fit(content: bytes, file_id: str) -> ParsedFile:
    track, sessions, sport = Track(), list[Mapping[str, Any]](), ""
    for name, fields in _messages(content):
        if name == "record":
            track.add(_point(fields))
        elif name == "session":
            sessions.append(fields)
        elif name == "sport":
            sport = str(fields.get("sport") or "")
        elif name == "file_id" and fields.get("type") not in {"activity", 4}:
            raise implausible(f"The FIT file must be an activity, not {fields.get('type')}")
    if len(sessions) > MAX_SESSIONS:
        raise implausible(f"The FIT file must have at most {MAX_SESSIONS} sessions")
    sports = {_sport(session) for session in sessions} or {sport}
    if len(sports) > 1:
        names = ", ".join(sorted(map(sport_type_of, sports)))
        raise implausible(f"The FIT file must contain one sport, not {names}; split it")
    return build_summary(
        track,
        _totals(sessions),
        file_id=file_id,
        file_format="FIT",
        name="",
        sport=sports.pop(),
    )


def _messages(content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the fields of each message; require valid checksums."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with fitdecode.FitReader(
                io.BytesIO(content),
                check_crc=fitdecode.CrcCheck.RAISE,
                error_handling=fitdecode.ErrorHandling.IGNORE,
            ) as reader:
                for frame in reader:
                    if isinstance(frame, fitdecode.FitDataMessage):
                        yield frame.name, {field.name: field.value for field in frame.fields}
        except fitdecode.FitCRCError as error:
            raise corrupt("The FIT file is damaged: its checksum is wrong") from error
        except fitdecode.FitError as error:
            raise corrupt(f"The FIT file is damaged or truncated: {str(error)[:200]}") from error


def _point(fields: Mapping[str, Any]) -> TrackPoint:
    return TrackPoint(
        time=_epoch(fields.get("timestamp")),
        latitude=_degrees(fields.get("position_lat")),
        longitude=_degrees(fields.get("position_long")),
        elevation=_number(fields.get("enhanced_altitude", fields.get("altitude"))),
        distance=_number(fields.get("distance")),
    )


def _totals(sessions: list[Mapping[str, Any]]) -> dict[str, float | None]:
    """Add up the sessions. A total counts only if every session has it."""
    if not sessions:
        return {}
    starts = [_epoch(session.get("start_time")) for session in sessions]
    return {
        "distance": _sum(sessions, "total_distance"),
        "elevation": _sum(sessions, "total_ascent"),
        "moving": _sum(sessions, "total_timer_time"),
        "elapsed": _sum(sessions, "total_elapsed_time"),
        "start": min((start for start in starts if start is not None), default=None),
    }


def _sum(sessions: list[Mapping[str, Any]], name: str) -> float | None:
    values = [_number(session.get(name)) for session in sessions]
    return None if None in values else sum(value for value in values if value is not None)


def _sport(session: Mapping[str, Any]) -> str:
    """Return the sub-sport if Tally knows it, otherwise the sport."""
    sport, sub_sport = str(session.get("sport") or ""), str(session.get("sub_sport") or "")
    names = (f"{sub_sport} {sport}", f"{sport} {sub_sport}", sub_sport)
    return next((name for name in names if known_sport_type(name)), sport)


def _epoch(value: object) -> float | None:
    if not isinstance(value, datetime):
        return None  # a device without a clock counts seconds since it was switched on
    return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()


def _degrees(value: object) -> float | None:
    number = _number(value)
    return None if number is None else number / SEMICIRCLES_PER_DEGREE


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
