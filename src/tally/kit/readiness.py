"""Readiness: probes everything that the instance needs, once per second in the background.

`/health/ready` reports the last results; a request starts no work. Interval and deadline together
stay below two seconds, so that a failure, a hanging dependency and a recovery show within that
time. A probe that hangs is reported as `timed_out` and cancelled, and starts again once it ended.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeAlias

import msgspec
from starlette.responses import Response

from tally.errors import TallyError
from tally.kit import logs
from tally.kit.backend import Probe
from tally.kit.clock import Clock, rfc3339
from tally.kit.http import Json

INTERVAL_SECONDS: Final = 1.0
DEADLINE_SECONDS: Final = 0.7
# The probe that every backend on the store depends on.
STORE: Final = "store"
RETRY_AFTER: Final = {"Retry-After": str(round(INTERVAL_SECONDS))}

CheckStatus: TypeAlias = Literal["ok", "failed", "timed_out"]
_log = logs.logger()


class ReadinessCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last result of a probe, and since when it has had this result.

    `missing` says what does not work. The instance is ready if all required checks are ok.
    """

    status: CheckStatus
    required: bool
    since: str
    missing: str | None = None


class Readiness(msgspec.Struct, frozen=True):
    """`ready`, `not_ready` or `stopping`, with the result of each check."""

    status: Literal["ready", "not_ready", "stopping"]
    checks: dict[str, ReadinessCheck]

    def response(self) -> Response:
        """Return 200, or 503 with the time after which a probe may have another result."""
        if self.status == "ready":
            return Json(self)
        return Json(self, 503, RETRY_AFTER)


READY_EXAMPLE: Final = Readiness(
    "ready", {"store": ReadinessCheck("ok", required=True, since="2026-01-31T09:30:00Z")}
)
NOT_READY_EXAMPLE: Final = Readiness(
    "not_ready",
    {
        "store": ReadinessCheck(
            "failed", required=True, since="2026-01-31T09:30:00Z", missing="The disk is full"
        )
    },
)


class ReadinessMonitor:
    """Runs probes while `running` is open, and has their last results."""

    def __init__(self, clock: Clock, probes: Iterable[Probe] = ()) -> None:
        self._clock = clock
        self._probes = list(probes)
        self._checks: dict[str, ReadinessCheck] = {}
        self._is_stopping = False

    def add(self, probes: Iterable[Probe]) -> None:
        """Add probes; call it before `running`."""
        self._probes.extend(probes)

    def stop(self) -> None:
        """Report from now on that the instance is stopping."""
        self._is_stopping = True

    def report(self, names: Collection[str] | None = None) -> Readiness:
        """Return the last results, of all probes or of those with these names."""
        probes = [probe for probe in self._probes if names is None or probe.name in names]
        checks = {probe.name: self._checks.get(probe.name) for probe in probes}
        is_ready = all(
            (check := checks[probe.name]) is not None and check.status == "ok"
            for probe in probes
            if probe.is_required
        )
        results = {name: check for name, check in checks.items() if check is not None}
        if self._is_stopping:
            return Readiness("stopping", results)
        return Readiness("ready" if is_ready else "not_ready", results)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe until the block ends; it begins when every probe has a result."""
        firsts = [asyncio.Event() for _ in self._probes]
        watches = [
            asyncio.create_task(self._watch(probe, first), name=f"probe-{probe.name}")
            for probe, first in zip(self._probes, firsts, strict=True)
        ]
        try:
            await asyncio.gather(*(first.wait() for first in firsts))
            yield
        finally:
            for watch in watches:
                watch.cancel()
            if watches:
                await asyncio.wait(watches)

    async def _watch(self, probe: Probe, first: asyncio.Event) -> None:
        while True:
            started = self._clock.monotonic()
            attempt = asyncio.ensure_future(probe.check())
            try:
                await self._wait(attempt)
                self._record(probe, *_result(attempt))
                first.set()
            finally:
                attempt.cancel()
                await asyncio.wait({attempt})
                if not attempt.cancelled():
                    attempt.exception()  # marks it as retrieved
            elapsed = self._clock.monotonic() - started
            await self._clock.sleep(max(0.0, INTERVAL_SECONDS - elapsed))

    async def _wait(self, attempt: "asyncio.Future[Any]") -> None:
        """Wait until the attempt is done, at most until its deadline."""
        timer = asyncio.ensure_future(self._clock.sleep(DEADLINE_SECONDS))
        try:
            await asyncio.wait({attempt, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    def _record(
        self, probe: Probe, status: CheckStatus, missing: str | None, error: BaseException | None
    ) -> None:
        """Store a result, and log it if the status changed."""
        former = self._checks.get(probe.name)
        is_change = former is None or former.status != status
        since = rfc3339(self._clock.now()) if former is None or is_change else former.since
        self._checks[probe.name] = ReadinessCheck(status, probe.is_required, since, missing)
        if is_change and status != "ok":
            _log.warning(
                "Readiness check failed",
                action="readiness_failed",
                check=probe.name,
                status=status,
                error=error or missing,
            )
        elif is_change and former is not None:
            _log.info("Readiness check recovered", action="readiness_recovered", check=probe.name)


def _result(
    attempt: "asyncio.Future[Any]",
) -> tuple[CheckStatus, str | None, BaseException | None]:
    """Return the status, what is missing, and the error for the log.

    Messages of domain errors are written for clients; others may contain addresses or secrets.
    """
    if not attempt.done():
        return "timed_out", f"No response within {DEADLINE_SECONDS:g} s", None
    error = attempt.exception()
    if error is None:
        return "ok", None, None
    message = error.message if isinstance(error, TallyError) else "Failed; the log has the reason"
    return "failed", message, error
