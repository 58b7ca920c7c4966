"""The formats of fields as the OpenAPI document tells them.

They are told here, and checked in the model, in better words.
"""

from typing import Annotated, Any, Final

import msgspec

from tally.devices.model import EARLIEST_MS, LATEST_MS, MAX_BATCH_ID, MAX_SENSORS, MAX_TEXT


def _told(**schema: Any) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema=schema)


_NAME: Final = r"^[A-Za-z0-9_.-]{1,64}$"
_UUID: Final = (
    r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$"
)

HardwareId = Annotated[
    str, _told(pattern=r"^[0-9A-F]{2}(:[0-9A-F]{2}){5}$", description="MAC address, in capitals")
]
Uuid = Annotated[str, _told(pattern=_UUID, description="UUID of version 4")]
Version = Annotated[str, _told(minLength=1, maxLength=64, description="Printable characters")]
FriendlyName = Annotated[
    str, _told(minLength=1, maxLength=MAX_TEXT, description="Printable characters")
]
Description = Annotated[
    str, _told(minLength=1, maxLength=2 * MAX_TEXT, description="Printable characters")
]
BatchId = Annotated[
    str,
    _told(
        pattern=rf"^[A-Za-z0-9_:.-]{{1,{MAX_BATCH_ID}}}$", description="Opaque; made by the board"
    ),
]
Time = Annotated[
    int,
    _told(
        minimum=EARLIEST_MS,
        exclusiveMaximum=LATEST_MS,
        description="Milliseconds since 1970, from 2000 to 2100",
    ),
]
Name = Annotated[str, _told(pattern=_NAME)]
Values = Annotated[
    dict[Name, int | float],
    _told(maxProperties=MAX_SENSORS, description="Numbers by the sensor's name"),
]
Status = Annotated[str, _told(enum=["ok", "error"])]
Statuses = Annotated[dict[Name, Status], _told(maxProperties=MAX_SENSORS)]
Names = Annotated[list[Name], _told(maxItems=MAX_SENSORS)]
Features = Annotated[dict[Name, bool], _told(maxProperties=MAX_SENSORS)]
