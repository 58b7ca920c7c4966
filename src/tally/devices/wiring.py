"""Builds the devices backend: repositories, services and routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tally.dependencies import Dependencies
from tally.devices.api.auth import DevicesAuth
from tally.devices.api.events import ReadingStreams
from tally.devices.api.handlers import Handlers
from tally.devices.api.routes import devices_api
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.keys import ApiKeyRepository
from tally.devices.repository.readings import ReadingLog, ReadingRepository, inserted_reading
from tally.devices.service.devices import (
    LAST_SEEN_INTERVAL,
    NAME_CACHE_SECONDS,
    FleetService,
)
from tally.devices.service.history import ReadingHistory
from tally.devices.service.ingestion import IngestionService
from tally.devices.service.keys import KEY_CACHE_SECONDS, LAST_USED_INTERVAL, ApiKeyService
from tally.devices.service.services import DevicesServices
from tally.kit.backend import Probe
from tally.kit.endpoints import Api
from tally.kit.jobs import Job
from tally.kit.operators import protect
from tally.kit.rate_limiter import RateLimiter
from tally.kit.ttl_cache import TTLCache

REPOSITORIES: Final = (DeviceRepository, ReadingRepository, ReadingLog, ApiKeyRepository)
MAX_CACHED: Final = 50_000


@dataclass(frozen=True, slots=True)
class Devices:
    """The open backend: its routes, and its services for the console."""

    api: Api
    services: DevicesServices
    jobs: tuple[Job, ...] = ()
    probes: tuple[Probe, ...] = ()


@asynccontextmanager
async def open_devices(dependencies: Dependencies) -> AsyncIterator[Devices]:
    """Open the backend. It has nothing to close."""
    services = _services(dependencies)
    handlers = Handlers(
        services=services,
        auth=DevicesAuth(services.keys),
        cursors=dependencies.cursors,
        hub=dependencies.hub,
        streams=dependencies.streams,
        readings=ReadingStreams(
            ReadingLog(dependencies.store),
            inserted_reading,
            dependencies.hub,
            dependencies.clock,
        ),
        operators=dependencies.operators,
    )
    yield Devices(protect(devices_api(handlers), dependencies.operators), services)


def _services(dependencies: Dependencies) -> DevicesServices:
    settings, clock, store = dependencies.settings, dependencies.clock, dependencies.store
    repository, readings = DeviceRepository(store), ReadingRepository(store)
    devices = FleetService(
        repository,
        clock,
        TTLCache(clock, NAME_CACHE_SECONDS, MAX_CACHED),
        TTLCache(clock, LAST_SEEN_INTERVAL.total_seconds(), MAX_CACHED),
    )
    ingestion = IngestionService(
        readings,
        devices,
        clock,
        settings.devices_retention_days * 86_400,
    )
    return DevicesServices(
        _keys(dependencies), devices, ingestion, ReadingHistory(readings, repository)
    )


def _keys(dependencies: Dependencies) -> ApiKeyService:
    clock, limit = dependencies.clock, dependencies.settings.devices_rate_limit
    return ApiKeyService(
        ApiKeyRepository(dependencies.store),
        clock,
        dependencies.secret(dependencies.settings.devices_key_pepper, "devices-pepper.key"),
        RateLimiter(clock, per_second=limit, burst=2 * limit),
        TTLCache(clock, KEY_CACHE_SECONDS, MAX_CACHED),
        TTLCache(clock, LAST_USED_INTERVAL.total_seconds(), MAX_CACHED),
    )
