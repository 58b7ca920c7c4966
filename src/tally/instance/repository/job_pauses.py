"""The table `tally-job-pauses`: the scheduled jobs that operators have paused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tally.store.access import DeleteItem, PutItem, Query, access, param
from tally.store.expressions import F
from tally.store.schema import Attribute, S, Table
from tally.store.store import Store
from tally.store.values import Key

PAUSED: Final = "paused"
MAX_PAUSED: Final = 1_000

JOB_PAUSES = Table(
    "tally-job-pauses",
    partition=S("list"),
    sort=S("job"),
    attributes=(
        Attribute("list", "S", required=True, about='"paused"'),
        Attribute("job", "S", required=True, about="name of the job"),
        Attribute("operator", "S", required=True, about="who paused it"),
        Attribute("pausedAt", "S", required=True, about="RFC 3339"),
    ),
)


@dataclass(frozen=True, slots=True)
class JobPause:
    """A paused job, and who paused it."""

    job: str
    operator: str
    paused_at: str


def _key(job: str) -> Key:
    return {"list": PAUSED, "job": job}


_KEY = _key(param("job"))


@dataclass(frozen=True, slots=True)
class JobPauseRepository:
    """Paused jobs by name."""

    store: Store
    tables: ClassVar = (JOB_PAUSES,)

    @access(
        "List paused jobs",
        Query(where=F("list") == PAUSED),
        table=JOB_PAUSES,
        by="system",
        trigger="Scheduled jobs, console",
        frequency="At most every 5 s per instance",
        bound=MAX_PAUSED,
    )
    async def all(self) -> list[JobPause]:
        where = F("list") == PAUSED
        return [_pause(item) async for item in self.store.items(JOB_PAUSES, where)]

    @access(
        "Pause job",
        PutItem(key=_KEY),
        table=JOB_PAUSES,
        by="user",
        trigger="Console",
        frequency="Rare",
    )
    async def put(self, pause: JobPause) -> None:
        item = {**_key(pause.job), "operator": pause.operator, "pausedAt": pause.paused_at}
        await self.store.put(JOB_PAUSES, item)

    @access(
        "Resume job",
        DeleteItem(key=_KEY),
        table=JOB_PAUSES,
        by="user",
        trigger="Console",
        frequency="Rare",
    )
    async def delete(self, job: str) -> None:
        await self.store.delete(JOB_PAUSES, _key(job))


def _pause(item: Mapping[str, Any]) -> JobPause:
    return JobPause(item["job"], item["operator"], item["pausedAt"])
