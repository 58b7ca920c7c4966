"""Activity files: what a parsed file contains, and which of its values are plausible."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tally.errors import Invalid, TooLarge

MAX_LABEL_LENGTH: Final = 256
MAX_POINTS: Final = 200_000
MAX_WORKOUT_SECONDS: Final = 31 * 86_400
MAX_WORKOUT_METRES: Final = 20_000_000
MAX_CLIMB_METRES: Final = 200_000
# Metres per second: faster than any athlete, and lenient with jumps of a GPS receiver.
MAX_AVERAGE_SPEED: Final = 100
# GPS receivers and watches report times before their first fix as 1970, 1980 or 1989.
EARLIEST_START: Final = datetime(1990, 1, 1, tzinfo=UTC)
MAX_START_AHEAD: Final = timedelta(days=1)
UNKNOWN_SPORT: Final = "Unknown"

# Strava sport types by the names that FIT, TCX and GPX files use, in lower case without spaces,
# hyphens and underscores. Numbers are those that Strava writes into GPX files.
SPORT_LABELS: Final = {
    **dict.fromkeys(("ride", "biking", "cycling", "bike", "cyclingroad", "roadcycling"), "Ride"),
    **dict.fromkeys(("1", "bicycle", "roadbiking", "commuting"), "Ride"),
    **dict.fromkeys(("mountainbiking", "mountainbikeride", "cyclingmountain"), "MountainBikeRide"),
    **dict.fromkeys(("gravelride", "gravelcycling", "cyclinggravelcycling"), "GravelRide"),
    **dict.fromkeys(("ebikeride", "ebiking", "ebike"), "EBikeRide"),
    **dict.fromkeys(("virtualride", "indoorcycling", "virtualactivity"), "VirtualRide"),
    **dict.fromkeys(("run", "running", "9", "streetrunning", "trackrunning"), "Run"),
    **dict.fromkeys(("trailrun", "trailrunning"), "TrailRun"),
    **dict.fromkeys(("treadmillrunning", "treadmillrun", "virtualrun"), "TreadmillRun"),
    **dict.fromkeys(("swim", "swimming", "16", "lapswimming", "poolswimming"), "Swim"),
    **dict.fromkeys(("openwaterswimming", "openwaterswim", "openwater"), "OpenWaterSwim"),
    **dict.fromkeys(("walk", "walking", "10", "casualwalking", "speedwalking"), "Walk"),
    **dict.fromkeys(("hike", "hiking", "4", "mountaineering"), "Hike"),
}


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The summary of an activity file.

    `file_id` identifies the decompressed content. Flat, because it is one JSON document.
    """

    file_id: str
    file_format: str
    name: str
    sport_type: str
    started_at: str
    distance: Decimal
    elevation: Decimal
    moving_seconds: int
    elapsed_seconds: int


def known_sport_type(label: str) -> str | None:
    """Return the Strava sport type for a sport in a file; None if Tally does not know it."""
    return SPORT_LABELS.get("".join(letter for letter in label.lower() if letter not in " -_"))


def sport_type_of(label: str | None) -> str:
    """Return the Strava sport type for a sport in a file, or the label itself if it has none."""
    text = clean_label(label)
    return known_sport_type(text) or text or UNKNOWN_SPORT


def clean_label(text: str | None) -> str:
    """Return a text of a file in one line, without characters that cannot be printed."""
    words = (text or "")[: 4 * MAX_LABEL_LENGTH].split()
    printable = ("".join(letter for letter in word if letter.isprintable()) for word in words)
    return " ".join(word for word in printable if word)[:MAX_LABEL_LENGTH]


def implausible(message: str) -> Invalid:
    return Invalid(message, code="invalid_workout")


def too_complex(message: str) -> TooLarge:
    return TooLarge(message, code="file_too_complex")


def check_totals(distance: Decimal, elevation: Decimal, moving: float, elapsed: float) -> None:
    """Require totals that a person can reach."""
    for name, value, limit, unit in (
        ("distance", distance, MAX_WORKOUT_METRES, "m"),
        ("elevation gain", elevation, MAX_CLIMB_METRES, "m"),
        ("moving time", moving, MAX_WORKOUT_SECONDS, "s"),
        ("elapsed time", elapsed, MAX_WORKOUT_SECONDS, "s"),
    ):
        if not 0 <= value <= limit:
            raise implausible(f"The {name} must be from 0 to {limit} {unit}")
    # A file without a duration counts as one of a second.
    if distance > MAX_AVERAGE_SPEED * Decimal(max(moving, elapsed, 1)):
        raise implausible(
            f"The average speed of the workout must be at most {MAX_AVERAGE_SPEED} m/s"
        )


def check_start(started_at: str, now: datetime) -> None:
    """Require a start between 1990 and tomorrow."""
    start = datetime.fromisoformat(started_at)
    if not EARLIEST_START <= start <= now + MAX_START_AHEAD:
        raise implausible(
            f"The workout must start between {EARLIEST_START.year} and now, not at {started_at}"
        )
