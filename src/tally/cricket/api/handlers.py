"""Handlers of the user endpoints: parse the request, call the service, render the response."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.cricket.api.auth import CricketAuthenticator
from tally.cricket.api.events import MatchStreams
from tally.cricket.api.schemas import matches as match_schemas
from tally.cricket.api.schemas import reference, scorecards, users
from tally.cricket.api.schemas.fields import ServiceStatus
from tally.cricket.api.schemas.matches import display_body, match_body
from tally.cricket.model.errors import nothing_to_change, team_not_in_match
from tally.cricket.model.events import AlertChoice
from tally.cricket.model.records import NEUTRAL
from tally.cricket.service.activities.devices import AppInstallation
from tally.cricket.service.queries.matches import MatchFilter, MatchView, Position
from tally.cricket.service.services import CricketServices
from tally.errors import NotFound
from tally.instance.streams import OpenStreams
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import NO_STORE, Json
from tally.kit.hub import Hub
from tally.kit.latest_results import LatestResults
from tally.kit.readiness import STORE, ReadinessMonitor

_id_pattern = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """One method per user endpoint."""

    auth: CricketAuthenticator
    services: CricketServices
    match_streams: MatchStreams
    cursors: Cursors
    hub: Hub
    readiness: ReadinessMonitor
    streams: OpenStreams
    encoded_matches: LatestResults[str, MatchView, bytes] = field(
        default_factory=lambda: LatestResults(_encode_match)
    )

    async def check_health(self, _: Request) -> ASGIApp:
        return Json(ServiceStatus("ok"))

    async def check_readiness(self, _: Request) -> ASGIApp:
        return self.readiness.report({STORE}).response()

    async def list_matches(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        query = read_query(request, match_schemas.MatchQuery)
        match_filter = MatchFilter(
            league=query.league, since=query.start, until=query.end, status=query.status
        )
        status = None if query.status is None else query.status.value
        purpose = query_fingerprint(
            "cricket.matches", league=query.league, start=query.start, end=query.end, status=status
        )
        start = self._decode_cursor(purpose, query.cursor)
        after = None if start is None else Position(str(start["startTime"]), str(start["matchId"]))
        views, position = await self.services.queries.matches.page(match_filter, query.limit, after)
        next_key = (
            None
            if position is None
            else {"startTime": position.start_time, "matchId": position.match_id}
        )
        return Json(
            match_schemas.MatchPage(
                [match_body(view) for view in views], self._encode_cursor(purpose, next_key)
            )
        )

    async def list_live_matches(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        views = await self.services.queries.matches.live()
        return Json(match_schemas.MatchPage([match_body(view) for view in views], None))

    async def get_match(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        view = await self.services.queries.matches.get(path_id(request, "match_id"))
        encoded = self.encoded_matches.get(view.fixture.match_id, view)
        return Response(encoded, media_type=Json.media_type)

    async def get_display(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        query = read_query(request, match_schemas.ViewQuery)
        displays = self.services.queries.displays
        return Json(display_body(await displays.get(path_id(request, "match_id"), query.team_id)))

    async def get_scorecard(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        view = await self.services.queries.matches.get(path_id(request, "match_id"))
        return Json(scorecards.scorecard_body(view))

    async def get_timeline(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        query = read_query(request, scorecards.TimelineQuery)
        match_id = path_id(request, "match_id")
        purpose = query_fingerprint("cricket.timeline", match=match_id)
        start = self._decode_cursor(purpose, query.cursor)
        events, next_start = await self.services.queries.timelines.page(
            match_id, query.limit, 0 if start is None else int(start["start"])
        )
        next_key = None if next_start is None else {"start": next_start}
        return Json(
            scorecards.TimelinePage(
                [scorecards.timeline_event_body(event) for event in events],
                self._encode_cursor(purpose, next_key),
            )
        )

    async def stream_match(self, request: Request) -> ASGIApp:
        user_id, expires_at = await self.auth.user_until(request)
        owner = self.streams.admit(request, person=f"cricket:{user_id}", expires_at=expires_at)
        query = read_query(request, match_schemas.ViewQuery)
        match_id = path_id(request, "match_id")
        displays = self.services.queries.displays
        display = await displays.get(match_id, query.team_id)

        async def state() -> tuple[str, object]:
            return "display", display_body(await displays.get(match_id, query.team_id))

        source = self.match_streams.source(match_id, display.view, state)
        events = EventStream(self.hub, source, request)
        return self.streams.response(owner, events)

    async def list_teams(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        teams = await self.services.queries.teams.all()
        return Json(reference.TeamList([reference.team_body(team) for team in teams]))

    async def get_team(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        team = await self.services.queries.teams.get(path_id(request, "team_id"))
        return Json(reference.team_body(team))

    async def list_leagues(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        leagues = await self.services.queries.leagues.all()
        return Json(reference.LeagueList([reference.league_body(league) for league in leagues]))

    async def get_league(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        league = await self.services.queries.leagues.get(path_id(request, "league_id"))
        return Json(reference.league_body(league))

    async def list_season_teams(self, request: Request) -> ASGIApp:
        await self.auth.user_id(request)
        records = await self.services.queries.teams.season_teams(path_id(request, "season_id"))
        return Json(
            reference.SeasonTeams([reference.season_team_body(record) for record in records])
        )

    async def list_devices(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        devices = await self.services.devices.all(user_id)
        bodies = [users.user_device_body(device) for device in devices]
        return Json(users.UserDeviceList(bodies), 200, NO_STORE)

    async def register_device(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewUserDevice)
        device = await self.services.devices.register(
            user_id, AppInstallation(**msgspec.structs.asdict(body))
        )
        return Json(users.user_device_body(device), 200, NO_STORE)

    async def update_push_to_start_token(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewPushToStartToken)
        device = await self.services.devices.update_push_to_start(
            user_id,
            body.push_to_start_token,
            device_token=body.device_token,
            device_id=body.device_id,
        )
        return Json(users.user_device_body(device), 200, NO_STORE)

    async def delete_device(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        query = read_query(request, users.UserDeviceQuery)
        await self.services.devices.delete(
            user_id, device_token=query.device_token, device_id=query.device_id
        )
        return Response(status_code=204)

    async def delete_user(self, request: Request) -> ASGIApp:
        await self.services.activities.delete_user(await self.auth.user_id(request))
        return Response(status_code=204)

    async def get_follow(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        follow = await self.services.follows.get(path_id(request, "match_id"), user_id)
        return Json(users.follow_body(follow), 200, NO_STORE)

    async def create_follow(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewFollow)
        return await self._follow(path_id(request, "match_id"), user_id, body.team_id, body.alerts)

    async def follow_match(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewMatchFollow)
        return await self._follow(body.match_id, user_id, body.team_id, body.alerts)

    async def change_follow(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.FollowChange)
        alerts = None if body.alerts is msgspec.UNSET else body.alerts
        if body.team_id is msgspec.UNSET and alerts is None:
            raise nothing_to_change()
        follow = await self.services.follows.change(
            path_id(request, "match_id"), user_id, body.team_id, alerts
        )
        return Json(users.follow_body(follow), 200, NO_STORE)

    async def delete_follow(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        await self.services.follows.unfollow(path_id(request, "match_id"), user_id)
        return Response(status_code=204)

    async def unfollow_match(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        query = read_query(request, users.FollowedMatchQuery)
        await self.services.follows.unfollow(query.match_id, user_id)
        return Response(status_code=204)

    async def list_follows(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        query = read_query(request, users.FollowListQuery)
        purpose = query_fingerprint("cricket.follows", user=user_id)
        follows, next_key = await self.services.follows.list_by_user(
            user_id, query.limit, self._decode_cursor(purpose, query.cursor)
        )
        page = users.FollowPage(
            [users.follow_body(follow) for follow in follows],
            self._encode_cursor(purpose, next_key),
        )
        return Json(page, 200, NO_STORE)

    async def list_followed_teams(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        follows = await self.services.team_follows.list_by_user(user_id)
        body = users.TeamFollowList([users.team_follow_body(follow) for follow in follows])
        return Json(body, 200, NO_STORE)

    async def follow_team(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        follow = await self.services.team_follows.follow(path_id(request, "team_id"), user_id)
        return Json(users.team_follow_body(follow), 200, NO_STORE)

    async def unfollow_team(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        await self.services.team_follows.unfollow(path_id(request, "team_id"), user_id)
        return Response(status_code=204)

    async def create_subscription(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewSubscription)
        subscription = await self.services.follows.subscribe(
            path_id(request, "match_id"), user_id, body.push_token, body.team_id
        )
        return Json(users.subscription_body(subscription), 200, NO_STORE)

    async def delete_subscription(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        query = read_query(request, users.SubscriptionQuery)
        await self.services.follows.unsubscribe(
            path_id(request, "match_id"), user_id, query.push_token
        )
        return Response(status_code=204)

    async def register_activity(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.NewUpdateToken)
        fixture = await self.services.queries.matches.fixture(path_id(request, "match_id"))
        team_id = NEUTRAL if body.team_id is None else body.team_id
        if team_id not in {NEUTRAL, *fixture.team_ids}:
            raise team_not_in_match()
        activity = await self.services.activities.register(
            fixture, user_id, body.device_id, body.update_token, team_id
        )
        return Json(users.activity_body(activity), 200, NO_STORE)

    async def confirm_activity(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.ActivityReport)
        fixture = await self.services.queries.matches.fixture(path_id(request, "match_id"))
        activity = await self.services.activities.confirm(fixture, user_id, body.device_id)
        return Json(users.activity_body(activity), 200, NO_STORE)

    async def report_ended_activity(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.ActivityReport)
        await self.services.activities.report_ended(
            path_id(request, "match_id"), user_id, body.device_id
        )
        return Response(status_code=204)

    async def dismiss_activity(self, request: Request) -> ASGIApp:
        user_id = await self.auth.user_id(request)
        body = await read_json(request, users.ActivityReport)
        await self.services.activities.dismiss(
            path_id(request, "match_id"), user_id, body.device_id
        )
        return Response(status_code=204)

    async def _follow(
        self, match_id: str, user_id: str, team_id: str | None, alerts: AlertChoice | None
    ) -> ASGIApp:
        fixture, follow = await self.services.follows.follow(match_id, user_id, team_id, alerts)
        content: dict[str, Any] | None = None
        if fixture.is_live:
            view = None if follow.team_id == NEUTRAL else follow.team_id
            content = (await self.services.queries.displays.get(match_id, view)).content
        return Json(users.follow_body(follow, content), 200, NO_STORE)

    def _decode_cursor(self, purpose: str, cursor: str | None) -> Mapping[str, Any] | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _encode_cursor(self, purpose: str, next_key: Mapping[str, Any] | None) -> str | None:
        return None if next_key is None else self.cursors.encode(purpose, next_key)


def path_id(request: Request, name: str) -> str:
    """Return an id from the path, or raise NotFound if no record can have it."""
    value: str = request.path_params[name]
    if not _id_pattern.fullmatch(value):
        resource = name.removesuffix("_id")
        raise NotFound(f"{resource.capitalize()} not found", code=f"{resource}_not_found")
    return value


def _encode_match(view: MatchView) -> bytes:
    return msgspec.json.encode(match_body(view))
