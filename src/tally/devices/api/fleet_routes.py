"""The routes of operators who manage a fleet: groups, sensors, desired states, alarms, queries."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from msgspec import Meta

from tally.devices.api.alarm_handlers import AlarmHandlers
from tally.devices.api.fleet_handlers import FleetHandlers
from tally.devices.api.schemas import alarms, examples, fields, fleet, fleet_examples, responses
from tally.errors import (
    Conflict,
    Invalid,
    NotFound,
    TallyError,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Endpoint
from tally.kit.hub import encode_event
from tally.kit.operators import OPERATOR_SCHEME

FLEET_PATH_TYPES: Final = {
    "sensor": Annotated[fields.Name, Meta(examples=["bme280_temp_c"])],
    "rule_id": Annotated[fields.Uuid, Meta(examples=[fleet_examples.RULE_ID])],
    "alarm_id": Annotated[str, Meta(examples=[fleet_examples.ALARM_ID])],
}

_READ: Final[tuple[TallyError, ...]] = (
    Unauthenticated(
        "The Authorization header must be: Bearer, a space, the token", code="missing_token"
    ),
    Unauthenticated("Invalid operator token", code="invalid_token"),
    Unavailable("The store is unavailable", retry_after=1),
    Invalid("limit: Expected `int` >= 1", code="invalid_field", field="limit"),
)
_WRITE: Final[tuple[TallyError, ...]] = (
    *_READ,
    Invalid("The body is not valid JSON", code="malformed_json"),
    Invalid("name is missing", code="missing_field", field="name"),
    TooLarge("The body must not be longer than 1048576 bytes"),
    UnsupportedMedia("The content type must be application/json"),
)
_NO_DEVICE: Final = NotFound(
    f"Device {examples.HARDWARE_ID} does not exist", code="device_not_found"
)
_NO_GROUP: Final = NotFound("Group greenhouse has no devices", code="group_not_found")
_NO_RULE: Final = NotFound(
    f"Alarm rule {fleet_examples.RULE_ID} does not exist", code="alarm_rule_not_found"
)
_NO_ALARM: Final = NotFound(
    f"Alarm {fleet_examples.ALARM_ID} does not exist", code="alarm_not_found"
)
_CONFLICT: Final = Conflict("The rules were changed at the same time; try again", code="conflict")
_OPERATOR: Final[dict[str, Any]] = {"security": (OPERATOR_SCHEME,)}


@dataclass(frozen=True, slots=True)
class DeviceFleetHandlers:
    """The handlers of these routes."""

    fleet: FleetHandlers
    alarms: AlarmHandlers


def fleet_endpoints(handlers: DeviceFleetHandlers) -> tuple[Endpoint, ...]:
    return (
        *_descriptions(handlers.fleet),
        *_sensors(handlers.fleet),
        *_queries(handlers.fleet),
        *_rules(handlers.alarms),
        *_alarms(handlers.alarms),
    )


def _descriptions(handlers: FleetHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "PATCH",
            "/devices/{hardware_id}",
            handlers.change_device,
            "Change name, group and tags of a device",
            request=fleet.DeviceChangesBody,
            request_example=fleet_examples.CHANGES,
            response=responses.DeviceBody,
            response_example=examples.DEVICE,
            errors=(*_WRITE, _NO_DEVICE),
            **_OPERATOR,
        ),
        Endpoint(
            "PUT",
            "/devices/{hardware_id}/desired-state",
            handlers.put_desired_state,
            "Set the desired state of a device",
            description="The board receives it with its next `/register` or `/data`.",
            request=fleet.NewStateBody,
            request_example=fleet_examples.NEW_STATE,
            response=fleet.DesiredStateBody,
            response_example=fleet_examples.DESIRED_STATE,
            errors=(
                *_WRITE,
                _NO_DEVICE,
                Conflict(
                    f"The desired state of {examples.HARDWARE_ID} has version 4 already",
                    code="version_conflict",
                    field="expected_version",
                ),
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/devices/{hardware_id}/desired-state",
            handlers.get_desired_state,
            "Get the desired state of a device",
            response=fleet.DesiredStateBody,
            response_example=fleet_examples.DESIRED_STATE,
            errors=(
                *_READ,
                _NO_DEVICE,
                NotFound(
                    f"Device {examples.HARDWARE_ID} has no desired state",
                    code="desired_state_not_found",
                ),
            ),
            **_OPERATOR,
        ),
    )


def _sensors(handlers: FleetHandlers) -> tuple[Endpoint, ...]:
    no_sensor = NotFound("Sensor co2_ppm has no description", code="sensor_not_found")
    return (
        Endpoint(
            "GET",
            "/sensors",
            handlers.list_sensors,
            "List sensors with unit, range and precision",
            query=fleet.EmptyQuery,
            response=fleet.SensorPage,
            response_example=fleet.SensorPage([fleet_examples.SENSOR], None),
            errors=_READ,
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/sensors/{sensor}",
            handlers.get_sensor,
            "Get a sensor",
            response=responses.SensorBody,
            response_example=fleet_examples.SENSOR,
            errors=(*_READ, no_sensor),
            **_OPERATOR,
        ),
        Endpoint(
            "PUT",
            "/sensors/{sensor}",
            handlers.put_sensor,
            "Describe a sensor",
            request=fleet.SensorInfoBody,
            request_example=fleet_examples.SENSOR_INFO,
            response=responses.SensorBody,
            response_example=fleet_examples.SENSOR,
            errors=(
                *_WRITE,
                Conflict("At most 1000 sensors may be described", code="too_many_sensors"),
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "DELETE",
            "/sensors/{sensor}",
            handlers.delete_sensor,
            "Delete the description of a sensor",
            description="A sensor that Tally knows returns to its default.",
            status=204,
            errors=_READ,
            **_OPERATOR,
        ),
    )


def _queries(handlers: FleetHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/fleet/latest",
            handlers.list_latest,
            "List devices with their latest readings",
            query=fleet.LatestQuery,
            response=fleet.LatestPage,
            response_example=fleet_examples.LATEST,
            errors=_READ,
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/fleet/series",
            handlers.get_fleet_series,
            "Down-sample one sensor of a group",
            description="All boards of a group, up to 100, in the same intervals.",
            query=fleet.FleetSeriesQuery,
            response=fleet.FleetSeriesBody,
            response_example=fleet_examples.FLEET_SERIES,
            errors=(*_READ, _NO_GROUP),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/fleet/export",
            handlers.export_group,
            "Export the readings of a group",
            description="Streams all readings, board by board, as CSV, newline-delimited JSON or"
            " Parquet.",
            query=fleet.FleetExportQuery,
            media_type="text/csv",
            response_example=examples.EXPORT,
            other_media_types=("application/x-ndjson", "application/vnd.apache.parquet"),
            errors=(*_READ, _NO_GROUP),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/fleet/metrics",
            handlers.get_fleet_metrics,
            "Get the latest value per board and sensor for Prometheus",
            description="The 1,000 most recently active boards, or those of a group.",
            query=fleet.MetricsQuery,
            media_type="text/plain",
            response_example=fleet_examples.METRICS,
            errors=_READ,
            **_OPERATOR,
        ),
    )


def _rules(handlers: AlarmHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/alarm-rules",
            handlers.create_alarm_rule,
            "Create an alarm rule",
            description="It applies to readings that are sent after the response.",
            request=alarms.NewRuleBody,
            request_example=fleet_examples.NEW_RULE,
            response=alarms.RuleBody,
            response_example=fleet_examples.RULE,
            status=201,
            errors=(
                *_WRITE,
                _CONFLICT,
                Conflict("There may be at most 90 alarm rules", code="too_many_alarm_rules"),
            ),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/alarm-rules",
            handlers.list_alarm_rules,
            "List alarm rules",
            query=fleet.EmptyQuery,
            response=alarms.RulePage,
            response_example=alarms.RulePage([fleet_examples.RULE], None),
            errors=_READ,
            **_OPERATOR,
        ),
        *_single_rules(handlers),
    )


def _single_rules(handlers: AlarmHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/alarm-rules/{rule_id}",
            handlers.get_alarm_rule,
            "Get an alarm rule",
            response=alarms.RuleBody,
            response_example=fleet_examples.RULE,
            errors=(*_READ, _NO_RULE),
            **_OPERATOR,
        ),
        Endpoint(
            "PUT",
            "/alarm-rules/{rule_id}",
            handlers.replace_alarm_rule,
            "Replace an alarm rule",
            description="Clears the alarms of the rule, which is evaluated anew.",
            request=alarms.NewRuleBody,
            request_example=fleet_examples.NEW_RULE,
            response=alarms.RuleBody,
            response_example=fleet_examples.RULE,
            errors=(*_WRITE, _NO_RULE, _CONFLICT),
            **_OPERATOR,
        ),
        Endpoint(
            "DELETE",
            "/alarm-rules/{rule_id}",
            handlers.delete_alarm_rule,
            "Delete an alarm rule",
            description="Clears the alarms of the rule.",
            status=204,
            errors=(*_READ, _NO_RULE, _CONFLICT),
            **_OPERATOR,
        ),
    )


def _alarms(handlers: AlarmHandlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/alarms",
            handlers.list_alarms,
            "List alarms, newest first",
            query=alarms.AlarmsQuery,
            response=alarms.AlarmPage,
            response_example=alarms.AlarmPage([fleet_examples.ALARM], None),
            errors=_READ,
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/alarms/stream",
            handlers.stream_alarms,
            "Subscribe to alarms",
            description=(
                "Server-sent events named `alarm_opened`, `alarm_acknowledged` and"
                " `alarm_cleared`. The first event is a `snapshot` with the active alarms. A client"
                " that reconnects with `Last-Event-ID` receives exactly the events that it missed,"
                " from any instance, or a `snapshot` if the id is older than 24 hours or unknown."
            ),
            media_type="text/event-stream",
            response_example=encode_event("alarm_opened", fleet_examples.ALARM).decode(),
            errors=(*_READ, TOO_MANY_STREAMS),
            **_OPERATOR,
        ),
        Endpoint(
            "GET",
            "/alarms/{alarm_id}",
            handlers.get_alarm,
            "Get an alarm with its history",
            response=alarms.AlarmBody,
            response_example=fleet_examples.ALARM,
            errors=(*_READ, _NO_ALARM),
            **_OPERATOR,
        ),
        Endpoint(
            "POST",
            "/alarms/{alarm_id}/acknowledge",
            handlers.acknowledge_alarm,
            "Acknowledge an alarm",
            response=alarms.AlarmBody,
            response_example=fleet_examples.ALARM,
            errors=(
                *_READ,
                _NO_ALARM,
                Conflict(
                    f"Alarm {fleet_examples.ALARM_ID} is cleared already", code="alarm_cleared"
                ),
            ),
            **_OPERATOR,
        ),
    )
