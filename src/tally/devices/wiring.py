"""The backend put together: repositories and services on a store and the settings."""

from dataclasses import dataclass
from typing import Final

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
from tally.kit.clock import Clock
from tally.kit.cursors import Cursors
from tally.kit.hub import Hub
from tally.kit.jobs import Job
from tally.kit.limits import RateLimiter
from tally.kit.operations import Api
from tally.kit.ttl_cache import TTLCache
from tally.settings import Secret, Settings
from tally.store.store import Store

REPOSITORIES: Final = (DeviceRepository, ReadingRepository, KeyRepository)
MAX_KNOWN: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the backend is given: shared parts, and the secrets that are kept for it."""

    settings: Settings
    clock: Clock
    hub: Hub
    cursors: Cursors
    store: Store
    pepper: Secret
    admin_token: Secret


@dataclass(frozen=True, slots=True)
class Devices:
    """The backend, open: its routes, and the services behind them, which the console asks too."""

    api: Api
    handlers: Handlers
    jobs: tuple[Job, ...] = ()
    probes: tuple[Probe, ...] = ()


def open_devices(given: Surroundings) -> Devices:
    """The backend; there is nothing to close."""
    settings, clock, store = given.settings, given.clock, given.store
    devices, readings = DeviceRepository(store), ReadingRepository(store)
    registry = Registry(
        devices, clock, TTLCache(clock, NAME_SECONDS, MAX_KNOWN), TTLCache(clock, 300, MAX_KNOWN)
    )
    handlers = Handlers(
        keys=_keys(given),
        registry=registry,
        ingestion=Ingestion(
            readings,
            registry,
            clock,
            settings.devices_retention_days * 86_400,
            Announcer(given.hub),
        ),
        history=History(readings, devices),
        cursors=given.cursors,
        hub=given.hub,
        admin_token=given.admin_token,
    )
    origins = tuple(
        origin.strip() for origin in settings.devices_cors_origins.split(",") if origin.strip()
    )
    return Devices(device_api(handlers, origins), handlers)


def _keys(given: Surroundings) -> KeyService:
    clock, limit = given.clock, given.settings.devices_rate_limit
    return KeyService(
        KeyRepository(given.store),
        clock,
        given.pepper,
        RateLimiter(clock, per_second=limit, burst=2 * limit),
        TTLCache(clock, KNOWN_SECONDS, MAX_KNOWN),
        TTLCache(clock, 300, MAX_KNOWN),
    )
