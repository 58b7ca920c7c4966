"""Builds the devices backend: repositories, services and routes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import Gauge

from tally.dependencies import Dependencies
from tally.devices.api.alarm_events import AlarmStreams
from tally.devices.api.alarm_handlers import AlarmHandlers
from tally.devices.api.auth import DevicesAuth
from tally.devices.api.events import ReadingStreams
from tally.devices.api.fleet_handlers import FleetHandlers
from tally.devices.api.fleet_routes import DeviceFleetHandlers
from tally.devices.api.handlers import Handlers
from tally.devices.api.lifecycle_handlers import LifecycleHandlers
from tally.devices.api.routes import devices_api
from tally.devices.api.webhooks import alarm_source, reading_source
from tally.devices.jobs import devices_jobs
from tally.devices.repository.alarm_rules import AlarmRuleRepository
from tally.devices.repository.alarm_watch import AlarmWatchRepository
from tally.devices.repository.alarms import AlarmLog, AlarmRepository, changed_alarm
from tally.devices.repository.deletions import DeviceDeletionRepository
from tally.devices.repository.desired_states import DesiredStateRepository
from tally.devices.repository.device_removal import DeviceRemovalRepository
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.groups import GroupRepository
from tally.devices.repository.keys import ApiKeyRepository
from tally.devices.repository.measurements import MeasurementRepository
from tally.devices.repository.rate_limits import TokenBucketRepository
from tally.devices.repository.readings import ReadingLog, ReadingRepository, inserted_reading
from tally.devices.repository.rollups import RollupRepository
from tally.devices.repository.sensors import SensorRepository
from tally.devices.service.alarm_consumer import AlarmEvaluator, AlarmStores
from tally.devices.service.alarms import AlarmService
from tally.devices.service.charts import ChartService
from tally.devices.service.claims import (
    ADDRESS_BURST,
    ADDRESS_RATE,
    TOTAL_BURST,
    TOTAL_RATE,
    ClaimService,
)
from tally.devices.service.deletions import DeviceDeletions, DeviceDeletionWorker
from tally.devices.service.desired_states import VERSION_CACHE_SECONDS, DesiredStateService
from tally.devices.service.devices import LAST_SEEN_INTERVAL, NAME_CACHE_SECONDS, FleetService
from tally.devices.service.fleet_queries import FleetQueries
from tally.devices.service.groups import GroupService
from tally.devices.service.history import ReadingHistory
from tally.devices.service.ingestion import IngestionService
from tally.devices.service.key_scopes import GROUP_CACHE_SECONDS, KeyScopes
from tally.devices.service.keys import KEY_CACHE_SECONDS, LAST_USED_INTERVAL, ApiKeyService
from tally.devices.service.rate_limits import SharedRateLimiter
from tally.devices.service.rollup_builder import RollupBuilder
from tally.devices.service.rollups import RollupConsumer
from tally.devices.service.sensors import SENSOR_CACHE_SECONDS, SensorService
from tally.devices.service.services import DevicesServices, FleetServices, LifecycleServices
from tally.instance.repository.consumers import ConsumerLocks, ConsumerRepository
from tally.instance.webhooks.sources import WebhookSource
from tally.kit.backend import Probe
from tally.kit.clock import SystemClock
from tally.kit.endpoints import Api
from tally.kit.ids import new_uuid
from tally.kit.jobs import Job
from tally.kit.operators import protect
from tally.kit.tasks import cancel_all
from tally.kit.ttl_cache import TTLCache

REPOSITORIES: Final = (
    DeviceRepository,
    ReadingRepository,
    ReadingLog,
    MeasurementRepository,
    RollupRepository,
    ApiKeyRepository,
    GroupRepository,
    SensorRepository,
    DesiredStateRepository,
    AlarmRuleRepository,
    AlarmRepository,
    AlarmWatchRepository,
    AlarmLog,
    TokenBucketRepository,
    DeviceDeletionRepository,
    DeviceRemovalRepository,
)
MAX_CACHED: Final = 50_000


@dataclass(frozen=True, slots=True)
class Devices:
    """The open backend: its routes, and its services for the console."""

    api: Api
    services: DevicesServices
    jobs: tuple[Job, ...] = ()
    probes: tuple[Probe, ...] = ()
    webhook_sources: tuple[WebhookSource, ...] = ()


@asynccontextmanager
async def open_devices(dependencies: Dependencies) -> AsyncIterator[Devices]:
    """Open the backend. It has nothing to close."""
    rollups = _rollups(dependencies)
    services = _services(dependencies, rollups)
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
    fleet = DeviceFleetHandlers(
        FleetHandlers(services, dependencies.cursors), _alarm_handlers(dependencies, services)
    )
    lifecycle = LifecycleHandlers(services, dependencies.cursors)
    api = protect(devices_api(handlers, fleet, lifecycle), dependencies.operators)
    consuming = {
        asyncio.create_task(rollups.consumer.run(), name="device-rollups"),
        asyncio.create_task(_alarm_evaluator(dependencies).run(), name="device-alarms"),
    }
    try:
        yield Devices(
            api,
            services,
            _jobs(dependencies, services, rollups.builder),
            webhook_sources=(
                reading_source(ReadingLog(dependencies.store), inserted_reading),
                alarm_source(AlarmLog(dependencies.store), changed_alarm),
            ),
        )
    finally:
        await cancel_all(consuming)


@dataclass(frozen=True, slots=True)
class _Rollups:
    builder: RollupBuilder
    consumer: RollupConsumer


def _rollups(dependencies: Dependencies) -> _Rollups:
    store, clock = dependencies.store, dependencies.clock
    rollups, measurements = RollupRepository(store), MeasurementRepository(store)
    retention = dependencies.settings.devices_retention_days * 86_400
    builder = RollupBuilder(rollups, measurements, DeviceRepository(store), clock, retention)
    # The lock is shared with other instances, whose time no test controls.
    system_clock = SystemClock()
    locks = ConsumerLocks(ConsumerRepository(store), system_clock, new_uuid())
    consumer = RollupConsumer(rollups, measurements, builder, locks, system_clock)

    def lag() -> float:
        oldest = consumer.oldest_change_at
        return 0.0 if oldest is None else max(0.0, clock.time_ns() / 1e9 - oldest)

    Gauge(
        "tally_devices_rollup_lag_seconds",
        "Age of the oldest change of readings that the roll-ups of this instance wait for",
        registry=dependencies.metrics.registry,
    ).set_function(lag)
    return _Rollups(builder, consumer)


def _services(dependencies: Dependencies, rollups: _Rollups) -> DevicesServices:
    builder = rollups.builder
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
    charts = ChartService(
        builder.measurements, builder.rollups, repository, builder, rollups.consumer.hurry
    )
    history = ReadingHistory(readings, repository, clock)
    groups = GroupService(GroupRepository(store), devices)
    sensors = SensorService(
        SensorRepository(store), TTLCache(clock, SENSOR_CACHE_SECONDS, max_entries=1)
    )
    fleet = FleetServices(
        sensors,
        groups,
        DesiredStateService(
            DesiredStateRepository(store),
            repository,
            clock,
            TTLCache(clock, VERSION_CACHE_SECONDS, MAX_CACHED),
        ),
        FleetQueries(devices, groups, GroupRepository(store), history, charts),
        AlarmService(
            AlarmRuleRepository(store),
            AlarmRepository(store),
            builder.measurements,
            sensors,
            clock,
        ),
    )
    keys = _keys(dependencies)
    return DevicesServices(
        keys,
        devices,
        ingestion,
        history,
        charts,
        fleet,
        KeyScopes(repository, TTLCache(clock, GROUP_CACHE_SECONDS, MAX_CACHED)),
        LifecycleServices(
            _claims(dependencies, keys),
            DeviceDeletions(DeviceDeletionRepository(store), repository, clock),
        ),
    )


def _alarm_handlers(dependencies: Dependencies, services: DevicesServices) -> AlarmHandlers:
    hub, clock = dependencies.hub, dependencies.clock
    return AlarmHandlers(
        alarms=services.fleet.alarms,
        cursors=dependencies.cursors,
        hub=hub,
        streams=dependencies.streams,
        events=AlarmStreams(AlarmLog(dependencies.store), changed_alarm, hub, clock),
        operators=dependencies.operators,
    )


def _alarm_evaluator(dependencies: Dependencies) -> AlarmEvaluator:
    store, system_clock = dependencies.store, SystemClock()
    stores = AlarmStores(
        rules=AlarmRuleRepository(store),
        alarms=AlarmRepository(store),
        watch=AlarmWatchRepository(store),
        groups=GroupRepository(store),
        measurements=MeasurementRepository(store),
    )
    locks = ConsumerLocks(ConsumerRepository(store), system_clock, new_uuid())
    return AlarmEvaluator(stores, dependencies.clock, locks, system_clock)


def _claims(dependencies: Dependencies, keys: ApiKeyService) -> ClaimService:
    clock, limits = dependencies.clock, TokenBucketRepository(dependencies.store)
    return ClaimService(
        ApiKeyRepository(dependencies.store),
        keys,
        clock,
        SharedRateLimiter(
            limits,
            clock,
            per_second=ADDRESS_RATE,
            burst=ADDRESS_BURST,
            rule="too many claims from this address",
        ),
        SharedRateLimiter(
            limits, clock, per_second=TOTAL_RATE, burst=TOTAL_BURST, rule="too many claims"
        ),
    )


def _jobs(
    dependencies: Dependencies, services: DevicesServices, builder: RollupBuilder
) -> tuple[Job, ...]:
    store = dependencies.store
    worker = DeviceDeletionWorker(
        DeviceDeletionRepository(store),
        DeviceRemovalRepository(store),
        AlarmRepository(store),
        services.devices,
        builder,
        ReadingRepository(store),
        dependencies.operators,
        dependencies.clock,
    )
    # The lock is shared with other instances, whose time no test controls.
    locks = ConsumerLocks(ConsumerRepository(store), SystemClock(), new_uuid())
    return devices_jobs(worker, locks)


def _keys(dependencies: Dependencies) -> ApiKeyService:
    clock, limit = dependencies.clock, dependencies.settings.devices_rate_limit
    return ApiKeyService(
        ApiKeyRepository(dependencies.store),
        clock,
        dependencies.secret(dependencies.settings.devices_key_pepper, "devices-pepper.key"),
        SharedRateLimiter(
            TokenBucketRepository(dependencies.store),
            clock,
            per_second=limit,
            burst=2 * limit,
            rule=f"at most {limit} requests per second with this key",
        ),
        TTLCache(clock, KEY_CACHE_SECONDS, MAX_CACHED),
        TTLCache(clock, LAST_USED_INTERVAL.total_seconds(), MAX_CACHED),
    )
