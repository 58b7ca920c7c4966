"""A bare Starlette app that returns the request body: the baseline of the HTTP benchmark."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def _echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


app = Starlette(routes=[Route("/echo", _echo, methods=["POST"])])
