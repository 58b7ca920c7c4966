"""Request handlers: each parses a request, calls a service and builds the response.

`routes.py` lists the routes.
"""

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from tally.devices.api.auth import DevicesAuth
from tally.devices.api.events import ReadingStreams
from tally.devices.api.schemas import requests, responses
from tally.devices.api.schemas.exports import FORMATS, ExportUnits, export
from tally.devices.model.records import PageKey
from tally.devices.service.services import DevicesServices
from tally.instance.streams import OpenStreams, StreamSession
from tally.kit.body import read_body, read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.kit.operators import OperatorDirectory, request_operator
from tally.kit.tasks import run_while_connected


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The request handlers of the devices backend."""

    services: DevicesServices
    auth: DevicesAuth
    cursors: Cursors
    hub: Hub
    streams: OpenStreams
    readings: ReadingStreams
    operators: OperatorDirectory

    async def check_health(self, _: Request) -> ASGIApp:
        return Json({"status": "ok"})

    async def register_board(self, request: Request) -> ASGIApp:
        key = await self.auth.require_board(request)
        body = await read_json(request, requests.RegistrationBody, gzip=True)
        await self.services.scopes.require(key, body.hardware_id)
        device, is_new = await self.services.devices.register(
            body.hardware_id,
            body.boot_id,
            body.firmware_version,
            requests.to_capabilities(body.capabilities),
        )
        desired = await self.services.fleet.desired_states.exchange(
            device.hardware_id, body.state_version
        )
        return Json(responses.confirmation_body(device, desired, is_new=is_new))

    async def send_readings(self, request: Request) -> ASGIApp:
        key = await self.auth.require_board(request)
        data = requests.parse_upload(await read_body(request, gzip=True))
        await self.services.scopes.require(key, data.sender.hardware_id)
        receipt = await self.services.ingestion.ingest(data.sender, data.submissions)
        desired = await self.services.fleet.desired_states.exchange(
            data.sender.hardware_id, data.state_version
        )
        return Json(responses.receipt_body(receipt, desired))

    async def create_key(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.NewKeyBody)
        key, raw = await self.services.keys.create(body.description, body.hardware_ids, body.group)
        return Json(responses.created_key_body(key, raw), 201, {"Cache-Control": "no-store"})

    async def list_keys(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.ListQuery)
        purpose = query_fingerprint("devices.keys")
        keys, next_key = await self.services.keys.newest_first(
            query.limit, self._page_key(purpose, query.cursor)
        )
        bodies = [responses.key_body(key) for key in keys]
        return Json(responses.KeyPage(bodies, self._cursor(purpose, next_key)))

    async def revoke_key(self, request: Request) -> ASGIApp:
        await self.services.keys.revoke(request.path_params["key_id"])
        return Response(status_code=204)

    async def list_devices(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.DevicesQuery)
        purpose = query_fingerprint("devices.devices", group=query.group)
        start = self._page_key(purpose, query.cursor)
        if query.group is None:
            devices, next_key = await self.services.devices.by_activity(query.limit, start)
        else:
            devices, next_key = await self.services.fleet.groups.page(
                query.group, query.limit, start
            )
        bodies = [responses.device_body(device) for device in devices]
        return Json(responses.DevicePage(bodies, self._cursor(purpose, next_key)))

    async def get_device(self, request: Request) -> ASGIApp:
        device = await self.services.devices.get(request.path_params["hardware_id"])
        return Json(responses.device_body(device))

    async def get_latest_reading(self, request: Request) -> ASGIApp:
        reading = await self.services.history.latest(request.path_params["hardware_id"])
        return Json(responses.reading_body(reading))

    async def list_readings(self, request: Request) -> ASGIApp:
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, requests.ReadingsQuery)
        filters = {
            "device": hardware_id,
            "from": query.first,
            "to": query.last,
            "order": query.order,
        }
        purpose = query_fingerprint("devices.readings", **filters)
        readings, next_key = await self.services.history.between(
            hardware_id,
            (query.first, query.last),
            forward=query.order == "asc",
            limit=query.limit,
            start=self._page_key(purpose, query.cursor),
        )
        bodies = [responses.reading_body(reading) for reading in readings]
        return Json(responses.ReadingPage(bodies, self._cursor(purpose, next_key)))

    async def get_series(self, request: Request) -> ASGIApp:
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, requests.SeriesQuery)
        series = self.services.charts.series(
            hardware_id,
            query.sensor,
            (query.first, query.last),
            query.points,
            owner=request_operator(request).name,
        )
        found = await run_while_connected(request, series)
        info = await self.services.fleet.sensors.find(query.sensor)
        return Json(responses.series_body(hardware_id, found, info))

    async def export_readings(self, request: Request) -> ASGIApp:
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, requests.ExportQuery)
        file_format = FORMATS[query.format]
        history = self.services.history
        readings = await history.export(hardware_id, (query.first, query.last))
        name = f"readings-{hardware_id.replace(':', '')}.{file_format.suffix}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        if request.method == "HEAD":  # avoids reading what is not sent
            return Response(media_type=file_format.media_type, headers=headers)
        slot = partial(history.export_limiter.slot, request_operator(request).name)
        writer = file_format.writer(
            ExportUnits(await self.services.fleet.sensors.all(), query.units)
        )
        return StreamingResponse(
            export(readings, writer, history.slices, slot),
            media_type=file_format.media_type,
            headers=headers,
        )

    async def stream_readings(self, request: Request) -> ASGIApp:
        operator = request_operator(request)
        owner = self.streams.admit(
            request,
            person=f"operator:{operator.name}",
            session=StreamSession(operator.session_id, self.operators.find_active),
        )
        device = await self.services.devices.get(request.path_params["hardware_id"])
        source = self.readings.source(device.hardware_id, self.services.history.find_latest)
        return self.streams.response(owner, EventStream(self.hub, source, request))

    def _page_key(self, purpose: str, cursor: str | None) -> PageKey | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _cursor(self, purpose: str, page_key: PageKey | None) -> str | None:
        return None if page_key is None else self.cursors.encode(purpose, page_key)
