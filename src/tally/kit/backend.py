"""The interface between a backend and the process that runs it: endpoints, jobs and probes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tally.kit.endpoints import Api
from tally.kit.jobs import Job


@dataclass(frozen=True, slots=True)
class Probe:
    """A readiness probe; `check` raises if the dependency does not work.

    Readiness reports a failed probe, and fails if the probe is required.
    """

    name: str
    check: Callable[[], Awaitable[object]]
    is_required: bool = True


class Backend(Protocol):
    """An open backend."""

    @property
    def api(self) -> Api: ...

    @property
    def jobs(self) -> tuple[Job, ...]: ...

    @property
    def probes(self) -> tuple[Probe, ...]: ...
