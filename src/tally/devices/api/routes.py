"""The routes of the devices backend as a list: a data plane for boards and a control plane for operators."""

from typing import Any, Final

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from tally.devices.api import formats, queries, schemas
from tally.devices.api.handlers import Handlers
from tally.errors import (
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from tally.kit.endpoints import Api, Endpoint
from tally.kit.http import ErrorFormat, FlatError

# Where the kit's words for what is wrong with a request differ from those of the seed.
ERROR_FORMAT: Final = ErrorFormat(
    FlatError,
    codes={
        **dict.fromkeys(
            (
                "invalid_field",
                "unknown_field",
                "malformed_json",
                "malformed_gzip",
                "invalid_cursor",
            ),
            "INVALID_FORMAT",
        ),
    },
    upper_case=True,
)
SECURITY: Final = {
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "bearer": {"type": "http", "scheme": "bearer"},
}

_HARDWARE_ID: Final = "AA:BB:CC:DD:EE:FF"
_BOOT_ID: Final = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
_KEY_ID: Final = "a1b2c3d4-e5f6-4890-abcd-ef1234567890"
_CONFIRMATION_ID: Final = "550e8400-e29b-41d4-a716-446655440000"
_BATCH_ID: Final = f"{_HARDWARE_ID}_{_BOOT_ID}_1704067200000_1704067800000"
_SENSORS: Final[dict[str, int | float]] = {
    "bme280_temp_c": 22.5,
    "humidity_pct": 45.2,
    "soil_moisture_pct": 62.3,
}
_MOMENT: Final = "2024-01-15T10:30:00Z"

_OF_DEVICE: Final = {"hardware_id": formats.HardwareId}

_UNAVAILABLE: Final = Unavailable("The store cannot answer now", retry_after=1)
_DATA_PLANE: Final[tuple[TallyError, ...]] = (
    Invalid("hardware_id is missing", code="missing_field"),
    Invalid(
        "hardware_id must be a MAC address such as AA:BB:CC:DD:EE:FF, in capitals",
        code="invalid_format",
    ),
    Unauthenticated("Missing X-API-Key header", code="missing_api_key"),
    Unauthenticated("Invalid API key", code="invalid_api_key"),
    Unauthenticated("This API key has been revoked", code="key_revoked"),
    TooLarge("The body must be at most 1048576 bytes"),
    UnsupportedMedia("The content type must be application/json"),
    RateLimited("Too many requests with this key", retry_after=1),
    _UNAVAILABLE,
)
_CONTROL_PLANE: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must have the form: Bearer <token>", code="missing_token"
    ),
    Unauthenticated("Invalid token", code="invalid_token"),
    _UNAVAILABLE,
)
_BAD_QUERY: Final = Invalid("limit: Expected `int` >= 1", code="invalid_format")
_BAD_BODY: Final[tuple[TallyError, ...]] = (
    Invalid("The body is not JSON", code="invalid_format"),
    TooLarge("The body must be at most 1048576 bytes"),
    UnsupportedMedia("The content type must be application/json"),
)
_NO_DEVICE: Final = NotFound(f"There is no device {_HARDWARE_ID}", code="device_not_found")

_OF_READINGS: Final[dict[str, Any]] = {
    "security": ("bearer",),
    "path_types": _OF_DEVICE,
    "errors": (*_CONTROL_PLANE, _BAD_QUERY, _NO_DEVICE),
}

_CAPABILITIES: Final = schemas.CapabilitiesBody(["bme280", "soil_moisture"], {"tft_display": True})
_DEVICE: Final = schemas.DeviceBody(
    hardware_id=_HARDWARE_ID,
    confirmation_id=_CONFIRMATION_ID,
    friendly_name="greenhouse-sensor-01",
    firmware_version="1.0.16",
    capabilities=_CAPABILITIES,
    first_registered_at=_MOMENT,
    last_seen_at=_MOMENT,
    last_boot_id=_BOOT_ID,
)
_READING: Final = schemas.ReadingShown(
    hardware_id=_HARDWARE_ID,
    batch_id=_BATCH_ID,
    timestamp_ms=1_704_067_800_000,
    boot_id=_BOOT_ID,
    firmware_version="1.0.16",
    friendly_name="greenhouse-sensor-01",
    sensors=_SENSORS,
    sensor_status={"bme280": "ok", "soil_moisture": "ok"},
    clock_ahead=False,
)
_KEY: Final = schemas.KeyBody(
    _KEY_ID, _MOMENT, is_active=True, description="greenhouse cluster", last_used_at=None
)


def device_api(handlers: Handlers, cors_origins: tuple[str, ...] = ()) -> Api:
    """All routes, under `/devices`."""
    return Api(
        name="devices",
        description="Readings of boards in the field, stored once each.",
        endpoints=(
            *_data_plane(handlers),
            *_keys(handlers),
            *_devices(handlers),
            *_readings(handlers),
            *_streams(handlers),
        ),
        error_format=ERROR_FORMAT,
        security_schemes=SECURITY,
        middleware=_cors(cors_origins),
    )


def _data_plane(handlers: Handlers) -> tuple[Endpoint, ...]:
    readings = [schemas.ReadingBody(_BATCH_ID, 1_704_067_800_000, _SENSORS, {"bme280": "ok"})]
    return (
        Endpoint(
            "GET",
            "/health",
            handlers.health,
            "Alive",
            response=dict[str, str],
            response_example={"status": "ok"},
        ),
        Endpoint(
            "POST",
            "/register",
            handlers.register,
            "Register a board",
            description="At every boot. A board that is known keeps its confirmation id.",
            request=schemas.Registration,
            request_example=schemas.Registration(_HARDWARE_ID, _BOOT_ID, "1.0.16", _CAPABILITIES),
            response=schemas.Confirmation,
            response_example=schemas.Confirmation(
                "registered", _HARDWARE_ID, _CONFIRMATION_ID, _MOMENT, _MOMENT
            ),
            errors=_DATA_PLANE,
            security=("api_key",),
        ),
        Endpoint(
            "POST",
            "/data",
            handlers.data,
            "Send readings",
            description="1 to 100 readings, gzip welcome. Send what is not in the answer again; it is stored once all the same.",
            request=schemas.DataBody,
            request_example=schemas.DataBody(_HARDWARE_ID, _BOOT_ID, "1.0.16", readings),
            response=schemas.ReceiptBody,
            response_example=schemas.ReceiptBody(
                [_BATCH_ID],
                [],
                [schemas.RejectionBody(1, "timestamp_ms", "timestamp_ms is missing")],
            ),
            errors=(
                *_DATA_PLANE,
                Invalid(
                    "readings must hold at most 100 readings, not 101", code="batch_size_exceeded"
                ),
            ),
            security=("api_key",),
        ),
    )


def _keys(handlers: Handlers) -> tuple[Endpoint, ...]:
    common: dict[str, Any] = {"security": ("bearer",)}
    return (
        Endpoint(
            "POST",
            "/api-keys",
            handlers.create_key,
            "Make an API key",
            description="The key is shown this once.",
            request=schemas.NewKey,
            request_example=schemas.NewKey("greenhouse cluster"),
            response=schemas.CreatedKey,
            response_example=schemas.CreatedKey(
                _KEY_ID, "0123456789abcdef" * 4, _MOMENT, "greenhouse cluster"
            ),
            status=201,
            errors=(*_CONTROL_PLANE, *_BAD_BODY),
            **common,
        ),
        Endpoint(
            "GET",
            "/api-keys",
            handlers.list_keys,
            "API keys, newest first",
            query=queries.PageQuery,
            response=schemas.KeyPage,
            response_example=schemas.KeyPage([_KEY], None),
            errors=(*_CONTROL_PLANE, _BAD_QUERY),
            **common,
        ),
        Endpoint(
            "DELETE",
            "/api-keys/{key_id}",
            handlers.revoke_key,
            "Revoke an API key",
            path_types={"key_id": formats.Uuid},
            description="Every server refuses it within five seconds.",
            status=204,
            errors=(
                *_CONTROL_PLANE,
                _BAD_QUERY,
                NotFound(f"There is no API key {_KEY_ID}", code="key_not_found"),
            ),
            **common,
        ),
    )


def _devices(handlers: Handlers) -> tuple[Endpoint, ...]:
    common: dict[str, Any] = {"security": ("bearer",)}
    return (
        Endpoint(
            "GET",
            "/devices",
            handlers.list_devices,
            "Devices, last heard of first",
            query=queries.PageQuery,
            response=schemas.DevicePage,
            response_example=schemas.DevicePage([_DEVICE], None),
            errors=(*_CONTROL_PLANE, _BAD_QUERY),
            **common,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}",
            handlers.show_device,
            "A device",
            path_types=_OF_DEVICE,
            response=schemas.DeviceBody,
            response_example=_DEVICE,
            errors=(*_CONTROL_PLANE, _BAD_QUERY, _NO_DEVICE),
            **common,
        ),
        Endpoint(
            "PATCH",
            "/devices/{hardware_id}",
            handlers.rename_device,
            "Give a device a name",
            path_types=_OF_DEVICE,
            request=schemas.Rename,
            request_example=schemas.Rename("greenhouse-sensor-01"),
            response=schemas.DeviceBody,
            response_example=_DEVICE,
            errors=(*_CONTROL_PLANE, *_BAD_BODY, _NO_DEVICE),
            **common,
        ),
    )


def _readings(handlers: Handlers) -> tuple[Endpoint, ...]:
    no_readings = NotFound(f"The device {_HARDWARE_ID} has no readings", code="no_readings")
    bucket = schemas.BucketBody(1_704_067_200_000, 1_704_070_799_999, 6, 21.8, 23.1, 22.4)
    return (
        Endpoint(
            "GET",
            "/devices/{hardware_id}/latest",
            handlers.latest,
            "The latest reading",
            response=schemas.ReadingShown,
            response_example=_READING,
            **{**_OF_READINGS, "errors": (*_OF_READINGS["errors"], no_readings)},
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/readings",
            handlers.readings,
            "Readings of a time range",
            description="`from` and `to` are milliseconds since 1970, both included.",
            query=queries.ReadingsQuery,
            response=schemas.ReadingPage,
            response_example=schemas.ReadingPage([_READING], None),
            **_OF_READINGS,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/series",
            handlers.series,
            "One sensor, down-sampled for a chart",
            query=queries.SeriesQuery,
            response=schemas.SeriesBody,
            response_example=schemas.SeriesBody(
                _HARDWARE_ID, "bme280_temp_c", sampled=False, buckets=[bucket]
            ),
            **_OF_READINGS,
        ),
    )


def _streams(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/devices/{hardware_id}/export",
            handlers.export,
            "All readings as a file",
            description="CSV, one JSON object a line, or Parquet; streamed, however many there are.",
            query=queries.ExportQuery,
            media_type="text/csv",
            other_media_types=("application/x-ndjson", "application/vnd.apache.parquet"),
            **_OF_READINGS,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/stream",
            handlers.stream,
            "Readings as they arrive",
            description="Server-sent events named `reading`.",
            media_type="text/event-stream",
            **_OF_READINGS,
        ),
    )


def _cors(origins: tuple[str, ...]) -> tuple[Middleware, ...]:
    """Lets pages of these origins call the control plane."""
    if not origins:
        return ()
    methods = ["GET", "POST", "PATCH", "DELETE"]
    headers = ["Authorization", "Content-Type", "X-API-Key", "X-Request-Id"]
    told = ["X-Request-Id", "Retry-After"]
    return (
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=methods,
            allow_headers=headers,
            expose_headers=told,
        ),
    )
