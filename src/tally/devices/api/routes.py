"""The routes of the devices API: for boards (API key) and for operators (bearer token)."""

from typing import Annotated, Any, Final

from msgspec import Meta

from tally.devices.api.fleet_routes import (
    FLEET_PATH_TYPES,
    DeviceFleetHandlers,
    fleet_endpoints,
)
from tally.devices.api.handlers import Handlers
from tally.devices.api.lifecycle_handlers import LifecycleHandlers
from tally.devices.api.lifecycle_routes import LIFECYCLE_PATH_TYPES, lifecycle_endpoints
from tally.devices.api.schemas import examples, fields, requests, responses
from tally.errors import (
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Api, Endpoint
from tally.kit.hub import encode_event
from tally.kit.operators import OPERATOR_SCHEME

SECURITY: Final = {
    "device_key": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "API key of boards; `POST /devices/api-keys` creates one.",
    },
}
_PATH_TYPES: Final = {
    "hardware_id": Annotated[fields.HardwareId, Meta(examples=[examples.HARDWARE_ID])],
    "key_id": Annotated[fields.Uuid, Meta(examples=[examples.KEY_ID])],
}

_UNAVAILABLE: Final = Unavailable("The store is unavailable", retry_after=1)
_TOO_LARGE: Final = TooLarge("The body must not be longer than 1048576 bytes")
_UNSUPPORTED_MEDIA: Final = UnsupportedMedia("The content type must be application/json")
_DATA_PLANE: Final[tuple[TallyError, ...]] = (
    Invalid("hardware_id is missing", code="missing_field", field="hardware_id"),
    Invalid(
        "hardware_id must be an upper-case MAC address such as AA:BB:CC:DD:EE:FF",
        code="invalid_field",
        field="hardware_id",
    ),
    Unauthenticated("The X-API-Key header is missing", code="missing_api_key"),
    Unauthenticated("Invalid API key", code="invalid_api_key"),
    Unauthenticated("The API key has been revoked", code="key_revoked"),
    Forbidden(f"The API key is not for {examples.HARDWARE_ID}", code="key_not_for_board"),
    _TOO_LARGE,
    _UNSUPPORTED_MEDIA,
    RateLimited("Too many requests with this key", retry_after=1),
    _UNAVAILABLE,
)
_CONTROL_PLANE: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must be: Bearer, a space, the token", code="missing_token"
    ),
    Unauthenticated("Invalid operator token", code="invalid_token"),
    _UNAVAILABLE,
)
_INVALID_QUERY: Final = Invalid("limit: Expected `int` >= 1", code="invalid_field", field="limit")
_INVALID_BODY: Final[tuple[TallyError, ...]] = (
    Invalid("The body is not valid JSON", code="malformed_json"),
    _TOO_LARGE,
    _UNSUPPORTED_MEDIA,
)
_NO_DEVICE: Final = NotFound(
    f"Device {examples.HARDWARE_ID} does not exist", code="device_not_found"
)

_OPERATOR: Final[dict[str, Any]] = {"security": (OPERATOR_SCHEME,)}
_READINGS: Final[dict[str, Any]] = {
    "errors": (*_CONTROL_PLANE, _INVALID_QUERY, _NO_DEVICE),
    **_OPERATOR,
}


def devices_api(
    handlers: Handlers, fleet: DeviceFleetHandlers, lifecycle: LifecycleHandlers
) -> Api:
    """Build the API. All routes are below `/devices`."""
    return Api(
        name="devices",
        description="Sensor readings from boards in the field, each stored exactly once.",
        endpoints=(
            *_data_plane(handlers),
            *_keys(handlers),
            *_devices(handlers),
            *fleet_endpoints(fleet),
            *_readings(handlers),
            *_streams(handlers),
            *lifecycle_endpoints(lifecycle),
        ),
        path_types={**_PATH_TYPES, **FLEET_PATH_TYPES, **LIFECYCLE_PATH_TYPES},
        security_schemes=SECURITY,
    )


def _data_plane(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/health",
            handlers.check_health,
            "Check liveness",
            response=dict[str, str],
            response_example={"status": "ok"},
        ),
        Endpoint(
            "POST",
            "/register",
            handlers.register_board,
            "Register a board",
            description="Call at every boot. A known board keeps its confirmation id.",
            request=requests.RegistrationBody,
            request_example=examples.REGISTRATION,
            response=responses.ConfirmationBody,
            response_example=examples.CONFIRMATION,
            errors=_DATA_PLANE,
            security=("device_key",),
        ),
        Endpoint(
            "POST",
            "/data",
            handlers.send_readings,
            "Send readings",
            description="1 to 100 readings, optionally with gzip."
            " Retry any batch id that is missing from the response; duplicates are stored once.",
            request=requests.DataBody,
            request_example=examples.DATA,
            response=responses.ReceiptBody,
            response_example=examples.RECEIPT,
            errors=(
                *_DATA_PLANE,
                Invalid(
                    "readings must contain at most 100 readings, not 101",
                    code="batch_size_exceeded",
                    field="readings",
                ),
            ),
            security=("device_key",),
        ),
    )


def _keys(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/api-keys",
            handlers.create_key,
            "Create an API key",
            description="For all boards, for those in `hardware_ids`, or for those of `group`."
            " Only this response contains the key.",
            request=requests.NewKeyBody,
            request_example=requests.NewKeyBody(examples.KEY_DESCRIPTION),
            response=responses.CreatedKeyBody,
            response_example=examples.CREATED_KEY,
            status=201,
            errors=(*_CONTROL_PLANE, *_INVALID_BODY),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/api-keys",
            handlers.list_keys,
            "List API keys, newest first",
            query=requests.ListQuery,
            response=responses.KeyPage,
            response_example=responses.KeyPage([examples.KEY], None),
            errors=(*_CONTROL_PLANE, _INVALID_QUERY),
            **_OPERATOR,
        ),
        Endpoint(
            "DELETE",
            "/api-keys/{key_id}",
            handlers.revoke_key,
            "Revoke an API key",
            description="All servers reject the key within five seconds.",
            status=204,
            errors=(
                *_CONTROL_PLANE,
                _INVALID_QUERY,
                NotFound(f"API key {examples.KEY_ID} does not exist", code="key_not_found"),
            ),
            **_OPERATOR,
        ),
    )


def _devices(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/devices",
            handlers.list_devices,
            "List devices by last activity, or those of a group by id",
            query=requests.DevicesQuery,
            response=responses.DevicePage,
            response_example=responses.DevicePage([examples.DEVICE], None),
            errors=(*_CONTROL_PLANE, _INVALID_QUERY),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}",
            handlers.get_device,
            "Get a device",
            response=responses.DeviceBody,
            response_example=examples.DEVICE,
            errors=(*_CONTROL_PLANE, _INVALID_QUERY, _NO_DEVICE),
            **_OPERATOR,
        ),
    )


def _readings(handlers: Handlers) -> tuple[Endpoint, ...]:
    no_readings = NotFound(f"Device {examples.HARDWARE_ID} has no readings", code="no_readings")
    return (
        Endpoint(
            "GET",
            "/devices/{hardware_id}/latest",
            handlers.get_latest_reading,
            "Get the latest reading",
            response=responses.ReadingBody,
            response_example=examples.READING,
            **{**_READINGS, "errors": (*_READINGS["errors"], no_readings)},
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/readings",
            handlers.list_readings,
            "List readings in a time range",
            description="`from` and `to` are milliseconds since 1970, both inclusive.",
            query=requests.ReadingsQuery,
            response=responses.ReadingPage,
            response_example=responses.ReadingPage([examples.READING], None),
            **_READINGS,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/series",
            handlers.get_series,
            "Down-sample one sensor for a chart",
            query=requests.SeriesQuery,
            response=responses.SeriesBody,
            response_example=examples.SERIES,
            **_READINGS,
        ),
    )


def _streams(handlers: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/devices/{hardware_id}/export",
            handlers.export_readings,
            "Export readings",
            description="Streams all readings as CSV, newline-delimited JSON or Parquet.",
            query=requests.ExportQuery,
            media_type="text/csv",
            response_example=examples.EXPORT,
            other_media_types=("application/x-ndjson", "application/vnd.apache.parquet"),
            **_READINGS,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/stream",
            handlers.stream_readings,
            "Subscribe to readings",
            description=(
                "Server-sent events named `reading`, one per stored reading. The first event is a"
                " `snapshot` with the latest reading. A client that reconnects with"
                " `Last-Event-ID` receives exactly the readings that it missed, from any instance,"
                " or a `snapshot` if the id is older than 24 hours or unknown. The stream ends with"
                " `session_ended` when the operator is removed or the token expires."
            ),
            media_type="text/event-stream",
            response_example=encode_event("reading", examples.READING).decode(),
            **{**_READINGS, "errors": (*_READINGS["errors"], TOO_MANY_STREAMS)},
        ),
    )
