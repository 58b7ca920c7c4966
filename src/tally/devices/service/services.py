"""All services of the devices backend, for the API and the console."""

from dataclasses import dataclass

from tally.devices.service.alarms import AlarmService
from tally.devices.service.charts import ChartService
from tally.devices.service.claims import ClaimService
from tally.devices.service.deletions import DeviceDeletions
from tally.devices.service.desired_states import DesiredStateService
from tally.devices.service.devices import FleetService
from tally.devices.service.fleet_queries import FleetQueries
from tally.devices.service.groups import GroupService
from tally.devices.service.history import ReadingHistory
from tally.devices.service.ingestion import IngestionService
from tally.devices.service.key_scopes import KeyScopes
from tally.devices.service.keys import ApiKeyService
from tally.devices.service.sensors import SensorService


@dataclass(frozen=True, slots=True)
class FleetServices:
    """Groups, sensors, desired states, alarms, and queries over many boards."""

    sensors: SensorService
    groups: GroupService
    desired_states: DesiredStateService
    queries: FleetQueries
    alarms: AlarmService


@dataclass(frozen=True, slots=True)
class LifecycleServices:
    """How boards obtain keys, and how they are deleted."""

    claims: ClaimService
    deletions: DeviceDeletions


@dataclass(frozen=True, slots=True)
class DevicesServices:
    """The services of one open backend."""

    keys: ApiKeyService
    devices: FleetService
    ingestion: IngestionService
    history: ReadingHistory
    charts: ChartService
    fleet: FleetServices
    scopes: KeyScopes
    lifecycle: LifecycleServices
