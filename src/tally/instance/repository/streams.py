"""The table `tally-streams`: how many streams a client has open on each instance.

Each instance writes its own absolute counts, never increments, so that errors do not accumulate.
A lease says that the instance is alive: once it expires, the counts of a killed instance are
ignored.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    DeleteItem,
    PutItem,
    Query,
    access,
    param,
)
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Item

TALLY_STREAMS = Table(
    "tally-streams",
    partition=S("client"),
    sort=S("instance"),
    ttl="ttl",
    attributes=(
        Attribute(
            "client", "S", required=True, about="person#{backend}:{id}, address#{address} or lease"
        ),
        Attribute("instance", "S", required=True, about="UUID v4, new at every start"),
        Attribute("streams", "N", about="count: the client's open streams on the instance"),
        Attribute("expiresAt", "N", about="lease: epoch milliseconds, renewed while it runs"),
        Attribute("ttl", "N", required=True, about="epoch seconds: deletes what a crash left"),
    ),
)
LEASE: Final = "lease"
# Longer than any client keeps a stream open.
CLEANUP_SECONDS: Final = 7 * 86_400
MAX_INSTANCES: Final = 500
MAX_REPORTED_CLIENTS: Final = 10_000


def _key(client: str, instance: str) -> Item:
    return {"client": client, "instance": instance}


_LEASE_KEY = _key(LEASE, param("instance"))
_COUNT_KEY = _key(param("client"), param("instance"))


@dataclass(frozen=True, slots=True)
class StreamRepository:
    """The leases of instances, and the streams of clients by instance."""

    store: Store
    tables: ClassVar = (TALLY_STREAMS,)

    @access(
        "Renew lease of instance",
        PutItem(key=_LEASE_KEY),
        table=TALLY_STREAMS,
        by="system",
        trigger="Job streams",
        frequency="Every 2 s per instance",
    )
    async def renew_lease(self, instance: str, expires_at_ms: int) -> None:
        item = _key(LEASE, instance) | {"expiresAt": expires_at_ms, "ttl": _ttl(expires_at_ms)}
        await self.store.put(TALLY_STREAMS, item)

    @access(
        "Release lease of instance",
        DeleteItem(key=_LEASE_KEY),
        table=TALLY_STREAMS,
        by="system",
        trigger="Shutdown",
        frequency="Once per instance",
    )
    async def release_lease(self, instance: str) -> None:
        await self.store.delete(TALLY_STREAMS, _key(LEASE, instance))

    @access(
        "Find live instances",
        Query(where=F("client") == LEASE),
        table=TALLY_STREAMS,
        by="system",
        trigger="Job streams",
        frequency="Every 2 s per instance",
        bound=MAX_INSTANCES,
    )
    async def find_live_instances(self, now_ms: int) -> set[str]:
        leases = self.store.items(
            TALLY_STREAMS, F("client") == LEASE, consistent=True, overflow="stop"
        )
        return {lease["instance"] async for lease in leases if lease["expiresAt"] > now_ms}

    @access(
        "Report open streams",
        BatchWriteItem(key=_COUNT_KEY),
        table=TALLY_STREAMS,
        by="user",
        trigger="A stream opens or closes",
        frequency="Per stream; concurrent ones share a request",
        bound=MAX_REPORTED_CLIENTS,
    )
    async def report(self, instance: str, counts: Mapping[str, int], now_ms: int) -> None:
        """Store this instance's counts of the clients."""
        await self.store.write_many(
            TALLY_STREAMS,
            puts=[
                _key(client, instance) | {"streams": count, "ttl": _ttl(now_ms)}
                for client, count in counts.items()
                if count
            ],
            deletes=[_key(client, instance) for client, count in counts.items() if not count],
        )

    @access(
        "Count streams on other instances",
        BatchGetItem(key=_COUNT_KEY),
        table=TALLY_STREAMS,
        by="user",
        trigger="A stream opens",
        frequency="Per stream, if there are other instances",
        bound=2 * MAX_INSTANCES,
    )
    async def count(self, clients: Collection[str], instances: Collection[str]) -> Counter[str]:
        """Return the number of open streams of each client on these instances."""
        keys = [_key(client, instance) for client in clients for instance in instances]
        found = await self.store.get_many(TALLY_STREAMS, keys, consistent=True)
        counts: Counter[str] = Counter()
        for item in found:
            counts[item["client"]] += int(item["streams"])
        return counts


def _ttl(milliseconds: int) -> int:
    return milliseconds // 1000 + CLEANUP_SECONDS
