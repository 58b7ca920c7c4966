"""Strava's athletes, activities, webhook events and errors."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tally.kit.clock import rfc3339

# The deprecated `type` for each `sport_type`, where they differ.
LEGACY_TYPES: Final = {
    "MountainBikeRide": "Ride",
    "GravelRide": "Ride",
    "EMountainBikeRide": "EBikeRide",
    "TrailRun": "Run",
    "Pickleball": "Workout",
}


# Constant fields of an activity in a list.
SUMMARY_DEFAULTS: Final[dict[str, Any]] = {
    "resource_state": 2,
    "workout_type": None,
    "timezone": "(GMT+00:00) UTC",
    "utc_offset": 0.0,
    "start_latlng": [],
    "end_latlng": [],
    "achievement_count": 0,
    "kudos_count": 0,
    "comment_count": 0,
    "athlete_count": 1,
    "photo_count": 0,
    "gear_id": None,
    "has_heartrate": False,
}
# Constant fields that only a detailed activity has.
DETAIL_DEFAULTS: Final[dict[str, Any]] = {
    "resource_state": 3,
    "description": None,
    "calories": 0.0,
}


class StravaError(Exception):
    """An error response in Strava's format."""

    def __init__(self, status: int, message: str, resource: str, field: str, code: str) -> None:
        super().__init__(f"{message}: {resource} {field} {code}")
        self.status = status
        self.body = {
            "message": message,
            "errors": [{"resource": resource, "field": field, "code": code}],
        }


def bad_request(resource: str, field: str, code: str = "invalid") -> StravaError:
    return StravaError(400, "Bad Request", resource, field, code)


def unauthorized(resource: str, field: str, code: str = "invalid") -> StravaError:
    return StravaError(401, "Authorization Error", resource, field, code)


def not_found(resource: str) -> StravaError:
    return StravaError(404, "Record Not Found", resource, "id", "invalid")


class StravaAthlete(msgspec.Struct, frozen=True):
    """An athlete with an account."""

    id: int
    firstname: str
    lastname: str

    def summary(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "username": None,
            "resource_state": 2,
            "firstname": self.firstname,
            "lastname": self.lastname,
            "city": None,
            "state": None,
            "country": None,
            "sex": None,
            "premium": False,
            "summit": False,
            "badge_type_id": 0,
            "profile_medium": "avatar/athlete/medium.png",
            "profile": "avatar/athlete/large.png",
        }


class StravaActivity(msgspec.Struct, frozen=True, kw_only=True):
    """An activity: durations in seconds, distances in metres, `start` in epoch seconds.

    The fields are those of Strava's API that the backends read.
    """

    id: int
    athlete_id: int
    name: str
    sport_type: str
    start: int
    distance: float = 0.0
    moving_time: int = 0
    elapsed_time: int = 0
    total_elevation_gain: float = 0.0
    manual: bool = False
    trainer: bool = False
    commute: bool = False
    private: bool = False
    flagged: bool = False

    @property
    def type(self) -> str:
        return LEGACY_TYPES.get(self.sport_type, self.sport_type)

    def detail(self) -> dict[str, Any]:
        """The detailed representation."""
        route = {"id": f"a{self.id}", "polyline": "", "summary_polyline": "", "resource_state": 3}
        return self.summary() | DETAIL_DEFAULTS | {"map": route}

    def summary(self) -> dict[str, Any]:
        """The representation in a list of activities."""
        start = rfc3339(datetime.fromtimestamp(self.start, UTC))
        return SUMMARY_DEFAULTS | {
            "id": self.id,
            "external_id": None if self.manual else f"made-up-{self.id}.fit",
            "upload_id": None if self.manual else self.id + 1,
            "athlete": {"id": self.athlete_id, "resource_state": 1},
            "name": self.name,
            "distance": self.distance,
            "moving_time": self.moving_time,
            "elapsed_time": self.elapsed_time,
            "total_elevation_gain": self.total_elevation_gain,
            "type": self.type,
            "sport_type": self.sport_type,
            "start_date": start,
            "start_date_local": start,
            "map": {"id": f"a{self.id}", "summary_polyline": "", "resource_state": 2},
            "trainer": self.trainer,
            "commute": self.commute,
            "manual": self.manual,
            "private": self.private,
            "visibility": "only_me" if self.private else "everyone",
            "flagged": self.flagged,
            "average_speed": round(self.distance / self.moving_time, 3)
            if self.moving_time
            else 0.0,
        }


class StravaEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook; all values of `updates` are strings."""

    aspect_type: str
    event_time: int
    object_id: int
    object_type: str
    owner_id: int
    subscription_id: int
    updates: dict[str, str] = {}
