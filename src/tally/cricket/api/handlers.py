"""What each route does: parse, call the service, render. The list of routes is in `routes.py`."""

import re
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.cricket.api import render, schemas
from tally.cricket.api.auth import Callers
from tally.cricket.api.events import MatchFollower, Watched, topic_of
from tally.cricket.model.records import NEUTRAL
from tally.cricket.service.activities.devices import AppInstallation, DeviceService
from tally.cricket.service.activities.follows import FollowService
from tally.cricket.service.activities.lifecycle import ActivityService
from tally.cricket.service.queries.display import DisplayService, Shown
from tally.cricket.service.queries.leagues import LeagueService
from tally.cricket.service.queries.matches import MatchService, Position, Wanted
from tally.cricket.service.queries.teams import TeamService
from tally.errors import Invalid, NotFound
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.store.values import Key

PRIVATE = {"Cache-Control": "no-store"}

_id = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers, with all they need."""

    callers: Callers
    matches: MatchService
    displays: DisplayService
    teams: TeamService
    leagues: LeagueService
    devices: DeviceService
    follows: FollowService
    activities: ActivityService
    follower: MatchFollower
    cursors: Cursors
    hub: Hub

    async def health(self, _: Request) -> ASGIApp:
        return Json(schemas.Health("ok"))

    async def ready(self, _: Request) -> ASGIApp:
        await self.leagues.all()
        return Json(schemas.Health("ready"))

    async def list_matches(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        query = read_query(request, schemas.MatchQuery)
        wanted = Wanted(
            league=query.league, since=query.start, until=query.end, status=query.status
        )
        status = None if query.status is None else query.status.value
        purpose = query_fingerprint(
            "cricket.matches", league=query.league, start=query.start, end=query.end, status=status
        )
        opened = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        after = (
            None if opened is None else Position(str(opened["startTime"]), str(opened["matchId"]))
        )
        found, following = await self.matches.page(wanted, query.limit, after)
        place = (
            None
            if following is None
            else {"startTime": following.start_time, "matchId": following.match_id}
        )
        return Json(
            schemas.MatchPage(
                [render.match_body(view) for view in found], self._cursor(purpose, place)
            )
        )

    async def live_matches(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(
            schemas.MatchPage([render.match_body(view) for view in await self.matches.live()], None)
        )

    async def show_match(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(render.match_body(await self.matches.get(path_id(request, "match_id"))))

    async def show_display(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        query = read_query(request, schemas.ViewQuery)
        return Json(
            _display_body(await self.displays.get(path_id(request, "match_id"), query.team_id))
        )

    async def stream(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        query = read_query(request, schemas.ViewQuery)
        match_id = path_id(request, "match_id")
        shown = await self.displays.get(match_id, query.team_id)

        async def snapshot() -> tuple[str, object]:
            return "display", _display_body(await self.displays.get(match_id, query.team_id))

        key = (match_id, shown.view)
        watching = self.follower.watch(key, await self.follower.read(key) or Watched(shown.content))
        return EventStream(self.hub, topic_of(key), request, snapshot, watching)

    async def list_teams(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(schemas.TeamList([render.team_body(team) for team in await self.teams.all()]))

    async def show_team(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(render.team_body(await self.teams.get(path_id(request, "team_id"))))

    async def list_leagues(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(
            schemas.LeagueList([render.league_body(league) for league in await self.leagues.all()])
        )

    async def show_league(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        return Json(render.league_body(await self.leagues.get(path_id(request, "league_id"))))

    async def season_teams(self, request: Request) -> ASGIApp:
        await self.callers.person(request)
        found = await self.teams.of_season(path_id(request, "season_id"))
        return Json(schemas.SeasonTeams([render.season_team_body(record) for record in found]))

    async def list_devices(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        found = [render.device_body(device) for device in await self.devices.all(user_id)]
        return Json(schemas.DeviceList(found), 200, PRIVATE)

    async def register_device(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.NewDevice)
        device = await self.devices.register(
            user_id, AppInstallation(**msgspec.structs.asdict(body))
        )
        return Json(render.device_body(device), 200, PRIVATE)

    async def update_start_token(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.NewStartToken)
        device = await self.devices.update_push_to_start(
            user_id,
            body.push_to_start_token,
            device_token=body.device_token,
            device_id=body.device_id,
        )
        return Json(render.device_body(device), 200, PRIVATE)

    async def delete_device(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        query = read_query(request, schemas.DeviceQuery)
        await self.devices.delete(
            user_id, device_token=query.device_token, device_id=query.device_id
        )
        return Response(status_code=204)

    async def show_follow(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        return Json(
            render.follow_body(await self.follows.get(path_id(request, "match_id"), user_id)),
            200,
            PRIVATE,
        )

    async def follow(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.NewFollow)
        return await self._follow(path_id(request, "match_id"), user_id, body.team_id)

    async def follow_match(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.NewFollowOfMatch)
        return await self._follow(body.match_id, user_id, body.team_id)

    async def change_follow(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.ChangedFollow)
        follow = await self.follows.change_team(path_id(request, "match_id"), user_id, body.team_id)
        return Json(render.follow_body(follow), 200, PRIVATE)

    async def unfollow(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        await self.follows.unfollow(path_id(request, "match_id"), user_id)
        return Response(status_code=204)

    async def unfollow_match(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        query = read_query(request, schemas.FollowedMatchQuery)
        await self.follows.unfollow(query.match_id, user_id)
        return Response(status_code=204)

    async def list_follows(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        query = read_query(request, schemas.PageQuery)
        purpose = query_fingerprint("cricket.follows", user=user_id)
        found, following = await self.follows.of_user(
            user_id, query.limit, self._start(purpose, query.cursor)
        )
        page = schemas.FollowPage(
            [render.follow_body(follow) for follow in found], self._cursor(purpose, following)
        )
        return Json(page, 200, PRIVATE)

    async def subscribe(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.NewSubscription)
        made = await self.follows.subscribe(
            path_id(request, "match_id"), user_id, body.push_token, body.team_id
        )
        return Json(render.subscription_body(made), 200, PRIVATE)

    async def unsubscribe(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        query = read_query(request, schemas.SubscriptionQuery)
        await self.follows.unsubscribe(path_id(request, "match_id"), user_id, query.push_token)
        return Response(status_code=204)

    async def register_activity(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.ActivityToken)
        fixture = await self.matches.fixture(path_id(request, "match_id"))
        team_id = NEUTRAL if body.team_id is None else body.team_id
        if team_id not in {NEUTRAL, *fixture.team_ids}:
            raise Invalid(
                "This team does not play in the match", code="team_not_in_match", field="teamId"
            )
        activity = await self.activities.register(
            fixture, user_id, body.device_id, body.update_token, team_id
        )
        return Json(render.activity_body(activity), 200, PRIVATE)

    async def dismiss_activity(self, request: Request) -> ASGIApp:
        user_id = await self.callers.person(request)
        body = await read_json(request, schemas.ActivityOfDevice)
        await self.activities.dismiss(path_id(request, "match_id"), user_id, body.device_id)
        return Response(status_code=204)

    async def _follow(self, match_id: str, user_id: str, team_id: str | None) -> ASGIApp:
        fixture, follow = await self.follows.follow(match_id, user_id, team_id)
        view = None if follow.team_id == NEUTRAL else follow.team_id
        shown = (await self.displays.get(match_id, view)).content if fixture.is_live else None
        return Json(render.follow_body(follow, shown), 200, PRIVATE)

    def _start(self, purpose: str, cursor: str | None) -> Key | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _cursor(self, purpose: str, following: Key | None) -> str | None:
        return None if following is None else self.cursors.encode(purpose, following)


def path_id(request: Request, name: str) -> str:
    """An id in the path: one that cannot be anybody's is not found, like any other that is nobody's."""
    given: str = request.path_params[name]
    if not _id.fullmatch(given):
        what = name.removesuffix("_id")
        raise NotFound(f"There is no such {what}", code=f"{what}_not_found")
    return given


def _display_body(shown: Shown) -> schemas.DisplayBody:
    return schemas.DisplayBody(
        shown.match_id, shown.view, shown.content, shown.computed_at, shown.is_stale
    )
