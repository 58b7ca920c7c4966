"""What each route does: parse, call the service, render. The list of routes is in `routes.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from tally.devices.api import queries, schemas
from tally.devices.api.exports import FORMATS, export
from tally.devices.model import PageKey, Reading
from tally.devices.service.history import History
from tally.devices.service.ingestion import Ingestion
from tally.devices.service.keys import KeyService
from tally.devices.service.registry import Registry
from tally.kit.auth import api_key, require_bearer
from tally.kit.body import read_body, read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.event_stream import EventStream
from tally.kit.http import Json
from tally.kit.hub import Hub
from tally.settings import Secret

Sealed: TypeAlias = str | None


def topic_of(hardware_id: str) -> str:
    """The hub's topic of a device's readings."""
    return f"devices:{hardware_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The handlers, with all they need."""

    keys: KeyService
    registry: Registry
    ingestion: Ingestion
    history: History
    cursors: Cursors
    hub: Hub
    admin_token: Secret

    async def health(self, _: Request) -> ASGIApp:
        return Json({"status": "ok"})

    async def register(self, request: Request) -> ASGIApp:
        await self.keys.authenticate(api_key(request))
        body = await read_json(request, schemas.Registration, gzip=True)
        device, is_new = await self.registry.register(
            body.hardware_id,
            body.boot_id,
            body.firmware_version,
            schemas.capabilities_of(body.capabilities),
        )
        return Json(schemas.confirmation(device, is_new=is_new))

    async def data(self, request: Request) -> ASGIApp:
        await self.keys.authenticate(api_key(request))
        sender, sent = schemas.sent_in(await read_body(request, gzip=True))
        return Json(schemas.receipt_body(await self.ingestion.ingest(sender, sent)))

    async def create_key(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        body = await read_json(request, schemas.NewKey)
        key, raw = await self.keys.create(body.description)
        created = schemas.CreatedKey(key.key_id, raw, key.created_at, key.description)
        return Json(created, 201, {"Cache-Control": "no-store"})

    async def list_keys(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        query = read_query(request, queries.PageQuery)
        purpose = query_fingerprint("devices.keys")
        keys, following = await self.keys.newest_first(
            query.limit, self._start(purpose, query.cursor)
        )
        return Json(
            schemas.KeyPage(
                [schemas.key_body(key) for key in keys], self._cursor(purpose, following)
            )
        )

    async def revoke_key(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        await self.keys.revoke(request.path_params["key_id"])
        return Response(status_code=204)

    async def list_devices(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        query = read_query(request, queries.PageQuery)
        purpose = query_fingerprint("devices.devices")
        devices, following = await self.registry.by_activity(
            query.limit, self._start(purpose, query.cursor)
        )
        return Json(
            schemas.DevicePage(
                [schemas.device_body(each) for each in devices], self._cursor(purpose, following)
            )
        )

    async def show_device(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        return Json(
            schemas.device_body(await self.registry.get(request.path_params["hardware_id"]))
        )

    async def rename_device(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        body = await read_json(request, schemas.Rename)
        device = await self.registry.rename(request.path_params["hardware_id"], body.friendly_name)
        return Json(schemas.device_body(device))

    async def latest(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        return Json(
            schemas.reading_shown(await self.history.latest(request.path_params["hardware_id"]))
        )

    async def readings(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, queries.ReadingsQuery)
        asked = {"device": hardware_id, "from": query.first, "to": query.last, "order": query.order}
        purpose = query_fingerprint("devices.readings", **asked)
        found, following = await self.history.between(
            hardware_id,
            (query.first, query.last),
            forward=query.order == "asc",
            limit=query.limit,
            start=self._start(purpose, query.cursor),
        )
        return Json(
            schemas.ReadingPage(
                [schemas.reading_shown(each) for each in found], self._cursor(purpose, following)
            )
        )

    async def series(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, queries.SeriesQuery)
        series = await self.history.series(
            hardware_id, query.sensor, (query.first, query.last), query.points
        )
        return Json(schemas.series_body(hardware_id, series))

    async def export(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        hardware_id = request.path_params["hardware_id"]
        query = read_query(request, queries.ExportQuery)
        chosen = FORMATS[query.format]
        readings = await self.history.export(hardware_id, (query.first, query.last))
        name = f"readings-{hardware_id.replace(':', '')}.{chosen.suffix}"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        if request.method == "HEAD":  # nobody would get what would be read
            return Response(media_type=chosen.media_type, headers=headers)
        return StreamingResponse(
            export(readings, chosen.writer()), media_type=chosen.media_type, headers=headers
        )

    async def stream(self, request: Request) -> ASGIApp:
        self._require_operator(request)
        device = await self.registry.get(request.path_params["hardware_id"])
        return EventStream(self.hub, topic_of(device.hardware_id), request)

    def _require_operator(self, request: Request) -> None:
        require_bearer(request, self.admin_token)

    def _start(self, purpose: str, cursor: Sealed) -> PageKey | None:
        return None if cursor is None else self.cursors.decode(purpose, cursor)

    def _cursor(self, purpose: str, following: PageKey | None) -> Sealed:
        return None if following is None else self.cursors.encode(purpose, following)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Tells those who watch a device of its new readings, which are all of that one device."""

    hub: Hub

    def __call__(self, readings: Sequence[Reading]) -> None:
        shown = (schemas.reading_shown(reading) for reading in readings)
        self.hub.publish_all(topic_of(readings[0].hardware_id), "reading", shown)
