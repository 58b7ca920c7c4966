"""A fake DynamoDB Streams service on a real socket, whose shards a test splits, closes and trims.

async with fake_streams() as service:
service.write("a", "k1")
service.split("a", "b", "c")
async with service.engine() as engine: ...
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from tally.kit.clock import Clock
from tally.store.dynamodb.engine import DynamoDBEngine
from tally.store.dynamodb.opening import open_dynamodb
from tally.store.dynamodb.options import DynamoDBRetryPolicy
from tally.store.dynamodb.shared_pages import PageExchange
from tests.store.emulators import MADE_UP
from tests.store.fake_dynamodb import ReceivedRequest, Reply, Service, refusal, response

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/streamed/stream/"
PAGE_RECORDS = 3
PAGE_SHARDS = 2
CREATED_AT = 1_900_000_000


@dataclass(slots=True)
class FakeShard:
    """A shard; `trimmed` is the number up to which its records are gone."""

    name: str
    parent: str | None = None
    is_open: bool = True
    records: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    trimmed: int = 0

    def wire(self) -> dict[str, Any]:
        parent = {"ParentShardId": self.parent} if self.parent else {}
        numbers = {"StartingSequenceNumber": "0" * 21}
        if not self.is_open:
            numbers["EndingSequenceNumber"] = "9" * 21
        return {"ShardId": self.name, "SequenceNumberRange": numbers, **parent}


class StreamsService(Service):
    """One table with one stream."""

    def __init__(self) -> None:
        super().__init__()
        self.label = "2030-03-17T17:46:40.000"
        self.is_enabled = True
        self.shards: dict[str, FakeShard] = {}
        self.errors: dict[str, deque[Reply]] = {}
        self.requests: Counter[str] = Counter()
        self.empty_pages = 0  # before the records, for each new iterator
        self._numbers: Iterator[int] = iter(range(10**21, 10**22))
        self.restart()

    def restart(self) -> None:
        """Begin with one shard and no records."""
        self.shards = {"a": FakeShard("a")}
        self.errors.clear()
        self.empty_pages = 0

    def write(self, shard: str, key: str, **record: Any) -> None:
        """Append a record for a key."""
        number = next(self._numbers)
        data = {
            "ApproximateCreationDateTime": CREATED_AT,
            "Keys": {"id": {"S": key}, "at": {"S": "1"}},
            "SequenceNumber": str(number),
            "NewImage": {"id": {"S": key}, "at": {"S": "1"}, "n": {"N": str(number)}},
        }
        self.shards[shard].records.append(
            (number, {"eventName": "INSERT", "dynamodb": data, **record})
        )

    def split(self, shard: str, *children: str) -> None:
        """Close a shard; its children continue it."""
        self.shards[shard].is_open = False
        self.shards |= {child: FakeShard(child, shard) for child in children}

    def trim(self, shard: str, count: int) -> None:
        """Remove the first records of a shard."""
        found = self.shards[shard]
        found.trimmed = found.records[count - 1][0]
        del found.records[:count]

    def fail(self, operation: str, *replies: Reply) -> None:
        """Reply with these to the next requests of an operation."""
        self.errors.setdefault(operation, deque()).extend(replies)

    @contextlib.asynccontextmanager
    async def engine(
        self, clock: Clock, exchange: PageExchange | None = None
    ) -> AsyncIterator[DynamoDBEngine]:
        """Open an engine on the service."""
        policy = DynamoDBRetryPolicy(clock=clock)
        async with open_dynamodb(
            endpoint=self.url, credentials=MADE_UP, retry_policy=policy, exchange=exchange
        ) as engine:
            yield engine

    def _next_reply(self, request: ReceivedRequest) -> Reply:
        self.requests[request.operation] += 1
        errors = self.errors.get(request.operation)
        if errors:
            return errors.popleft()
        handlers = {
            "DescribeTable": self._describe_table,
            "DescribeStream": self._describe_stream,
            "GetShardIterator": self._iterator,
            "GetRecords": self._records,
        }
        return handlers[request.operation](request.body)

    def _describe_table(self, _body: dict[str, Any]) -> Reply:
        enabled = {"StreamSpecification": {"StreamEnabled": True}} if self.is_enabled else {}
        return response({"Table": {"LatestStreamArn": ARN + self.label, **enabled}})

    def _describe_stream(self, body: dict[str, Any]) -> Reply:
        names = [*self.shards]
        start = names.index(body["ExclusiveStartShardId"]) + 1 if len(body) > 1 else 0
        page = names[start : start + PAGE_SHARDS]
        more = {"LastEvaluatedShardId": page[-1]} if names[-1:] != page[-1:] else {}
        shards = [self.shards[name].wire() for name in page]
        description = {"CreationRequestDateTime": CREATED_AT, "Shards": shards, **more}
        return response({"StreamDescription": description})

    def _iterator(self, body: dict[str, Any]) -> Reply:
        shard = self.shards.get(body["ShardId"])
        if shard is None:
            return refusal("ResourceNotFoundException", "Shard does not exist")
        number = int(body.get("SequenceNumber", 0))
        kind = body["ShardIteratorType"]
        if number and number < shard.trimmed + (kind == "AT_SEQUENCE_NUMBER"):
            return refusal("TrimmedDataAccessException", "trimmed")
        first = {
            "TRIM_HORIZON": shard.trimmed,
            "LATEST": shard.records[-1][0] if shard.records else shard.trimmed,
            "AT_SEQUENCE_NUMBER": number - 1,
            "AFTER_SEQUENCE_NUMBER": number,
        }[kind]
        return response({"ShardIterator": f"{shard.name} {first} {self.empty_pages}"})

    def _records(self, body: dict[str, Any]) -> Reply:
        name, after, empty_pages = body["ShardIterator"].split(" ")
        shard = self.shards.get(name)
        if shard is None:
            return refusal("ResourceNotFoundException", "Shard does not exist")
        if int(after) < shard.trimmed:
            return refusal("TrimmedDataAccessException", "trimmed")
        if int(empty_pages):
            following = f"{name} {after} {int(empty_pages) - 1}"
            return response({"Records": [], "NextShardIterator": following})
        found = [record for record in shard.records if record[0] > int(after)]
        page = found[:PAGE_RECORDS]
        last = page[-1][0] if page else int(after)
        ends = not shard.is_open and len(found) <= PAGE_RECORDS
        more = {} if ends else {"NextShardIterator": f"{name} {last} 0"}
        return response({"Records": [record for _, record in page], **more})


@contextlib.asynccontextmanager
async def fake_streams() -> AsyncIterator[StreamsService]:
    """Run the service on a free port."""
    service = StreamsService()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
