"""Readings go out: the latest, a page of a time range, a chart of one sensor, or all of them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from tally.devices.model import (
    LATEST_MS,
    Bucket,
    Number,
    PageKey,
    Reading,
    Series,
    check_hardware_id,
)
from tally.devices.repository.devices import DeviceRepository
from tally.devices.repository.readings import MAX_AT_ONCE, ReadingRepository
from tally.errors import Invalid, NotFound

Span: TypeAlias = tuple[int, int]
# A range with fewer readings than this is charted from all of them.
READ_WHOLE: Final = 5_000
READ_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class History:
    """What was measured."""

    readings: ReadingRepository
    devices: DeviceRepository

    async def latest(self, hardware_id: str) -> Reading:
        await self._check(hardware_id)
        reading = await self.readings.latest(hardware_id)
        if reading is None:
            raise NotFound(f"The device {hardware_id} has no readings", code="no_readings")
        return reading

    async def between(
        self, hardware_id: str, span: Span, *, forward: bool, limit: int, start: PageKey | None
    ) -> tuple[list[Reading], PageKey | None]:
        await self._check(hardware_id)
        return await self.readings.between(
            hardware_id, check_span(span), forward=forward, limit=limit, start=start
        )

    async def series(self, hardware_id: str, sensor: str, span: Span, points: int) -> Series:
        """The sensor in at most so many buckets, with work that does not grow with the length of history."""
        await self._check(hardware_id)
        span = check_span(span)
        values, is_all = await self.readings.values(hardware_id, sensor, span, READ_WHOLE)
        if is_all:
            return Series(sensor, tuple(_buckets(values, span, points)), sampled=False)
        values, is_all = await self._sample(hardware_id, sensor, span, points)
        return Series(sensor, tuple(_buckets(values, span, points)), sampled=not is_all)

    async def _sample(
        self, hardware_id: str, sensor: str, span: Span, points: int
    ) -> tuple[list[tuple[int, Number]], bool]:
        """The first readings of each bucket, and whether those were all; a few buckets are read at a time."""
        values: list[tuple[int, Number]] = []
        is_all, share = True, MAX_AT_ONCE // points
        stretches = list(_stretches(span, points))
        for start in range(0, len(stretches), READ_AT_ONCE):
            some = stretches[start : start + READ_AT_ONCE]
            for found, was_all in await asyncio.gather(
                *(self.readings.values(hardware_id, sensor, stretch, share) for stretch in some)
            ):
                values += found
                is_all = is_all and was_all
        return values, is_all

    async def export(self, hardware_id: str, span: Span) -> AsyncGenerator[Reading, None]:
        """All readings of the span, streamed; what is wrong is told before the first."""
        await self._check(hardware_id)
        return self.readings.all_between(hardware_id, check_span(span))

    async def _check(self, hardware_id: str) -> None:
        if await self.devices.get(check_hardware_id(hardware_id)) is None:
            raise NotFound(f"There is no device {hardware_id}", code="device_not_found")


def check_span(span: Span) -> Span:
    """A span of milliseconds, both ends included, within the time that readings can have; or Invalid."""
    first, last = span
    if not 0 <= first <= last:
        raise Invalid(
            "from must not be later than to, both in milliseconds since 1970",
            code="invalid_format",
            field="from",
        )
    return min(first, LATEST_MS), min(last, LATEST_MS)


def _stretches(span: Span, points: int) -> Iterator[Span]:
    first, last = span
    width = -(-(last - first + 1) // points)
    for begin in range(first, last + 1, width):
        yield begin, min(begin + width - 1, last)


def _buckets(values: Sequence[tuple[int, Number]], span: Span, points: int) -> Iterator[Bucket]:
    """Stretches of equal length, without the empty ones. The values come in the order of time."""
    position = 0
    for begin, end in _stretches(span, points):
        inside: list[Number] = []
        while position < len(values) and values[position][0] <= end:
            inside.append(values[position][1])
            position += 1
        if inside:
            mean = sum(map(Decimal, inside), Decimal()) / len(inside)
            yield Bucket(begin, end, len(inside), min(inside), max(inside), mean)
