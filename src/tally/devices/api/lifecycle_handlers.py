"""Request handlers for the first and the last request of a board: claims and deletions."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp

from tally.devices.api.schemas import requests, responses
from tally.devices.service.services import DevicesServices
from tally.kit.addresses import client_address
from tally.kit.body import read_json, read_query
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import Json
from tally.kit.operators import request_operator


@dataclass(frozen=True, slots=True)
class LifecycleHandlers:
    """Handlers of claims and deletions."""

    services: DevicesServices
    cursors: Cursors

    async def create_claim(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.NewClaimBody)
        claim, code = await self.services.lifecycle.claims.create(
            request_operator(request).name,
            body.hardware_id,
            body.description,
            body.expires_in_seconds,
        )
        created = responses.created_claim_body(claim, code)
        return Json(created, 201, {"Cache-Control": "no-store"})

    async def claim_key(self, request: Request) -> ASGIApp:
        body = await read_json(request, requests.ClaimBody)
        key, raw = await self.services.lifecycle.claims.use(
            body.code, body.hardware_id, client_address(request)
        )
        return Json(responses.created_key_body(key, raw), 201, {"Cache-Control": "no-store"})

    async def delete_device(self, request: Request) -> ASGIApp:
        deletion = await self.services.lifecycle.deletions.request_device(
            request.path_params["hardware_id"], request_operator(request).name
        )
        return Json(responses.device_deletion_body(deletion), 202)

    async def delete_readings(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.DeletionQuery)
        deletion = await self.services.lifecycle.deletions.request_readings(
            request.path_params["hardware_id"],
            (query.first, query.last),
            request_operator(request).name,
        )
        return Json(responses.device_deletion_body(deletion), 202)

    async def get_deletion(self, request: Request) -> ASGIApp:
        deletion = await self.services.lifecycle.deletions.get(request.path_params["deletion_id"])
        return Json(responses.device_deletion_body(deletion))

    async def list_deletions(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.ListQuery)
        purpose = query_fingerprint("devices.deletions")
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        found, next_key = await self.services.lifecycle.deletions.newest_first(query.limit, start)
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        bodies = [responses.device_deletion_body(deletion) for deletion in found]
        return Json(responses.DeviceDeletionPage(bodies, cursor))
