"""Ingestion: stores each reading once and reports every invalid one without losing the others."""

from collections.abc import Sequence
from dataclasses import dataclass

from tally.devices.model.records import Reading, Receipt, Rejection, Sender
from tally.devices.model.submission import (
    Submission,
    SubmittedReading,
    check_count,
    check_readings,
    to_readings,
)
from tally.devices.model.validation import check_sender
from tally.devices.repository.readings import ReadingRepository
from tally.devices.service.devices import FleetService
from tally.errors import Invalid, Unavailable
from tally.kit.clock import Clock, rfc3339_seconds


@dataclass(frozen=True, slots=True)
class IngestionService:
    """Validates and stores readings."""

    readings: ReadingRepository
    devices: FleetService
    clock: Clock
    retention_seconds: int

    async def ingest(self, sender: Sender, submissions: Sequence[Submission]) -> Receipt:
        """Store valid, new readings. Every batch id is in exactly one list of the receipt."""
        sender = check_sender(sender)
        check_count(len(submissions))
        valid, rejected = _partition(submissions)
        if not valid:
            return Receipt(rejected=rejected)
        name = await self.devices.record_activity(sender)
        stored, duplicates = await self._store(
            to_readings(sender, valid, name, self.clock.milliseconds())
        )
        return Receipt(
            [reading.batch_id for reading in stored],
            [reading.batch_id for reading in duplicates],
            rejected,
        )

    async def _store(self, readings: Sequence[Reading]) -> tuple[list[Reading], list[Reading]]:
        """Store readings; return the new ones and the duplicates.

        The transactions run concurrently and share a commit on the embedded store.
        """
        now = self.clock.seconds()
        outcomes = await self.readings.store_each(
            readings, rfc3339_seconds(now), now, self.retention_seconds
        )
        stored = [
            reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is True
        ]
        if len(stored) == len(readings):
            return stored, []
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                # The board retries the whole request; the stored readings become duplicates then.
                raise outcome
        return stored, [
            reading for reading, outcome in zip(readings, outcomes, strict=True) if outcome is False
        ]


def _partition(
    submissions: Sequence[Submission],
) -> tuple[list[SubmittedReading], tuple[Rejection, ...]]:
    """Return the first valid reading per batch id, and rejections of ids without a valid one."""
    readings = [entry for entry in submissions if not isinstance(entry, Rejection)]
    if len({reading.batch_id for reading in readings}) == len(submissions) and _are_valid(readings):
        return readings, ()
    valid: dict[str, SubmittedReading] = {}
    rejections: list[Rejection] = []
    for index, entry in enumerate(submissions):
        if isinstance(entry, Rejection):
            rejections.append(entry)
            continue
        try:
            check_readings([entry])
        except Invalid as error:
            field = str(error.details["field"])
            rejections.append(Rejection(index, field, error.message, entry.batch_id))
        else:
            valid.setdefault(entry.batch_id, entry)
    return list(valid.values()), tuple(
        rejection for rejection in rejections if rejection.batch_id not in valid
    )


def _are_valid(readings: Sequence[SubmittedReading]) -> bool:
    try:
        check_readings(readings)
    except Invalid:
        return False
    return True
