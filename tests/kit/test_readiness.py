"""Probes run once per second in the background; a probe that hangs counts as failed."""

import asyncio
from collections.abc import Awaitable, Callable

from tally.errors import Unavailable
from tally.kit.backend import Probe
from tally.kit.clock import ManualClock
from tally.kit.readiness import DEADLINE_SECONDS, INTERVAL_SECONDS, ReadinessMonitor
from tests.kit.conftest import LogLines


class SwitchableProbe:
    """A dependency whose probe succeeds, fails or hangs."""

    def __init__(self) -> None:
        self.runs = 0
        self.cancelled = 0
        self.behave: Callable[[], Awaitable[object]] = self.succeed

    async def check(self) -> None:
        self.runs += 1
        await self.behave()

    async def succeed(self) -> None: ...

    async def fail(self) -> None:
        raise Unavailable("The disk is full")

    async def hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1

    async def ignore_cancellation(self) -> None:
        released = asyncio.Event()
        self.release = released.set
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                self.cancelled += 1


async def test_failures_hangs_and_recoveries_show_within_two_seconds(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    monitor = ReadinessMonitor(clock, [Probe("disk", probe.check)])
    async with monitor.running():
        assert monitor.report().status == "ready"
        for behave, expected in (
            (probe.fail, "failed"),
            (probe.succeed, "ok"),
            (probe.hang, "timed_out"),
            (probe.succeed, "ok"),
        ):
            probe.behave = behave
            await clock.advance(INTERVAL_SECONDS + DEADLINE_SECONDS)
            assert monitor.report().checks["disk"].status == expected
    assert INTERVAL_SECONDS + DEADLINE_SECONDS < 2


async def test_each_probe_runs_once_per_second(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    async with ReadinessMonitor(clock, [Probe("disk", probe.check)]).running():
        await clock.advance(60)
    assert probe.runs == 61
    await clock.advance(60)
    assert probe.runs == 61


async def test_reports_start_no_probe(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    monitor = ReadinessMonitor(clock, [Probe("disk", probe.check)])
    async with monitor.running():
        for _ in range(100):
            monitor.report()
    assert probe.runs == 1


async def test_without_results_the_instance_is_not_ready(clock: ManualClock) -> None:
    monitor = ReadinessMonitor(clock, [Probe("disk", SwitchableProbe().check)])
    report = monitor.report()
    assert (report.status, report.response().status_code, report.checks) == ("not_ready", 503, {})


async def test_a_probe_that_hangs_at_the_start_does_not_prevent_it(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    probe.behave = probe.hang
    monitor = ReadinessMonitor(clock, [Probe("disk", probe.check)])
    starting = asyncio.create_task(_start_and_stop(monitor))
    await clock.until_sleeping()
    await clock.advance(DEADLINE_SECONDS)
    assert await starting == "timed_out"


async def _start_and_stop(monitor: ReadinessMonitor) -> str:
    async with monitor.running():
        return monitor.report().checks["disk"].status


async def test_a_probe_that_ignores_its_cancellation_is_not_started_again(
    clock: ManualClock,
) -> None:
    """It is reported as failed until it ends, and other probes continue."""
    stuck, other = SwitchableProbe(), SwitchableProbe()
    monitor = ReadinessMonitor(clock, [Probe("disk", stuck.check), Probe("net", other.check)])
    async with monitor.running():
        stuck.behave = stuck.ignore_cancellation
        await clock.advance(60)
        assert monitor.report().checks["disk"].status == "timed_out"
        assert (stuck.runs, other.runs) == (2, 61)
        stuck.behave = stuck.succeed
        stuck.release()
        await clock.advance(1)
        assert monitor.report().status == "ready"


async def test_a_result_has_the_time_since_when_it_applies(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    monitor = ReadinessMonitor(clock, [Probe("disk", probe.check)])
    async with monitor.running():
        assert monitor.report().checks["disk"].since == "2026-01-01T00:00:00Z"
        probe.behave = probe.fail
        await clock.advance(30)
        assert monitor.report().checks["disk"].since == "2026-01-01T00:00:01Z"
        probe.behave = probe.succeed
        await clock.advance(30)
        assert monitor.report().checks["disk"].since == "2026-01-01T00:00:31Z"


async def test_only_changes_are_logged(clock: ManualClock, log_lines: LogLines) -> None:
    probe = SwitchableProbe()
    async with ReadinessMonitor(clock, [Probe("disk", probe.check)]).running():
        probe.behave = probe.fail
        await clock.advance(30)
        probe.behave = probe.succeed
        await clock.advance(30)
    assert [line["action"] for line in log_lines()] == ["readiness_failed", "readiness_recovered"]


async def test_a_report_may_be_limited_to_some_checks(clock: ManualClock) -> None:
    probe = SwitchableProbe()
    probe.behave = probe.fail
    probes = [Probe("disk", probe.check), Probe("store", SwitchableProbe().check)]
    monitor = ReadinessMonitor(clock, probes)
    async with monitor.running():
        assert monitor.report().status == "not_ready"
        assert monitor.report({"store"}).status == "ready"
        assert set(monitor.report({"store"}).checks) == {"store"}


async def test_a_stopping_instance_is_not_ready(clock: ManualClock) -> None:
    monitor = ReadinessMonitor(clock, [Probe("disk", SwitchableProbe().check)])
    async with monitor.running():
        monitor.stop()
        report = monitor.report()
    assert (report.status, report.response().status_code) == ("stopping", 503)
    assert report.checks["disk"].status == "ok"
