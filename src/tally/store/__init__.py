"""An embedded store with DynamoDB's semantics, on SQLite in this process or on DynamoDB itself.

This package is the public API: a program needs no other import.

    from tally.store import PutItem, S, Store, Table, access, not_exists, open_sqlite, param

    USERS = Table("users", partition=S("userId"))

    class Users:
        def __init__(self, store: Store) -> None:
            self.store = store

        @access(
            "Create user",
            PutItem(key={"userId": param("userId")}, condition=not_exists("userId")),
            table=USERS,
        )
        async def create(self, user_id: str, name: str) -> None:
            item = {"userId": user_id, "name": name}
            await self.store.put(USERS, item, condition=not_exists("userId"))

    async with open_sqlite("data") as engine:
        await engine.ensure_table(USERS)
        await Users(Store(engine)).create("u1", "Ann")

Modules: `schema.py` declares tables, `expressions.py` builds conditions and updates, `api.py`
defines the operations and the engine interface, `access.py` turns a repository method into an
access pattern that the store enforces.
"""

from tally.store.access import (
    BatchGetItem,
    BatchWriteItem,
    ConditionCheck,
    DeleteItem,
    GetItem,
    GetRecords,
    PutItem,
    Query,
    Scan,
    TransactGetItems,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import (
    BatchPut,
    BatchWrite,
    Capacity,
    Check,
    ColumnarItems,
    Delete,
    Engine,
    Get,
    Page,
    Put,
    ScanSegment,
    Transaction,
    TransactionBatch,
    Update,
)
from tally.store.catalogue import Catalogue, check_repositories
from tally.store.changes import START, Change, ChangeKind, ChangePage
from tally.store.dynamodb import Credentials, DynamoDBRetryPolicy, open_dynamodb
from tally.store.errors import (
    AccessViolation,
    BoundExceeded,
    ConditionFailed,
    DuplicateItem,
    IndexBackfilling,
    InvalidExpression,
    InvalidKey,
    InvalidNumber,
    InvalidPageKey,
    InvalidRequest,
    InvalidSchema,
    InvalidValue,
    ItemTooLarge,
    OutcomeUnknown,
    PositionExpired,
    PositionUnknown,
    Reason,
    RequestRejected,
    RequestTooLarge,
    StorageDamaged,
    StorageFull,
    StorageTooNew,
    StorageUnwritable,
    StoreError,
    StoreUnavailable,
    StreamNotFound,
    TableDiffers,
    TableExists,
    TableNotFound,
    Throttled,
    TokenMismatch,
    TooManyItems,
    TransactionCancelled,
    UnknownIndex,
    WritesPaused,
)
from tally.store.expressions import Action, Condition, F, exists, list_append, not_exists
from tally.store.meters import Meters
from tally.store.pattern_operations import PatternOperation
from tally.store.patterns import AccessPattern
from tally.store.provision import create_tables
from tally.store.schema import (
    ALL,
    KEYS_ONLY,
    Attribute,
    B,
    GlobalIndex,
    Index,
    KeyPart,
    LocalIndex,
    N,
    Projection,
    S,
    StreamView,
    Table,
    include,
)
from tally.store.sqlite import open_sqlite
from tally.store.store import Store
from tally.store.values import Item, Key

__all__ = [
    "ALL",
    "KEYS_ONLY",
    "START",
    "AccessPattern",
    "AccessViolation",
    "Action",
    "Attribute",
    "B",
    "BatchGetItem",
    "BatchPut",
    "BatchWrite",
    "BatchWriteItem",
    "BoundExceeded",
    "Capacity",
    "Catalogue",
    "Change",
    "ChangeKind",
    "ChangePage",
    "Check",
    "ColumnarItems",
    "Condition",
    "ConditionCheck",
    "ConditionFailed",
    "Credentials",
    "Delete",
    "DeleteItem",
    "DuplicateItem",
    "DynamoDBRetryPolicy",
    "Engine",
    "F",
    "Get",
    "GetItem",
    "GetRecords",
    "GlobalIndex",
    "Index",
    "IndexBackfilling",
    "InvalidExpression",
    "InvalidKey",
    "InvalidNumber",
    "InvalidPageKey",
    "InvalidRequest",
    "InvalidSchema",
    "InvalidValue",
    "Item",
    "ItemTooLarge",
    "Key",
    "KeyPart",
    "LocalIndex",
    "Meters",
    "N",
    "OutcomeUnknown",
    "Page",
    "PatternOperation",
    "PositionExpired",
    "PositionUnknown",
    "Projection",
    "Put",
    "PutItem",
    "Query",
    "Reason",
    "RequestRejected",
    "RequestTooLarge",
    "S",
    "Scan",
    "ScanSegment",
    "StorageDamaged",
    "StorageFull",
    "StorageTooNew",
    "StorageUnwritable",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StreamNotFound",
    "StreamView",
    "Table",
    "TableDiffers",
    "TableExists",
    "TableNotFound",
    "Throttled",
    "TokenMismatch",
    "TooManyItems",
    "TransactGetItems",
    "TransactWriteItems",
    "Transaction",
    "TransactionBatch",
    "TransactionCancelled",
    "UnknownIndex",
    "Update",
    "UpdateItem",
    "WritesPaused",
    "access",
    "check_repositories",
    "create_tables",
    "exists",
    "include",
    "list_append",
    "not_exists",
    "open_dynamodb",
    "open_sqlite",
    "param",
]
