"""Example requests and responses for the OpenAPI document."""

from typing import Final

from tally.devices.api.schemas import requests, responses

HARDWARE_ID: Final = "AA:BB:CC:DD:EE:FF"
BOOT_ID: Final = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
KEY_ID: Final = "a1b2c3d4-e5f6-4890-abcd-ef1234567890"
CONFIRMATION_ID: Final = "550e8400-e29b-41d4-a716-446655440000"
BATCH_ID: Final = f"{HARDWARE_ID}_{BOOT_ID}_1704067200000_1704067800000"
SENSORS: Final[dict[str, int | float]] = {
    "bme280_temp_c": 22.5,
    "humidity_pct": 45.2,
    "soil_moisture_pct": 62.3,
}
TIME: Final = "2024-01-15T10:30:00Z"
KEY_DESCRIPTION: Final = "greenhouse cluster"
FRIENDLY_NAME: Final = "greenhouse-sensor-01"
CAPABILITIES: Final = requests.CapabilitiesBody(["bme280", "soil_moisture"], {"tft_display": True})

REGISTRATION: Final = requests.RegistrationBody(HARDWARE_ID, BOOT_ID, "1.0.16", CAPABILITIES)
CONFIRMATION: Final = responses.ConfirmationBody(
    "registered", HARDWARE_ID, CONFIRMATION_ID, TIME, TIME
)
DATA: Final = requests.DataBody(
    HARDWARE_ID,
    BOOT_ID,
    "1.0.16",
    [requests.SubmittedReadingBody(BATCH_ID, 1_704_067_800_000, SENSORS, {"bme280": "ok"})],
)
RECEIPT: Final = responses.ReceiptBody(
    [BATCH_ID],
    [],
    [responses.RejectionBody(1, "timestamp_ms", "timestamp_ms is missing", "missing_field")],
)
KEY: Final = responses.KeyBody(
    KEY_ID,
    TIME,
    is_active=True,
    description=KEY_DESCRIPTION,
    last_used_at=None,
    hardware_ids=[],
    group=None,
)
CREATED_KEY: Final = responses.CreatedKeyBody(
    KEY_ID, "0123456789abcdef" * 4, TIME, KEY_DESCRIPTION, [], None
)
NEW_CLAIM: Final = requests.NewClaimBody(HARDWARE_ID, KEY_DESCRIPTION, 3_600)
CREATED_CLAIM: Final = responses.CreatedClaimBody("K7QF3-M9T2X", TIME, HARDWARE_ID, KEY_DESCRIPTION)
CLAIM: Final = requests.ClaimBody("K7QF3-M9T2X", HARDWARE_ID)
CLAIMED_KEY: Final = responses.CreatedKeyBody(
    KEY_ID, "0123456789abcdef" * 4, TIME, f"claimed by {HARDWARE_ID}", [HARDWARE_ID], None
)
DELETION: Final = responses.DeviceDeletionBody(
    deletion_id="0b9d1a4e-5f0c-4c8e-9a53-d2f5ed0c7b1e",
    hardware_id=HARDWARE_ID,
    kind="readings",
    from_ms=1_704_067_200_000,
    to_ms=1_704_070_799_999,
    status="pending",
    deleted_readings=0,
    requested_at=TIME,
    requested_by="ana",
    finished_at=None,
)
DEVICE: Final = responses.DeviceBody(
    hardware_id=HARDWARE_ID,
    confirmation_id=CONFIRMATION_ID,
    friendly_name=FRIENDLY_NAME,
    firmware_version="1.0.16",
    capabilities=CAPABILITIES,
    first_registered_at=TIME,
    last_seen_at=TIME,
    last_boot_id=BOOT_ID,
    clock_offset_ms=-1_250,
)
READING: Final = responses.ReadingBody(
    hardware_id=HARDWARE_ID,
    batch_id=BATCH_ID,
    timestamp_ms=1_704_067_800_000,
    boot_id=BOOT_ID,
    firmware_version="1.0.16",
    friendly_name=FRIENDLY_NAME,
    sensors=SENSORS,
    sensor_status={"bme280": "ok", "soil_moisture": "ok"},
    clock_ahead=False,
)
EXPORT: Final = (
    "time,timestamp_ms,hardware_id,friendly_name,bme280_temp_c,ds18b20_temp_c,humidity_pct,"
    "pressure_hpa,soil_moisture_pct,other_sensors,sensor_status,batch_id,boot_id,"
    "firmware_version,clock_ahead\r\n"
    f"2024-01-01T00:10:00.000+00:00,1704067800000,{HARDWARE_ID},{FRIENDLY_NAME},22.4,,48.2,,31,,"
    f'"{{""bme280"":""ok""}}",{BATCH_ID},{BOOT_ID},1.0.16,false\r\n'
)
SERIES: Final = responses.SeriesBody(
    HARDWARE_ID,
    "bme280_temp_c",
    interval_ms=3_600_000,
    buckets=[
        responses.BucketBody(1_704_067_200_000, 1_704_070_799_999, 6, 21.8, 23.1, 22.4, 21.9, 22.7),
    ],
)
