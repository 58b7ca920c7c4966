"""A small new backend: one table, two access patterns, two routes.

Run it with `python examples/new_backend.py [URL] [DIRECTORY]`; the defaults are
http://127.0.0.1:8090 and `my-data`. Then:

    curl -X POST http://127.0.0.1:8090/visits/home
    curl http://127.0.0.1:8090/visits/home
"""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, TypedDict
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tally.store import (
    Attribute,
    F,
    Query,
    S,
    Store,
    Table,
    UpdateItem,
    access,
    create_tables,
    open_sqlite,
    param,
)

VISITS = Table(
    "visits",
    partition=S("page"),
    sort=S("day"),
    attributes=(Attribute("count", "N", required=True, about="visits on that day"),),
)


def visit_key(page: str, day: str) -> dict[str, str]:
    return {"page": page, "day": day}


@dataclass(frozen=True, slots=True)
class Visits:
    """Visits per page and day. Each public method is one access pattern of the table."""

    store: Store
    tables: ClassVar[Sequence[Table]] = (VISITS,)

    @access("Count a visit", UpdateItem(key=visit_key(param("page"), param("day"))), table=VISITS)
    async def count(self, page: str, day: date) -> None:
        await self.store.update(VISITS, visit_key(page, day.isoformat()), F("count").add(1))

    @access(
        "Visits since a day",
        Query(where=(F("page") == param("page")) & (F("day") >= param("day"))),
        table=VISITS,
        bound=366,
    )
    async def since(self, page: str, day: date) -> dict[str, int]:
        where = (F("page") == page) & (F("day") >= day.isoformat())
        return {
            str(item["day"]): int(item["count"]) async for item in self.store.items(VISITS, where)
        }


class State(TypedDict):
    """What the lifespan opens for the handlers."""

    visits: Visits


async def count_visit(request: Request) -> JSONResponse:
    await request.state.visits.count(request.path_params["page"], datetime.now(UTC).date())
    return JSONResponse({"counted": True}, status_code=201)


async def list_visits(request: Request) -> JSONResponse:
    month_ago = datetime.now(UTC).date() - timedelta(days=30)
    days = await request.state.visits.since(request.path_params["page"], month_ago)
    return JSONResponse({"days": days, "total": sum(days.values())})


def build_app(directory: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[State]:
        async with open_sqlite(directory) as engine:
            await create_tables(engine, Visits.tables)
            yield {"visits": Visits(Store(engine))}

    routes = [
        Route("/visits/{page}", count_visit, methods=["POST"]),
        Route("/visits/{page}", list_visits, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def main(url: str = "http://127.0.0.1:8090", directory: str = "my-data") -> None:
    address = urlsplit(url)
    uvicorn.run(build_app(directory), host=address.hostname or "127.0.0.1", port=address.port or 80)


if __name__ == "__main__":
    main(*sys.argv[1:])
