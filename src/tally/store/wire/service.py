"""Runs one operation of the protocol: decodes the body, validates it and encodes the response."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from tally.kit import logs
from tally.kit.clock import Clock
from tally.store.errors import InvalidSchema, StoreError, StoreUnavailable
from tally.store.sqlite import SqliteEngine
from tally.store.wire.batches import batch_get_item, batch_write_item
from tally.store.wire.control_plane import ControlPlane
from tally.store.wire.items import delete_item, get_item, put_item, update_item
from tally.store.wire.partiql.operations import (
    batch_execute_statement,
    execute_statement,
    execute_transaction,
)
from tally.store.wire.queries import query, scan
from tally.store.wire.request_model import RequestModel
from tally.store.wire.service_errors import (
    ServiceError,
    coral_error,
    in_envelope,
    invalid,
    not_serializable,
    translate,
)
from tally.store.wire.simple_reads import GET_ITEM, SimpleReads
from tally.store.wire.streams import StreamOperations
from tally.store.wire.table_metadata import StatefulEngine
from tally.store.wire.transactions import transact_get_items, transact_write_items
from tally.store.wire.visible_tables import VisibleTables

Body = Mapping[str, Any]
Handler: TypeAlias = Callable[[Body], Awaitable[dict[str, Any]]]
_encode: Final = msgspec.json.Encoder().encode
_DYNAMODB: Final = "DynamoDB_20120810"
_STREAMS: Final = "DynamoDBStreams_20120810"
_DATA_PLANE: Final = {
    "GetItem": get_item,
    "PutItem": put_item,
    "UpdateItem": update_item,
    "DeleteItem": delete_item,
    "Query": query,
    "Scan": scan,
    "BatchGetItem": batch_get_item,
    "BatchWriteItem": batch_write_item,
    "TransactGetItems": transact_get_items,
    "TransactWriteItems": transact_write_items,
    "ExecuteStatement": execute_statement,
    "BatchExecuteStatement": batch_execute_statement,
    "ExecuteTransaction": execute_transaction,
}
# Everything else is refused where the tables are read-only, also operations that may be added.
_READS: Final = frozenset(
    {
        "GetItem",
        "Query",
        "Scan",
        "BatchGetItem",
        "TransactGetItems",
        "DescribeTable",
        "ListTables",
        "DescribeTimeToLive",
        "ListTagsOfResource",
        "DescribeLimits",
        "DescribeEndpoints",
        "ListStreams",
        "DescribeStream",
        "GetShardIterator",
        "GetRecords",
    }
)
_log = logs.logger()


class ServedStore:
    """The operations of the protocol on one engine. `endpoint` is the address that clients use.

    If it is read-only, every operation that could write is refused. Hidden tables do not exist for
    clients.
    """

    def __init__(
        self,
        engine: StatefulEngine,
        clock: Clock,
        endpoint: str = "",
        *,
        is_read_only: bool = False,
        hidden_tables: Collection[str] = (),
    ) -> None:
        if hidden_tables:
            engine = cast("StatefulEngine", VisibleTables(engine, frozenset(hidden_tables)))
        self.endpoint = endpoint
        self._is_read_only = is_read_only
        self._simple_reads = SimpleReads(engine) if isinstance(engine, SqliteEngine) else None
        self._control = ControlPlane(engine, clock)
        control = self._control
        streams = StreamOperations(engine, clock)
        handlers: dict[str, Handler] = {
            **{name: _bound(handler, engine) for name, handler in _DATA_PLANE.items()},
            "CreateTable": control.create_table,
            "DescribeTable": control.describe_table,
            "DeleteTable": control.delete_table,
            "ListTables": control.list_tables,
            "UpdateTable": control.update_table,
            "UpdateTimeToLive": control.update_time_to_live,
            "DescribeTimeToLive": control.describe_time_to_live,
            "TagResource": control.tag_resource,
            "UntagResource": control.untag_resource,
            "ListTagsOfResource": control.list_tags_of_resource,
            "DescribeLimits": control.describe_limits,
            "DescribeEndpoints": self._describe_endpoints,
        }
        stream_handlers: dict[str, Handler] = {
            "ListStreams": streams.list_streams,
            "DescribeStream": streams.describe_stream,
            "GetShardIterator": streams.get_shard_iterator,
            "GetRecords": streams.get_records,
        }
        self._services = {
            _DYNAMODB: (RequestModel(), handlers),
            _STREAMS: (RequestModel("dynamodbstreams"), stream_handlers),
        }

    async def close(self) -> None:
        await self._control.close()

    def respond_now(self, target: str, payload: bytes) -> bytes | None:
        """Return the body of a successful response, or None if `respond` has to run."""
        if target != GET_ITEM or self._simple_reads is None:
            return None
        return self._simple_reads.get_item(payload)

    async def respond(self, target: str, payload: bytes) -> tuple[int, bytes]:
        """Run the operation that `X-Amz-Target` names; return the status and the body."""
        try:
            return 200, _encode(await self._run(target, payload))
        except ServiceError as error:
            failed = error
        except InvalidSchema as error:
            failed = invalid(f"One or more parameter values were invalid: {error}")
        except StoreUnavailable as error:
            _log.error("Request failed", action="wire_request_failed", error=str(error))
            failed = translate(error)
        except StoreError as error:
            failed = translate(error)
        except Exception:  # noqa: BLE001 - the client gets a response, the log the cause
            _log.exception("Request failed unexpectedly", action="wire_request_crashed")
            failed = coral_error("InternalFailure", None, 500)
        failed = in_envelope(target.rpartition(".")[2], failed)
        return failed.status, msgspec.json.encode(failed.body)

    async def _run(self, target: str, payload: bytes) -> dict[str, Any]:
        name, _, operation = target.partition(".")
        service = self._services.get(name)
        handler = None if service is None else service[1].get(operation)
        if service is None or handler is None:
            raise coral_error("UnknownOperationException")
        if self._is_read_only and operation not in _READS:
            raise coral_error("AccessDeniedException", f"{operation}: the tables are read-only")
        try:
            body = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise not_serializable(None) from None
        if not isinstance(body, dict):
            raise not_serializable("Start of structure or map found where not expected")
        if None in body.values():  # a member that is null counts as absent
            body = {name: value for name, value in body.items() if value is not None}
        service[0].check(operation, body)
        return await handler(body)

    async def _describe_endpoints(self, _body: Body) -> dict[str, Any]:
        return {"Endpoints": [{"Address": self.endpoint, "CachePeriodInMinutes": 1440}]}


def _bound(handler: Callable[[Any, Body], Awaitable[dict[str, Any]]], engine: Any) -> Handler:
    return lambda body: handler(engine, body)
