"""The backend's services as one object, for handlers, jobs and the console."""

from dataclasses import dataclass

from tally.cricket.service.activities.devices import DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.live.replays import ReplayService
from tally.cricket.service.queries.services import QueryServices
from tally.cricket.service.sync.reference_data import SyncService


@dataclass(frozen=True, slots=True, kw_only=True)
class CricketServices:
    """Every use case that a request, a job or the console can start."""

    queries: QueryServices
    devices: DeviceService
    follows: FollowService
    activities: ActivityService
    replays: ReplayService
    sync: SyncService
