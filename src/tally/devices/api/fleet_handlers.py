"""Request handlers of sensors, groups, desired states and queries over many boards."""

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from tally.devices.api.fleet_metrics import METRICS_TYPE, render_metrics
from tally.devices.api.schemas import fleet, responses
from tally.devices.api.schemas.exports import FORMATS, ExportUnits, export
from tally.devices.service.services import DevicesServices
from tally.kit.body import decode_json, read_body, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import Json
from tally.kit.operators import request_operator
from tally.kit.tasks import run_while_connected


@dataclass(frozen=True, slots=True)
class FleetHandlers:
    """Handlers of operators who look at many boards."""

    services: DevicesServices
    cursors: Cursors

    async def change_device(self, request: Request) -> ASGIApp:
        body = decode_json(await read_body(request), fleet.DeviceChangesBody)
        device = await self.services.fleet.groups.describe(
            request.path_params["hardware_id"], body.changes()
        )
        return Json(responses.device_body(device))

    async def list_sensors(self, request: Request) -> ASGIApp:
        read_query(request, fleet.EmptyQuery)
        sensors = await self.services.fleet.sensors.all()
        bodies = [responses.sensor_body(info) for info in sensors.values()]
        return Json(fleet.SensorPage(bodies, None))

    async def get_sensor(self, request: Request) -> ASGIApp:
        info = await self.services.fleet.sensors.get(request.path_params["sensor"])
        return Json(responses.sensor_body(info))

    async def put_sensor(self, request: Request) -> ASGIApp:
        body = decode_json(await read_body(request), fleet.SensorInfoBody)
        info = await self.services.fleet.sensors.put(body.info(request.path_params["sensor"]))
        return Json(responses.sensor_body(info))

    async def delete_sensor(self, request: Request) -> ASGIApp:
        await self.services.fleet.sensors.delete(request.path_params["sensor"])
        return Response(status_code=204)

    async def put_desired_state(self, request: Request) -> ASGIApp:
        content = await read_body(request, limit=fleet.STATE_BODY_LIMIT)
        decode_json(content, fleet.ParsedState)
        body = decode_json(content, fleet.NewStateBody)
        desired = await self.services.fleet.desired_states.put(
            request.path_params["hardware_id"],
            bytes(body.state).decode(),
            body.expected_version,
        )
        return Json(fleet.desired_state_body(desired))

    async def get_desired_state(self, request: Request) -> ASGIApp:
        desired = await self.services.fleet.desired_states.get(request.path_params["hardware_id"])
        return Json(fleet.desired_state_body(desired))

    async def list_latest(self, request: Request) -> ASGIApp:
        query = read_query(request, fleet.LatestQuery)
        purpose = query_fingerprint("devices.latest", group=query.group)
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        latest, next_key = await run_while_connected(
            request, self.services.fleet.queries.latest(query.group, query.limit, start)
        )
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        return Json(fleet.LatestPage([fleet.latest_body(entry) for entry in latest], cursor))

    async def get_fleet_series(self, request: Request) -> ASGIApp:
        query = read_query(request, fleet.FleetSeriesQuery)
        series = self.services.fleet.queries.series(
            query.group,
            query.sensor,
            (query.first, query.last),
            query.points,
            owner=request_operator(request).name,
        )
        found = await run_while_connected(request, series)
        info = await self.services.fleet.sensors.find(query.sensor)
        return Json(fleet.fleet_series_body(found, info))

    async def export_group(self, request: Request) -> ASGIApp:
        query = read_query(request, fleet.FleetExportQuery)
        file_format = FORMATS[query.format]
        readings = await self.services.fleet.queries.export(query.group, (query.first, query.last))
        headers = {
            "Content-Disposition": f'attachment; filename="{query.group}.{file_format.suffix}"'
        }
        if request.method == "HEAD":  # avoids reading what is not sent
            return Response(media_type=file_format.media_type, headers=headers)
        history = self.services.history
        slot = partial(history.export_limiter.slot, request_operator(request).name)
        writer = file_format.writer(
            ExportUnits(await self.services.fleet.sensors.all(), query.units)
        )
        return StreamingResponse(
            export(readings, writer, history.slices, slot),
            media_type=file_format.media_type,
            headers=headers,
        )

    async def get_fleet_metrics(self, request: Request) -> ASGIApp:
        query = read_query(request, fleet.MetricsQuery)
        snapshot = await run_while_connected(
            request,
            self.services.fleet.queries.snapshot(query.group, owner=request_operator(request).name),
        )
        sensors = await self.services.fleet.sensors.all()
        text = render_metrics(snapshot.latest, sensors, is_complete=snapshot.is_complete)
        return Response(text, media_type=METRICS_TYPE)
