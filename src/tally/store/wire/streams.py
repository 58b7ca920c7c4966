"""The operations of DynamoDB Streams on the change log.

A stream has one shard, which stays open until the stream is disabled: the log orders the changes of
all partitions. A disabled stream can be read for a day, as far as the log keeps its changes. An
iterator contains its stream, the time of its creation and a position of the log.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from tally.kit.clock import Clock
from tally.store.changes import START, Change, EndedStream
from tally.store.encode import item_to_wire
from tally.store.errors import PositionExpired, PositionUnknown, StreamNotFound, TableNotFound
from tally.store.schema import StreamView, Table
from tally.store.sqlite.change_streams import ChangeStreams
from tally.store.values import measure_item
from tally.store.wire.service_errors import ServiceError, dynamodb_error, invalid
from tally.store.wire.table_descriptions import key_schema
from tally.store.wire.table_metadata import (
    REGION,
    StatefulEngine,
    readable_streams,
    stream_metadata,
    table_arn,
)
from tally.store.wire.table_names import table_name

Body = Mapping[str, Any]
ITERATOR_SECONDS: Final = 900
_MAX_STREAMS: Final = 100
_MAX_RECORDS: Final = 1_000
_PAGE_BYTES: Final = 1_000_000
_ITERATOR: Final = re.compile(r"([^|]+)\|([0-9]{1,12})\|([^|]+)")
_STREAM: Final = "/stream/"
_TTL_IDENTITY: Final = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


class _Stream(NamedTuple):
    """A stream that can be read; `ended` is None for the current stream of its table."""

    arn: str
    label: str
    table: Table
    reader: ChangeStreams
    ended: EndedStream | None

    @property
    def origin(self) -> int:
        return self.reader.origin(self.table) if self.ended is None else self.ended.origin

    @property
    def view(self) -> StreamView | None:
        return self.table.stream if self.ended is None else self.ended.view

    def summary(self) -> dict[str, str]:
        name = self.table.name
        return {"StreamArn": self.arn, "TableName": name, "StreamLabel": self.label}


class StreamOperations:
    """Lists and describes streams, and reads their records."""

    def __init__(self, engine: StatefulEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def list_streams(self, body: Body) -> dict[str, Any]:
        only = body.get("TableName")
        names = await self._engine.list_tables() if only is None else [table_name(only)]
        start = body.get("ExclusiveStartStreamArn", "")
        found = [stream for name in names for stream in await self._readable(name)]
        rest = [stream for stream in found if stream.arn > start]
        rest.sort(key=attrgetter("arn"))
        limit = min(body.get("Limit", _MAX_STREAMS), _MAX_STREAMS)
        response: dict[str, Any] = {"Streams": [stream.summary() for stream in rest[:limit]]}
        if len(rest) > limit:
            response["LastEvaluatedStreamArn"] = rest[limit - 1].arn
        return response

    async def describe_stream(self, body: Body) -> dict[str, Any]:
        stream = await self._find(body["StreamArn"])
        created_at = datetime.fromisoformat(stream.label).replace(tzinfo=UTC).timestamp()
        numbers = {"StartingSequenceNumber": _sequence_number(stream.origin)}
        if stream.ended is not None:
            numbers["EndingSequenceNumber"] = _sequence_number(stream.reader.end(stream.table))
        shards = [{"ShardId": _shard_id(stream.origin), "SequenceNumberRange": numbers}]
        if body.get("ExclusiveStartShardId") or body.get("ShardFilter"):  # there is no other shard
            shards = []
        described = {
            "StreamArn": stream.arn,
            "StreamLabel": stream.label,
            "StreamStatus": "ENABLED" if stream.ended is None else "DISABLED",
            "StreamViewType": stream.view,
            "CreationRequestDateTime": created_at,
            "TableName": stream.table.name,
            "KeySchema": key_schema(stream.table),
            "Shards": shards,
        }
        return {"StreamDescription": described}

    async def get_shard_iterator(self, body: Body) -> dict[str, Any]:
        arn, kind = body["StreamArn"], body["ShardIteratorType"]
        number = body.get("SequenceNumber")
        if kind == "AT_TIMESTAMP":
            raise invalid("AT_TIMESTAMP is not supported; use a sequence number")
        if kind.endswith("SEQUENCE_NUMBER") != (number is not None):
            rule = "requires" if number is None else "does not allow"
            raise invalid(f"ShardIteratorType {kind} {rule} a SequenceNumber")
        if number is not None and not (number.isascii() and number.isdigit()):
            raise invalid(f"Invalid SequenceNumber: {number}")
        stream = await self._find(arn)
        if body["ShardId"] != _shard_id(stream.origin):
            raise dynamodb_error(
                "ResourceNotFoundException",
                f"Requested resource not found: Shard: {body['ShardId']} of stream: {arn}",
            )
        if kind == "TRIM_HORIZON" or (number is not None and int(number) == stream.origin):
            position = START  # the first number of a shard has no record
        elif number is not None:
            position = _position(stream, int(number), is_after=kind.startswith("AFTER"))
        elif stream.ended is None:
            position = stream.reader.last_position(stream.table)
        else:
            position = stream.reader.place(stream.table, stream.reader.end(stream.table))
        return {"ShardIterator": self._iterator(arn, position)}

    async def get_records(self, body: Body) -> dict[str, Any]:
        arn, position = self._read_iterator(body["ShardIterator"])
        limit = body.get("Limit", _MAX_RECORDS)
        if limit > _MAX_RECORDS:
            raise invalid(
                f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy"
                f" constraint: Member must have value less than or equal to {_MAX_RECORDS}"
            )
        stream = await self._find(arn)
        try:
            page = stream.reader.read_page(stream.table, position, limit, _PAGE_BYTES)
        except PositionExpired:
            raise _trimmed() from None
        except (PositionUnknown, StreamNotFound):
            raise _stream_not_found(arn) from None
        response: dict[str, Any] = {"Records": [_record(stream, change) for change in page.changes]}
        if stream.ended is None or not page.is_complete:  # else the shard is closed
            response["NextShardIterator"] = self._iterator(arn, page.position)
        return response

    async def _readable(self, name: str) -> list["_Stream"]:
        """Return the streams of a table: the current one, and those that were disabled."""
        try:
            table = await self._engine.describe_table(name)
        except TableNotFound:
            return []
        metadata = await stream_metadata(self._engine, table, self._now())
        current = None if table.stream is None else metadata.stream_label or ""
        streams = [
            self._stream(table, stream.label, stream)
            for stream in readable_streams(metadata, self._now())
            if stream.label != current  # which it is if disabling it has failed
        ]
        return streams if current is None else [*streams, self._stream(table, current, None)]

    def _stream(self, table: Table, label: str, ended: EndedStream | None) -> "_Stream":
        arn = f"{table_arn(table.name)}{_STREAM}{label}"
        return _Stream(arn, label, table, self._engine.stream_reader(ended), ended)

    async def _find(self, arn: str) -> "_Stream":
        table, separator, _ = arn.partition(_STREAM)
        if not separator or not table.startswith("arn:"):
            raise invalid(f"Invalid StreamArn: {arn}")
        for stream in await self._readable(table_name(table)):
            if stream.arn == arn:
                return stream
        raise _stream_not_found(arn)

    def _iterator(self, arn: str, position: str) -> str:
        return f"{arn}|{int(self._now())}|{position}"

    def _read_iterator(self, iterator: str) -> tuple[str, str]:
        match = _ITERATOR.fullmatch(iterator)
        if match is None:
            raise invalid("Invalid ShardIterator")
        arn, created_at, position = match.groups()
        if self._now() - int(created_at) > ITERATOR_SECONDS:
            raise dynamodb_error("ExpiredIteratorException", "Shard iterator has expired")
        return arn, position

    def _now(self) -> float:
        return self._clock.time_ns() / 1e9


def _shard_id(origin: int) -> str:
    return f"shardId-{_sequence_number(origin)}"


def _sequence_number(sequence: int) -> str:
    return f"{sequence:021}"


def _position(stream: _Stream, sequence: int, *, is_after: bool) -> str:
    try:
        return stream.reader.place(stream.table, sequence if is_after else sequence - 1)
    except PositionExpired:
        raise _trimmed() from None
    except PositionUnknown:
        raise invalid(f"Invalid SequenceNumber: {sequence}") from None


def _record(stream: _Stream, change: Change) -> dict[str, Any]:
    """Encode a change as a record; its time has the service's resolution, a second."""
    data: dict[str, Any] = {
        "ApproximateCreationDateTime": int(change.at),
        "Keys": item_to_wire(change.key),
        "SequenceNumber": _sequence_number(change.sequence),
        "SizeBytes": sum(map(measure_item, filter(None, (change.key, change.old, change.new)))),
        "StreamViewType": stream.view,
    }
    if change.old is not None:
        data["OldImage"] = item_to_wire(change.old)
    if change.new is not None:
        data["NewImage"] = item_to_wire(change.new)
    record = {
        "eventID": hashlib.sha256(f"{stream.arn} {change.sequence}".encode()).hexdigest()[:32],
        "eventName": change.kind,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
        "dynamodb": data,
    }
    return {**record, "userIdentity": _TTL_IDENTITY} if change.is_expiry else record


def _stream_not_found(arn: str) -> ServiceError:
    message = f"Requested resource not found: Stream: {arn} not found"
    return dynamodb_error("ResourceNotFoundException", message)


def _trimmed() -> ServiceError:
    message = "The operation attempted to read past the oldest stream record in a shard"
    return dynamodb_error("TrimmedDataAccessException", message)
