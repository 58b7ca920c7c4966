"""Readings come in: each is stored once, however often it is sent, and a bad one never loses the good ones beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from tally.devices.model import (
    MAX_READINGS,
    Reading,
    Receipt,
    Rejection,
    Sender,
    check_reading,
    check_sender,
    is_ahead,
    timestamp,
)
from tally.devices.repository.readings import ReadingRepository
from tally.devices.service.registry import Registry
from tally.errors import Invalid, Unavailable
from tally.kit.clock import Clock

# What a board sent in one place of its request: a reading, or why it is none.
Sent: TypeAlias = Reading | Rejection
Announce: TypeAlias = Callable[[Sequence[Reading]], None]


@dataclass(frozen=True, slots=True)
class Ingestion:
    """`announce` tells those who watch a device what has just been stored."""

    readings: ReadingRepository
    registry: Registry
    clock: Clock
    retention_seconds: int
    announce: Announce

    async def ingest(self, sender: Sender, sent: Sequence[Sent]) -> Receipt:
        """Store what is good and new; every batch id comes back in exactly one part of the receipt."""
        sender = check_sender(sender)
        check_count(len(sent))
        good, rejected = _sorted_out(sent)
        if not good:
            return Receipt(rejected=rejected)
        name = await self.registry.heard_of(sender)
        now_ms = self.clock.milliseconds()
        named = [replace(reading, friendly_name=name, clock_ahead=is_ahead(reading.timestamp_ms, now_ms)) for reading in good]
        stored, duplicates = await self._store(named)
        return Receipt(tuple(reading.batch_id for reading in stored), tuple(reading.batch_id for reading in duplicates), rejected)

    async def _store(self, readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
        """The new ones and the duplicates. All transactions run at once: on the embedded store they share a commit."""
        received_at, now = timestamp(self.clock.now()), self.clock.seconds()
        outcomes = await self.readings.store_each(readings, received_at, now, self.retention_seconds)
        stored = [reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is True]
        if stored:
            self.announce(stored)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                # The board will send them all again; those that were stored will then be duplicates.
                raise outcome
        return stored, [reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is False]


def check_count(count: int) -> None:
    """Refuse a request with no readings or too many."""
    if not count:
        raise Invalid("readings must hold at least one reading", code="invalid_format", field="readings")
    if count > MAX_READINGS:
        message = f"readings must hold at most {MAX_READINGS} readings, not {count}"
        raise Invalid(message, code="batch_size_exceeded", field="readings")


def _sorted_out(sent: Sequence[Sent]) -> tuple[list[Reading], tuple[Rejection, ...]]:
    """The first good reading of each batch id, and what is wrong with the ids that have none."""
    good: dict[str, Reading] = {}
    bad: list[Rejection] = []
    for index, entry in enumerate(sent):
        if isinstance(entry, Rejection):
            bad.append(entry)
            continue
        try:
            good.setdefault(entry.batch_id, check_reading(entry))
        except Invalid as error:
            bad.append(Rejection(index, str(error.details["field"]), error.message, entry.batch_id))
    return list(good.values()), tuple(rejection for rejection in bad if rejection.batch_id not in good)
