"""The query strings that operators send."""

from typing import Annotated, Literal

import msgspec

from tally.kit.body import StrictStruct

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=99_999_999_999_999)]


class PageQuery(StrictStruct, frozen=True):
    limit: Limit = 50
    cursor: str | None = None


class ReadingsQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    first: Milliseconds = 0
    last: Milliseconds = 4_102_444_800_000
    order: Literal["asc", "desc"] = "asc"
    limit: Limit = 100
    cursor: str | None = None


class SeriesQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    sensor: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    first: Milliseconds
    last: Milliseconds
    points: Annotated[int, msgspec.Meta(ge=1, le=500)] = 200


class ExportQuery(StrictStruct, frozen=True, rename={"first": "from", "last": "to"}):
    format: Literal["csv", "ndjson", "parquet"] = "csv"
    first: Milliseconds = 0
    last: Milliseconds = 4_102_444_800_000
