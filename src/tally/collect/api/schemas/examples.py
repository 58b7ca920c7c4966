"""Example requests and responses for the OpenAPI document."""

from typing import Any, Final

from tally.collect.api.schemas import collection, responses

TIME: Final = "2026-01-15T10:30:00Z"
MILESTONE_ID: Final = "01JHKZ7V5X9T4QZ1M2N3P4R5S6"

STRAVA_STATUS: Final = responses.StravaStatus(
    True, 13_579_246, "activity:read_all,read", TIME, last_synced_at_utc=TIME
)
ME: Final = responses.MeBody(
    "7d1c0f5e", "ann@example.org", "free", TIME, STRAVA_STATUS, responses.ItemCounts(42, 2, 9)
)
WORKOUT: Final = responses.WorkoutBody(
    "STRAVA#016000000001",
    "strava",
    16_000_000_001,
    "Morning ride",
    "GravelRide",
    TIME,
    42_195.5,
    380.0,
    6_300,
    6_900,
)
FILE_WORKOUT: Final = responses.WorkoutBody(
    "FILE#2cf24dba5fb0a30e26e83b2ac5b9e29e",
    "file",
    None,
    "Morning ride",
    "Ride",
    TIME,
    42_201.0,
    377.0,
    6_301,
    6_900,
    duplicate_of="STRAVA#016000000001",
)
GPX: Final = (
    '<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><type>cycling</type><trkseg>'
    '<trkpt lat="47.0" lon="8.5"><ele>400</ele><time>2026-01-15T10:30:00Z</time></trkpt>'
    '<trkpt lat="47.1" lon="8.5"><ele>420</ele><time>2026-01-15T11:00:00Z</time></trkpt>'
    "</trkseg></trk></gpx>"
)
_MESH: Final[list[dict[str, Any]]] = [
    {
        "shape": "box",
        "position": [0, 0.1, 0],
        "rotation": [0, 0, 0],
        "scale": [1.6, 0.2, 1.2],
        "colour": "#7d7f85",
    }
]
_ATTACH: Final[dict[str, Any]] = {"to": None, "at": [0, 0, 0]}
MODEL: Final = collection.ModelBody(
    "discus-thrower", "Discus thrower", "An athlete in marble, wound up for the throw.", 12
)
PART: Final = collection.PartBody(
    1, "Plinth", "A slab of granite that carries it all.", _MESH, _ATTACH
)
MODEL_WITH_PARTS: Final = collection.ModelWithParts(
    MODEL.model_id, MODEL.name, MODEL.description, 12, [PART]
)
AWARD: Final = collection.AwardBody(
    1, PART.name, PART.description, 41_667, TIME, "6f1d2c3b", _MESH, _ATTACH
)
MILESTONE: Final = collection.MilestoneBody(
    milestone_id=MILESTONE_ID,
    model_id="discus-thrower",
    sport="RIDE",
    metric="DISTANCE_METERS",
    total_target=500_000,
    progress=42_195.5,
    percent=8,
    parts_total=12,
    parts_minted=1,
    status="ACTIVE",
    period_start_at_utc=TIME,
    period_end_at_utc=None,
    created_at_utc=TIME,
    updated_at_utc=TIME,
    completed_at_utc=None,
    version=2,
    awards=[AWARD],
    next_part=collection.NextPart(2, 83_334, 41_138.5),
)
NEW_MILESTONE: Final = {
    "modelId": "discus-thrower",
    "sport": "RIDE",
    "metric": "DISTANCE_METERS",
    "totalTarget": 500_000,
}
MILESTONE_CHANGE: Final = {"totalTarget": 400_000}
EVENT: Final = {
    "object_type": "activity",
    "object_id": 16_000_000_001,
    "aspect_type": "create",
    "owner_id": 13_579_246,
    "subscription_id": 120_475,
    "event_time": 1_767_225_600,
    "updates": {},
}
PARKED_EVENT: Final = responses.ParkedEventBody(
    "5f2b7c1d9e", 13_579_246, "activity", 16_000_000_001, "create", "needs_relink", 1, TIME
)
AUDIT_EVENT: Final = responses.AuditBody(
    "STRAVA_CONNECTED", "7d1c0f5e", 1_767_225_600, "6f1d", "6f1d", {"athlete": 13_579_246}, None
)
