"""All services of the devices backend, for the API and the console."""

from dataclasses import dataclass

from tally.devices.service.history import ReadingHistory
from tally.devices.service.ingestion import IngestionService
from tally.devices.service.keys import ApiKeyService
from tally.devices.service.registry import DeviceRegistry


@dataclass(frozen=True, slots=True)
class DevicesServices:
    """The services of one open backend."""

    keys: ApiKeyService
    registry: DeviceRegistry
    ingestion: IngestionService
    history: ReadingHistory
