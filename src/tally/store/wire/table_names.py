"""Resolves table names and ARNs of requests."""

import re
from typing import Final

from tally.store.api import Engine
from tally.store.schema import Table
from tally.store.sqlite import SqliteEngine
from tally.store.wire.service_errors import coral_error, invalid

_ARN: Final = re.compile(r"arn:aws[a-z-]*:dynamodb:[a-z0-9-]*:[0-9]*:table/([a-zA-Z0-9_.-]{3,255})")
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_RESOURCE: Final = re.compile(r"arn:[^:]*:([^:]*):[^:]*:[^:]*:(.*)", re.DOTALL)
INVALID_NAME: Final = (
    "Invalid table/index name.  Table/index names must be between 3 and 255 characters long, and"
    " may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.'"
)


def table_name(text: str) -> str:
    """Return the name of a table that a request names, also by its ARN."""
    if _NAME.fullmatch(text):
        return text
    match = _ARN.fullmatch(text)
    if match is None:
        raise invalid(INVALID_NAME)
    return match[1]


def check_resource(arn: str) -> None:
    """Check the resource of a tag: the ARN of a table, in any region and account."""
    match = _RESOURCE.fullmatch(arn)
    if match is None:
        raise invalid(f"Invalid TableArn: Invalid ResourceArn provided as input {arn}")
    if match[1] != "dynamodb":
        raise coral_error("AccessDeniedException", f"The resource is not accessible: {arn}")
    if not match[2].startswith("table/"):
        raise invalid(f"Invalid TableArn: Invalid ResourceArn provided as input {arn}")


async def find_table(engine: Engine, text: str) -> Table:
    """Return a table; raise TableNotFound."""
    name = table_name(text)
    if isinstance(engine, SqliteEngine):
        return engine.recent_table(name)
    return await engine.describe_table(name)
