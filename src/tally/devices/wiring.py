"""The backend put together: repositories and services on a store and the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tally.dependencies import DEVICES_ADMIN_KEY, Dependencies
from tally.devices.api.handlers import Announcer, Handlers
from tally.devices.api.routes import device_api
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.keys import KeyRepository
from tally.devices.repository.readings import ReadingRepository
from tally.devices.service.history import History
from tally.devices.service.ingestion import Ingestion
from tally.devices.service.keys import KNOWN_SECONDS, KeyService
from tally.devices.service.registry import NAME_SECONDS, Registry
from tally.kit.backend import Probe
from tally.kit.endpoints import Api
from tally.kit.jobs import Job
from tally.kit.rate_limiter import RateLimiter
from tally.kit.ttl_cache import TTLCache

REPOSITORIES: Final = (DeviceRepository, ReadingRepository, KeyRepository)
MAX_KNOWN: Final = 50_000


@dataclass(frozen=True, slots=True)
class Devices:
    """The backend, open: its routes, and the services behind them, which the console asks too."""

    api: Api
    handlers: Handlers
    jobs: tuple[Job, ...] = ()
    probes: tuple[Probe, ...] = ()


@asynccontextmanager
async def open_devices(dependencies: Dependencies) -> AsyncIterator[Devices]:
    """Build the backend; it has nothing to close."""
    settings, clock, store = dependencies.settings, dependencies.clock, dependencies.store
    devices, readings = DeviceRepository(store), ReadingRepository(store)
    registry = Registry(
        devices, clock, TTLCache(clock, NAME_SECONDS, MAX_KNOWN), TTLCache(clock, 300, MAX_KNOWN)
    )
    handlers = Handlers(
        keys=_keys(dependencies),
        registry=registry,
        ingestion=Ingestion(
            readings,
            registry,
            clock,
            settings.devices_retention_days * 86_400,
            Announcer(dependencies.hub),
        ),
        history=History(readings, devices),
        cursors=dependencies.cursors,
        hub=dependencies.hub,
        admin_token=dependencies.key(DEVICES_ADMIN_KEY),
    )
    origins = tuple(
        origin.strip() for origin in settings.devices_cors_origins.split(",") if origin.strip()
    )
    yield Devices(device_api(handlers, origins), handlers)


def _keys(dependencies: Dependencies) -> KeyService:
    clock, limit = dependencies.clock, dependencies.settings.devices_rate_limit
    return KeyService(
        KeyRepository(dependencies.store),
        clock,
        dependencies.secret(dependencies.settings.devices_key_pepper, "devices-pepper.key"),
        RateLimiter(clock, per_second=limit, burst=2 * limit),
        TTLCache(clock, KNOWN_SECONDS, MAX_KNOWN),
        TTLCache(clock, 300, MAX_KNOWN),
    )
