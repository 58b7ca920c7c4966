"""Settings of the devices backend."""

from dataclasses import dataclass, field

from tally.settings.types import SECRET, TEXT, Secret, integer, setting


@dataclass(frozen=True, kw_only=True)
class DevicesSettings:
    """Operators, keys, retention and limits."""

    devices_admin_token: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Bearer token of the devices' control plane. Without it, one is made at first start, in the data directory.",
        ),
    )
    devices_key_pepper: Secret | None = field(
        default=None,
        metadata=setting(
            SECRET,
            "Hashed together with every API key of the boards, so that the table alone gives nothing away. Without it, one is"
            " made at first start, in the data directory; to change it makes all keys void.",
        ),
    )
    devices_retention_days: int = field(
        default=90,
        metadata=setting(
            integer(1, 3650), "Days that a reading is kept, counted from when it was measured."
        ),
    )
    devices_rate_limit: int = field(
        default=2_000,
        metadata=setting(
            integer(1, 1_000_000),
            "Requests a second that one API key may make; twice as many at once.",
        ),
    )
    devices_cors_origins: str = field(
        default="*",
        metadata=setting(
            TEXT, "Origins, separated by commas, whose pages may call the devices' control plane."
        ),
    )
