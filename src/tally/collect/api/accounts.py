"""Request handlers of accounts: sessions, export and deletion."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp

from tally.collect.api.auth import CollectAuth, client_ip
from tally.collect.api.schemas import requests, sessions
from tally.collect.api.schemas.exports import write_export
from tally.collect.service.services import CollectServices
from tally.instance.streams import AbortableDownload, OpenStreams, StreamSession
from tally.kit.body import read_query
from tally.kit.clock import rfc3339
from tally.kit.cursors import Cursors, query_fingerprint
from tally.kit.http import NO_STORE, Json

EXPORT_HEADERS = NO_STORE | {"Content-Disposition": 'attachment; filename="account.json"'}


def stream_person(user_id: str) -> str:
    """Return the name under which the streams of a user are counted."""
    return f"collect:{user_id}"


class AccountHandlers:
    """The handlers of the routes below `/sessions` and `/account`, and of `/admin/deletions`."""

    __slots__ = ()
    services: CollectServices
    auth: CollectAuth
    cursors: Cursors
    streams: OpenStreams

    async def list_sessions(self, request: Request) -> ASGIApp:
        current = await self.auth.require_session(request)
        found = await self.services.sessions.all(current)
        bodies = [sessions.session_body(session, current) for session in found]
        return Json(sessions.SessionList(bodies), 200, NO_STORE)

    async def end_session(self, request: Request) -> ASGIApp:
        current = await self.auth.require_session_for_change(request)
        public_id = request.path_params["session_id"]
        ended = await self.services.sessions.end(current, public_id, client_ip(request))
        self.streams.end_session(ended.session_hash)
        response = Response(status_code=204, headers=NO_STORE)
        if ended.session_hash == current.session_hash:
            self.auth.clear_session_cookie(response)
        return response

    async def end_all_sessions(self, request: Request) -> ASGIApp:
        current = await self.auth.require_session_for_change(request)
        await self.services.sessions.end_all(current, client_ip(request))
        self.streams.end_person(stream_person(current.user_id))
        response = Response(status_code=204, headers=NO_STORE)
        self.auth.clear_session_cookie(response)
        return response

    async def export_account(self, request: Request) -> ASGIApp:
        """Stream the export. It counts as a stream of the person, and ends with the session."""
        current = await self.auth.require_session(request)
        owner = self.streams.admit(
            request,
            person=stream_person(current.user_id),
            session=StreamSession(current.session_hash, self.services.sign_in.find_active),
        )
        if request.method == "HEAD":  # avoids reading what is not sent
            return Response(media_type="application/json", headers=EXPORT_HEADERS)
        found = await self.services.sessions.all(current)
        exports = self.services.exports
        chunks = write_export(
            rfc3339(self.services.sessions.clock.now()),
            exports.item_pages(current.user_id),
            exports.event_pages(current.user_id),
            [sessions.session_body(session, current) for session in found],
            exports.audit_pages(current.user_id),
        )
        response = StreamingResponse(chunks, media_type="application/json", headers=EXPORT_HEADERS)
        return self.streams.response(owner, AbortableDownload(response))

    async def delete_account(self, request: Request) -> ASGIApp:
        session = await self.auth.require_session_for_change(request)
        deletion = await self.services.deletions.request(session, client_ip(request))
        self.streams.end_person(stream_person(session.user_id))
        response = Json(sessions.DeletionAccepted(deletion.requested_at), 202, NO_STORE)
        self.auth.clear_session_cookie(response)
        return response

    async def list_deletions(self, request: Request) -> ASGIApp:
        query = read_query(request, requests.DeletionsQuery)
        purpose = query_fingerprint("collect.deletions")
        start = None if query.cursor is None else self.cursors.decode(purpose, query.cursor)
        found, next_key = await self.services.deletions.page(query.limit, start)
        cursor = None if next_key is None else self.cursors.encode(purpose, next_key)
        bodies = [sessions.deletion_body(deletion) for deletion in found]
        return Json(sessions.DeletionPage(bodies, cursor), 200, NO_STORE)
