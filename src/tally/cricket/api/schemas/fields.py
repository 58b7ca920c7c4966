"""Field types and the base class that the schemas share."""

from typing import Annotated

import msgspec

from tally.cricket.model.records import NEUTRAL

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=100)]
# SportMonks ids are digits; ids of replays are not. `#` is excluded because it joins keys.
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]
Token = Annotated[str, msgspec.Meta(min_length=8, max_length=512, pattern=r"^[A-Za-z0-9_.:+/=-]+$")]


class CamelCaseBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=False):
    """A response body with camel-case names."""


class ServiceStatus(CamelCaseBody, frozen=True):
    status: str


def public_team_id(team_id: str) -> str | None:
    """Return the team id, or None for the neutral view."""
    return None if team_id == NEUTRAL else team_id
