"""Ingestion: stores each reading once and reports every rejected one without losing the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tally.devices.model.digests import content_digest
from tally.devices.model.records import Reading, Receipt, Rejection, Sender, StoredBatch
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


class CheckedSubmissions(NamedTuple):
    """The valid readings of a request, their indexes, and the rejections of the others."""

    readings: Sequence[SubmittedReading]
    indexes: Sequence[int]
    rejections: Sequence[Rejection] = ()
    newest_too_old_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IngestionService:
    """Validates and stores readings."""

    readings: ReadingRepository
    devices: FleetService
    clock: Clock
    retention_seconds: int

    async def ingest(self, sender: Sender, submissions: Sequence[Submission]) -> Receipt:
        """Store valid, new readings. Every reading is in exactly one list of the receipt.

        Invalid copies of a valid reading, which have its batch id, are not reported.
        """
        sender = check_sender(sender)
        check_count(len(submissions))
        now_ms = self.clock.milliseconds()
        checked = _check(submissions, self._oldest_ms(now_ms), self.retention_seconds)
        times = [reading.timestamp_ms for reading in checked.readings]
        if not times:
            if checked.newest_too_old_ms is not None:
                await self.devices.record_activity(sender, checked.newest_too_old_ms)
            return Receipt(rejected=checked.rejections)
        name = await self.devices.record_activity(sender, max(times))
        readings = to_readings(sender, checked.readings, name, now_ms)
        if len({reading.batch_id for reading in readings}) == len(readings):
            outcomes = await self._store(readings)
        else:
            outcomes = await self._store_repeated(readings)
        if not checked.rejections and outcomes.count(None) == len(outcomes):
            return Receipt([reading.batch_id for reading in readings])
        return _receipt(readings, outcomes, checked)

    def _oldest_ms(self, now_ms: int) -> int:
        """Return the time of the oldest reading that has not expired yet."""
        return (now_ms // 1000 - self.retention_seconds + 1) * 1000

    async def _store(self, readings: Sequence[Reading]) -> list[StoredBatch | None]:
        """Store readings; return None for new ones, and for others what has their batch id.

        The transactions run concurrently and share a commit on the embedded store.
        """
        now = self.clock.seconds()
        outcomes: list[StoredBatch | None] = []
        for outcome in await self.readings.store_each(
            readings, rfc3339_seconds(now), now, self.retention_seconds
        ):
            if isinstance(outcome, Unavailable):
                # The board retries the whole request; the stored readings become duplicates then.
                raise outcome
            outcomes.append(outcome)
        return outcomes

    async def _store_repeated(self, readings: Sequence[Reading]) -> list[StoredBatch | None]:
        """Store the first reading of each batch id, of which the others are copies or conflicts."""
        first: dict[str, Reading] = {}
        for reading in readings:
            first.setdefault(reading.batch_id, reading)
        distinct = [*first.values()]
        found = dict(zip(first, await self._store(distinct), strict=True))
        return [
            found[reading.batch_id]
            if first[reading.batch_id] is reading
            else found[reading.batch_id] or _batch(first[reading.batch_id])
            for reading in readings
        ]


def _batch(reading: Reading) -> StoredBatch:
    digest = content_digest(reading.timestamp_ms, reading.sensors, reading.sensor_status)
    return StoredBatch(reading.hardware_id, digest)


def _is_same(reading: Reading, stored: StoredBatch) -> bool:
    """Whether a batch id was used for this reading, as far as is known of earlier versions."""
    if stored.content_digest is None:
        return stored.hardware_id == reading.hardware_id
    return stored == _batch(reading)


def _receipt(
    readings: Sequence[Reading],
    outcomes: Sequence[StoredBatch | None],
    checked: CheckedSubmissions,
) -> Receipt:
    acknowledged, duplicates, rejected = list[str](), list[str](), [*checked.rejections]
    for reading, index, stored in zip(readings, checked.indexes, outcomes, strict=True):
        batch_id = reading.batch_id
        if stored is None:
            acknowledged.append(batch_id)
        elif _is_same(reading, stored):
            duplicates.append(batch_id)
        else:
            is_other = stored.hardware_id != reading.hardware_id
            why = f"batch_id was used by {'another board' if is_other else 'a different reading'}"
            rejected.append(Rejection(index, "batch_id", why, batch_id, "batch_id_conflict"))
    rejected.sort(key=lambda rejection: rejection.index)
    return Receipt(acknowledged, duplicates, rejected)


def _check(submissions: Sequence[Submission], oldest_ms: int, retention: int) -> CheckedSubmissions:
    """Separate valid readings from rejected ones."""
    readings = [entry for entry in submissions if not isinstance(entry, Rejection)]
    if len(readings) == len(submissions) and _are_valid(readings, oldest_ms):
        return CheckedSubmissions(readings, range(len(readings)))
    valid: dict[int, SubmittedReading] = {}
    rejections: list[Rejection] = []
    too_old: list[int] = []
    for index, entry in enumerate(submissions):
        if isinstance(entry, Rejection):
            rejections.append(entry)
            continue
        try:
            check_readings([entry])
        except Invalid as error:
            field = str(error.details["field"])
            rejections.append(Rejection(index, field, error.message, entry.batch_id, error.code))
            continue
        if entry.timestamp_ms < oldest_ms:
            why = f"timestamp_ms is older than the retention of {retention // 86_400} days"
            rejections.append(Rejection(index, "timestamp_ms", why, entry.batch_id, "too_old"))
            too_old.append(entry.timestamp_ms)
        else:
            valid[index] = entry
    ids = {reading.batch_id for reading in valid.values()}
    return CheckedSubmissions(
        [*valid.values()],
        [*valid],
        [rejection for rejection in rejections if rejection.batch_id not in ids],
        max(too_old, default=None),
    )


def _are_valid(readings: Sequence[SubmittedReading], oldest_ms: int) -> bool:
    try:
        check_readings(readings)
    except Invalid:
        return False
    return min(reading.timestamp_ms for reading in readings) >= oldest_ms
