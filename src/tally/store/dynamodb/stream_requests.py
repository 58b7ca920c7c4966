"""The requests of DynamoDB Streams: describe a stream, get an iterator, read records."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from tally.store.changes import Change
from tally.store.dynamodb.sending import RequestKind, RequestSender
from tally.store.dynamodb.shards import Shard, parse_shards
from tally.store.dynamodb.shared_pages import PageExchange
from tally.store.dynamodb.stream_positions import BEGINNING, ShardPointer
from tally.store.encode import item_from_wire
from tally.store.errors import StreamNotFound
from tally.store.values import Item

_TTL_PRINCIPAL: Final = ("Service", "dynamodb.amazonaws.com")

_Method: TypeAlias = Callable[..., Awaitable[Mapping[str, Any]]]
StreamRecord: TypeAlias = Mapping[str, Any]


class StreamsClient(Protocol):
    """The operations of AWS's client for streams that Tally calls."""

    @property
    def describe_stream(self) -> _Method: ...

    @property
    def get_shard_iterator(self) -> _Method: ...

    @property
    def get_records(self) -> _Method: ...


StreamsOpener: TypeAlias = Callable[[], Awaitable[StreamsClient]]


class DescribedStream(NamedTuple):
    """The current stream of a table, when it was turned on, and its shards by their keys."""

    table: str
    arn: str
    created_at: float
    shards: dict[str, Shard]


class RecordPage(NamedTuple):
    """Records of a shard, and the iterator after them; None at the end of a closed shard."""

    records: Sequence[StreamRecord]
    iterator: str | None


class StreamRequests:
    """Sends requests to DynamoDB Streams. `describe_table` returns the service's description."""

    def __init__(
        self,
        open_client: StreamsOpener,
        sender: RequestSender,
        describe_table: Callable[[str], Awaitable[Mapping[str, Any]]],
        exchange: PageExchange | None = None,
    ) -> None:
        self._open_client = open_client
        self._sender = sender
        self._describe_table = describe_table
        self.clock = sender.retry_policy.clock
        self.exchange = exchange

    async def describe(self, table: str) -> DescribedStream:
        """Return the current stream of a table with all its shards."""
        description = await self._describe_table(table)
        arn = description.get("LatestStreamArn")
        if not arn or not description.get("StreamSpecification", {}).get("StreamEnabled"):
            raise StreamNotFound(
                f'table {table} has no stream: declare it with stream="NEW_AND_OLD_IMAGES"'
            )
        shards: list[Mapping[str, Any]] = []
        request: dict[str, Any] = {"StreamArn": arn}
        while True:
            client = await self._open_client()
            response = await self._send("DescribeStream", table, client.describe_stream, request)
            found = response["StreamDescription"]
            shards += found["Shards"]
            last = found.get("LastEvaluatedShardId")
            if last is None:
                created_at = found["CreationRequestDateTime"].timestamp()
                return DescribedStream(table, arn, created_at, parse_shards(shards))
            request["ExclusiveStartShardId"] = last

    async def iterator(self, stream: DescribedStream, shard: Shard, pointer: ShardPointer) -> str:
        """Return an iterator for the records after a pointer.

        Raise PositionExpired if the record that the pointer names was trimmed.
        """
        request = {"StreamArn": stream.arn, "ShardId": shard.id}
        if pointer == BEGINNING:
            request["ShardIteratorType"] = "TRIM_HORIZON"
        else:
            kind = "AT" if pointer.kind == "t" else "AFTER"
            request["ShardIteratorType"] = f"{kind}_SEQUENCE_NUMBER"
            request["SequenceNumber"] = pointer.sequence_number
        return await self._iterator(stream, request)

    async def latest_iterator(self, stream: DescribedStream, shard: Shard) -> str:
        """Return an iterator for the next record of a shard."""
        request = {"StreamArn": stream.arn, "ShardId": shard.id, "ShardIteratorType": "LATEST"}
        return await self._iterator(stream, request)

    async def records(self, stream: DescribedStream, iterator: str) -> RecordPage:
        """Return the next records: at most 1,000, or 1 MB."""
        method = (await self._open_client()).get_records
        response = await self._send("GetRecords", stream.table, method, {"ShardIterator": iterator})
        return RecordPage(response["Records"], response.get("NextShardIterator"))

    async def _iterator(self, stream: DescribedStream, request: Mapping[str, Any]) -> str:
        method = (await self._open_client()).get_shard_iterator
        response = await self._send("GetShardIterator", stream.table, method, request)
        iterator: str = response["ShardIterator"]
        return iterator

    async def _send(
        self, operation: str, table: str, method: _Method, request: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        context = f"{operation} on table {table}"
        return await self._sender.send(RequestKind.READ, context, method, request)


def record_number(record: StreamRecord) -> int:
    """Return the sequence number of a record, which increases within its shard."""
    return int(record["dynamodb"]["SequenceNumber"])


def parse_record(record: StreamRecord, position: str) -> Change:
    """Parse a record of GetRecords; its images have the types of items."""
    data, identity = record["dynamodb"], record.get("userIdentity") or {}
    return Change(
        record["eventName"],
        item_from_wire(data["Keys"]),
        position,
        data["ApproximateCreationDateTime"].timestamp(),
        _image(data, "OldImage"),
        _image(data, "NewImage"),
        (identity.get("Type"), identity.get("PrincipalId")) == _TTL_PRINCIPAL,
        int(data["SequenceNumber"]),
    )


def _image(data: Mapping[str, Any], name: str) -> Item | None:
    return item_from_wire(data[name]) if data.get(name) else None
