"""Example responses about sessions, exports and account deletions."""

from typing import Final

from tally.collect.api.schemas import exports, sessions
from tally.collect.api.schemas.examples import AUDIT_EVENT, TIME

SESSION: Final = sessions.SessionBody(
    "5b1f0c9d2e7a4b36a1c8d4e0f7b2936c", TIME, TIME, "2026-02-14T10:30:00Z", True
)
DELETION_ACCEPTED: Final = sessions.DeletionAccepted(TIME)
DELETION: Final = sessions.DeletionBody(
    "7d1c0f5e", TIME, ["strava", "items"], 3, "2026-01-15T10:31:00Z", "strava: unavailable", "6f1d"
)
EXPORT: Final = exports.ExportBody(
    exported_at_utc=TIME,
    milestones=[{"milestoneId": "01JHKZ7V5X9T4QZ1M2N3P4R5S6", "progress": 42_195, "awards": []}],
    workouts=[{"name": "Morning ride", "sportType": "GravelRide", "distanceMeters": 42_195.5}],
    profile={"userId": "7d1c0f5e", "email": "ann@example.org", "plan": "free"},
    strava={"athleteId": 13_579_246, "scope": "activity:read_all,read"},
    other=[],
    events=[],
    sessions=[SESSION],
    audit_events=[AUDIT_EVENT],
)
