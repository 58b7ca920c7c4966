"""Request handlers of alarm rules and alarms."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tally.devices.api.alarm_events import AlarmStreams
from tally.devices.api.schemas import alarms
from tally.devices.api.schemas.fleet import EmptyQuery
from tally.devices.model.alarms import ALARM_PARTITION
from tally.devices.service.alarms import AlarmService
from tally.instance.streams import OpenStreams, StreamSession
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.kit.operators import OperatorDirectory, request_operator

SNAPSHOT_ALARMS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmHandlers:
    """Handlers of operators who manage rules and look at alarms."""

    alarms: AlarmService
    cursors: Cursors
    hub: Hub
    streams: OpenStreams
    events: AlarmStreams
    operators: OperatorDirectory

    async def create_alarm_rule(self, request: Request) -> ASGIApp:
        body = await read_json(request, alarms.NewRuleBody)
        return Json(alarms.rule_body(await self.alarms.create_rule(body.rule())), 201)

    async def list_alarm_rules(self, request: Request) -> ASGIApp:
        read_query(request, EmptyQuery)
        rules = await self.alarms.list_rules()
        return Json(alarms.RulePage([alarms.rule_body(rule) for rule in rules], None))

    async def get_alarm_rule(self, request: Request) -> ASGIApp:
        return Json(alarms.rule_body(await self.alarms.get_rule(request.path_params["rule_id"])))

    async def replace_alarm_rule(self, request: Request) -> ASGIApp:
        body = await read_json(request, alarms.NewRuleBody)
        rule = await self.alarms.replace_rule(request.path_params["rule_id"], body.rule())
        return Json(alarms.rule_body(rule))

    async def delete_alarm_rule(self, request: Request) -> ASGIApp:
        await self.alarms.delete_rule(request.path_params["rule_id"])
        return Response(status_code=204)

    async def list_alarms(self, request: Request) -> ASGIApp:
        query = read_query(request, alarms.AlarmsQuery)
        purpose = query_fingerprint(
            "devices.alarms", state=query.state, hardware_id=query.hardware_id
        )
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        found, next_key = await self.alarms.list_alarms(
            query.state, query.hardware_id, query.limit, start
        )
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        return Json(alarms.AlarmPage([alarms.alarm_body(alarm) for alarm in found], cursor))

    async def get_alarm(self, request: Request) -> ASGIApp:
        alarm = await self.alarms.get_alarm(request.path_params["alarm_id"])
        return Json(alarms.alarm_body(alarm))

    async def acknowledge_alarm(self, request: Request) -> ASGIApp:
        alarm = await self.alarms.acknowledge(
            request.path_params["alarm_id"], request_operator(request).name
        )
        return Json(alarms.alarm_body(alarm))

    async def stream_alarms(self, request: Request) -> ASGIApp:
        operator = request_operator(request)
        owner = self.streams.admit(
            request,
            person=f"operator:{operator.name}",
            session=StreamSession(operator.session_id, self.operators.find_active),
        )
        source = self.events.source(
            ALARM_PARTITION, lambda: self.alarms.latest_alarms(SNAPSHOT_ALARMS)
        )
        return self.streams.response(owner, EventStream(self.hub, source, request))
