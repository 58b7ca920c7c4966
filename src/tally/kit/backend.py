"""What a backend is to the program that runs it: routes, jobs, and what must work before requests are welcome."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tally.kit.endpoints import Api
from tally.kit.jobs import Job


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that readiness asks about; `check` raises if it does not work.

    What is not required is told, and no more.
    """

    name: str
    check: Callable[[], Awaitable[object]]
    is_required: bool = True


class Backend(Protocol):
    """A backend, open; what else it has is between it and those who know it."""

    @property
    def api(self) -> Api: ...

    @property
    def jobs(self) -> tuple[Job, ...]: ...

    @property
    def probes(self) -> tuple[Probe, ...]: ...
