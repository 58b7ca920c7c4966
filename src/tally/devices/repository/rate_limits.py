"""The table `device_rate_limits`: token buckets that all instances share."""

from dataclasses import dataclass
from typing import ClassVar

from tally.store.access import GetItem, UpdateItem, access, param
from tally.store.errors import ConditionFailed
from tally.store.expressions import F, not_exists
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store

DEVICE_RATE_LIMITS = Table(
    "device_rate_limits",
    partition=S("bucket"),
    ttl="expires_at",
    attributes=(
        Attribute("bucket", "S", required=True, about="id of an API key, or what else is limited"),
        Attribute("full_at_us", "N", required=True, about="when it is full, epoch microseconds"),
        Attribute("expires_at", "N", required=True, about="epoch seconds"),
    ),
)

_KEY = {"bucket": param("bucket")}


class BucketChanged(Exception):
    """Another instance has taken tokens; `full_at_us` is the current value."""

    def __init__(self, full_at_us: int | None) -> None:
        super().__init__(full_at_us)
        self.full_at_us = full_at_us


@dataclass(frozen=True, slots=True)
class TokenBucketRepository:
    """Token buckets; the time at which a bucket is full again is its whole state."""

    store: Store
    tables: ClassVar = (DEVICE_RATE_LIMITS,)

    @access(
        "Get rate limit",
        GetItem(key=_KEY),
        table=DEVICE_RATE_LIMITS,
        by="user",
        trigger="POST /register, POST /data, POST /claim",
        frequency="Once per busy key and instance",
    )
    async def full_at(self, bucket: str) -> int | None:
        item = await self.store.get(DEVICE_RATE_LIMITS, {"bucket": bucket}, consistent=True)
        return None if item is None else item["full_at_us"]

    @access(
        "Lease tokens of rate limit",
        UpdateItem(
            key=_KEY,
            condition=(not_exists("full_at_us"), F("full_at_us") == param("known")),
        ),
        table=DEVICE_RATE_LIMITS,
        by="user",
        trigger="POST /register, POST /data, POST /claim",
        frequency="Per 5 % of the burst, and per claim",
    )
    async def move(self, bucket: str, known: int | None, full_at_us: int, expires_at: int) -> None:
        """Take tokens, unless another instance has taken some since; raise BucketChanged then."""
        is_known = not_exists("full_at_us") if known is None else F("full_at_us") == known
        try:
            await self.store.update(
                DEVICE_RATE_LIMITS,
                {"bucket": bucket},
                F("full_at_us").set(full_at_us),
                F("expires_at").set(expires_at),
                condition=is_known,
            )
        except ConditionFailed as error:
            current = None if error.item is None else error.item["full_at_us"]
            raise BucketChanged(current) from error
