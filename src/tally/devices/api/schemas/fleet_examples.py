"""Example requests and responses of sensors, groups, desired states and alarms."""

from typing import Final

from tally.devices.api.schemas import alarms, examples, fleet, responses

ALARM_ID: Final = "01K9ZC6Q5R8J0W3M7N1P4T6V8X"
RULE_ID: Final = "3f0c9a52-6d1b-4c7e-9a42-8b5d2e7f1c60"
GROUP: Final = "greenhouse"
STATE: Final = {"interval_s": 60}

CHANGES: Final = fleet.DeviceChangesBody(examples.FRIENDLY_NAME, GROUP, ["roof"])
SENSOR: Final = responses.SensorBody("bme280_temp_c", "°C", -40, 85, 2, is_default=True)
SENSOR_INFO: Final = fleet.SensorInfoBody("°C", -40, 85, 2)
NEW_STATE: Final = {"state": STATE}
DESIRED_STATE: Final = {
    "hardware_id": examples.HARDWARE_ID,
    "version": 3,
    "state": STATE,
    "updated_at": examples.TIME,
    "reported_version": 2,
    "reported_at": examples.TIME,
    "is_applied": False,
}
LATEST: Final = fleet.LatestPage(
    [fleet.LatestBody(examples.HARDWARE_ID, examples.FRIENDLY_NAME, GROUP, examples.READING)],
    None,
)
FLEET_SERIES: Final = fleet.FleetSeriesBody(
    "bme280_temp_c",
    SENSOR,
    3_600_000,
    [1_704_067_200_000],
    [
        fleet.BoardSeriesBody(
            examples.HARDWARE_ID, examples.FRIENDLY_NAME, [6], [21.8], [23.1], [22.4]
        )
    ],
)
METRICS: Final = (
    'tally_device_sensor_value{hardware_id="AA:BB:CC:DD:EE:FF",name="greenhouse-sensor-01",'
    'group="greenhouse",sensor="bme280_temp_c",unit="°C"} 22.5\n'
)
CONDITION: Final = alarms.ThresholdBody("bme280_temp_c", "above", 35, 2, 300)
NEW_RULE: Final = alarms.NewRuleBody("Too hot", CONDITION, alarms.ScopeBody(group=GROUP))
RULE: Final = alarms.RuleBody(
    RULE_ID,
    1,
    "Too hot",
    "bme280_temp_c is above 35 °C for 300 s",
    CONDITION,
    alarms.ScopeBody(group=GROUP),
    3_600,
    examples.TIME,
)
ALARM: Final = alarms.AlarmBody(
    ALARM_ID,
    "open",
    examples.HARDWARE_ID,
    "bme280_temp_c",
    "°C",
    RULE,
    [alarms.AlarmEntryBody("open", examples.TIME, None, 1_704_067_800_000, 36.5)],
)
