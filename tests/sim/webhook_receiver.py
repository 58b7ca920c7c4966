"""A webhook receiver with configurable responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tally.kit.server import serving

VERIFY_TOKEN = "only-we-know"


class WebhookReceiver:
    """Responds with `statuses` in order, then with 200; blocks while `responding` is clear."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        self.challenge: dict[str, str] | None = None
        self.responding = asyncio.Event()
        self.responding.set()
        self.url = ""

    async def validate(self, request: Request) -> Response:
        await self.responding.wait()
        if request.query_params["hub.verify_token"] != VERIFY_TOKEN:
            return Response(status_code=403)
        return JSONResponse(
            self.challenge or {"hub.challenge": request.query_params["hub.challenge"]}
        )

    async def receive(self, request: Request) -> Response:
        self.events.append(await request.json())
        await self.responding.wait()
        return Response(status_code=self.statuses.pop(0) if self.statuses else 200)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        routes = [Route("/hook", self.validate), Route("/hook", self.receive, methods=["POST"])]
        async with serving(Starlette(routes=routes), grace=1) as url:
            self.url = f"{url}/hook"
            yield self
