"""Settings of the devices backend: secrets, retention and limits."""

from dataclasses import dataclass, field

from tally.settings.types import SECRET, Secret, integer, setting


@dataclass(frozen=True, kw_only=True)
class DevicesSettings:
    """The variables `TALLY_DEVICES_…`."""

    devices_key_pepper: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Pepper for the hashes of API keys. Default: generated at first start,"
            " in the data directory. Changing it invalidates all keys.",
        ),
    )
    devices_retention_days: int = field(
        default=90,
        metadata=setting(integer(1, 3650), "Retention of readings in days, from their timestamp."),
    )
    devices_rate_limit: int = field(
        default=2_000,
        metadata=setting(
            integer(1, 1_000_000),
            "Requests per second for each API key, with bursts of twice as many.",
        ),
    )
