"""Readings come in: each is stored once, however often it is sent, and a bad one never loses the good ones beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tally.devices.measured import Measured, Sent, check_count, check_measured, readings_of
from tally.devices.model import Reading, Receipt, Rejection, Sender, check_sender, timestamp
from tally.devices.repository.readings import ReadingRepository
from tally.devices.service.registry import Registry
from tally.errors import Invalid, Unavailable
from tally.kit.clock import Clock

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
        stored, duplicates = await self._store(
            readings_of(sender, good, name, self.clock.milliseconds())
        )
        return Receipt(
            [reading.batch_id for reading in stored],
            [reading.batch_id for reading in duplicates],
            rejected,
        )

    async def _store(self, readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
        """The new ones and the duplicates.

        All transactions run at once: on the embedded store they share a commit.
        """
        received_at, now = timestamp(self.clock.now()), self.clock.seconds()
        outcomes = await self.readings.store_each(
            readings, received_at, now, self.retention_seconds
        )
        stored = [
            reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is True
        ]
        if stored:
            self.announce(stored)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                # The board will send them all again; those that were stored will then be
                # duplicates.
                raise outcome
        return stored, [
            reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is False
        ]


def _sorted_out(sent: Sequence[Sent]) -> tuple[list[Measured], tuple[Rejection, ...]]:
    """The first good one of each batch id, and what is wrong with the ids that have none."""
    measured = [each for each in sent if not isinstance(each, Rejection)]
    if len({each.batch_id for each in measured}) == len(sent) and _are_good(measured):
        return measured, ()
    good: dict[str, Measured] = {}
    bad: list[Rejection] = []
    for index, each in enumerate(sent):
        if isinstance(each, Rejection):
            bad.append(each)
            continue
        try:
            check_measured([each])
        except Invalid as error:
            bad.append(Rejection(index, str(error.details["field"]), error.message, each.batch_id))
        else:
            good.setdefault(each.batch_id, each)
    return list(good.values()), tuple(
        rejection for rejection in bad if rejection.batch_id not in good
    )


def _are_good(measured: Sequence[Measured]) -> bool:
    try:
        check_measured(measured)
    except Invalid:
        return False
    return True
