"""The SportMonks API: live scores, fixtures, leagues, teams, seasons and scores."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tally.kit.http import Json
from tally.sim.sportmonks.core import SportMonksCore
from tally.sim.sportmonks.queries import InvalidQuery, SportMonksQuery, parse_query
from tally.sim.sportmonks.scores import DISMISSALS, NOT_OUT, dismissal_result

ROOT: Final = "/api/v2.0"

Self_ = TypeVar("Self_", bound="SportMonksApi")
Handler: TypeAlias = Callable[[Self_, Request], Awaitable[Response]]


class SportMonksError(Exception):
    """An error response in SportMonks' format."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"status": "error", "message": {"message": message, "code": status}}


def endpoint(handler: "Handler[Self_]") -> "Handler[Self_]":
    """Decorate a handler: check the token, apply the rate limit and render errors."""

    @wraps(handler)
    async def handle(self: Self_, request: Request) -> Response:
        resource = request.url.path.removeprefix(f"{ROOT}/").partition("/")[0]
        headers: dict[str, str] = {}
        try:
            self.check_token(request)
            wait = self.core.limits.count(resource)
            headers = self.core.limits.headers(resource)
            if wait:
                headers["Retry-After"] = str(wait)
                raise SportMonksError(429, "Too Many Attempts.")
            response = await handler(self, request)
        except SportMonksError as error:
            return Json(error.body, error.status, headers)
        except InvalidQuery as error:
            return Json(SportMonksError(400, str(error)).body, 400, headers)
        response.headers.update(headers)
        return response

    return handle


@dataclass(frozen=True, slots=True)
class SportMonksApi:
    """The routes under `/api/v2.0`."""

    core: SportMonksCore
    # The fixtures of the latest query, so that later pages do not repeat the filtering.
    fixture_lists: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = field(
        default_factory=dict
    )

    def routes(self) -> list[Route]:
        return [
            Route(f"{ROOT}/livescores", self.livescores),
            Route(f"{ROOT}/fixtures", self.fixtures),
            Route(f"{ROOT}/fixtures/{{fixture_id:int}}", self.fixture),
            Route(f"{ROOT}/leagues", self.leagues),
            Route(f"{ROOT}/leagues/{{league_id:int}}", self.league),
            Route(f"{ROOT}/teams", self.teams),
            Route(f"{ROOT}/teams/{{team_id:int}}", self.team),
            Route(f"{ROOT}/teams/{{team_id:int}}/squad/{{season_id:int}}", self.squad),
            Route(f"{ROOT}/seasons", self.seasons),
            Route(f"{ROOT}/seasons/{{season_id:int}}", self.season),
            Route(f"{ROOT}/scores", self.scores),
        ]

    @endpoint
    async def livescores(self, request: Request) -> Response:
        query = parse_query(request.query_params, "fixtures")
        fixtures = self.core.livescores()
        valid = query.select(item for item in fixtures if isinstance(item, dict))
        garbled = [item for item in fixtures if not isinstance(item, dict)]
        return Json({"data": [query.project(item, "fixtures") for item in [*valid, *garbled]]})

    @endpoint
    async def fixtures(self, request: Request) -> Response:
        query = parse_query(request.query_params, "fixtures")
        list_key = tuple(
            sorted((name, value) for name, value in request.query_params.items() if name != "page")
        )
        if query.page == 1 or list_key not in self.fixture_lists:
            self.fixture_lists.clear()
            self.fixture_lists[list_key] = query.select(self.core.fixtures())
        return self._render_page(query, self.fixture_lists[list_key], "fixtures")

    @endpoint
    async def fixture(self, request: Request) -> Response:
        return self._render_one(
            request, self.core.fixture(request.path_params["fixture_id"]), "fixtures"
        )

    @endpoint
    async def leagues(self, request: Request) -> Response:
        return self._render_list(request, self.core.leagues(), "leagues")

    @endpoint
    async def league(self, request: Request) -> Response:
        return self._render_one(
            request, _find(self.core.leagues(), request.path_params["league_id"]), "leagues"
        )

    @endpoint
    async def teams(self, request: Request) -> Response:
        return self._render_list(request, self.core.teams(), "teams")

    @endpoint
    async def team(self, request: Request) -> Response:
        return self._render_one(
            request, _find(self.core.teams(), request.path_params["team_id"]), "teams"
        )

    @endpoint
    async def squad(self, request: Request) -> Response:
        team_id, season_id = request.path_params["team_id"], request.path_params["season_id"]
        team = _find(self.core.teams(), team_id)
        squad = {"squad": self.core.squad(team_id, season_id)}
        return self._render_one(request, team and team | squad, "teams")

    @endpoint
    async def seasons(self, request: Request) -> Response:
        return self._render_list(request, self.core.seasons(), "seasons")

    @endpoint
    async def season(self, request: Request) -> Response:
        return self._render_one(
            request, _find(self.core.seasons(), request.path_params["season_id"]), "seasons"
        )

    @endpoint
    async def scores(self, _: Request) -> Response:
        return Json(
            {
                "data": [
                    dismissal_result(name)
                    for name in dict.fromkeys((*DISMISSALS.values(), NOT_OUT))
                ]
            }
        )

    def check_token(self, request: Request) -> None:
        token = request.query_params.get("api_token", "")
        if not token:
            raise SportMonksError(401, "Unauthenticated.")
        if not hmac.compare_digest(token.encode(), self.core.api_token.encode()):
            raise SportMonksError(403, "This token does not give access to the cricket API.")

    def _render_list(self, request: Request, items: list[dict[str, Any]], kind: str) -> Response:
        query = parse_query(request.query_params, kind)
        return Json({"data": [query.project(item, kind) for item in query.select(items)]})

    def _render_one(self, request: Request, item: dict[str, Any] | None, kind: str) -> Response:
        query = parse_query(request.query_params, kind)
        if item is None:
            raise SportMonksError(404, "The requested resource was not found.")
        return Json({"data": query.project(item, kind)})

    def _render_page(
        self, query: SportMonksQuery, items: list[dict[str, Any]], kind: str
    ) -> Response:
        size = self.core.per_page
        last = max(1, -(-len(items) // size))
        first = (query.page - 1) * size
        items_on_page = [query.project(item, kind) for item in items[first : first + size]]
        path = f"{self.core.url}{ROOT}/{kind}"

        def link(page: int) -> str | None:
            return f"{path}?page={page}" if 1 <= page <= last else None

        links = {
            "first": link(1),
            "last": link(last),
            "prev": link(query.page - 1),
            "next": link(query.page + 1),
        }
        meta = {
            "current_page": query.page,
            "from": first + 1 if items_on_page else None,
            "last_page": last,
            "path": path,
            "per_page": size,
            "to": first + len(items_on_page) if items_on_page else None,
            "total": len(items),
        }
        return Json({"data": items_on_page, "links": links, "meta": meta})


def _find(items: list[dict[str, Any]], item_id: int) -> dict[str, Any] | None:
    return next((item for item in items if item["id"] == item_id), None)
