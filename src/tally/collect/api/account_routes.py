"""The routes of sessions, the export and the deletion of accounts."""

from typing import Any

from tally.collect.api.accounts import AccountHandlers
from tally.collect.api.schemas import account_examples as examples
from tally.collect.api.schemas import exports, requests, sessions
from tally.errors import NotFound, TallyError, Unauthenticated
from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Endpoint
from tally.kit.operators import OPERATOR_SCHEME


def account_endpoints(
    handlers: AccountHandlers, read: dict[str, Any], change: dict[str, Any]
) -> tuple[Endpoint, ...]:
    """Return the endpoints; `read` and `change` are the errors and security of others like them."""
    not_found = NotFound("The session does not exist", code="session_not_found")
    return (
        Endpoint(
            "GET",
            "/sessions",
            handlers.list_sessions,
            "List your sessions, newest first",
            description="At most 500. `sessionId` identifies a session and grants nothing.",
            response=sessions.SessionList,
            response_example=sessions.SessionList([examples.SESSION]),
            **read,
        ),
        Endpoint(
            "DELETE",
            "/sessions",
            handlers.end_all_sessions,
            "Sign out everywhere",
            description="Ends all of your sessions and streams, including this one.",
            status=204,
            **change,
        ),
        Endpoint(
            "DELETE",
            "/sessions/{session_id}",
            handlers.end_session,
            "Sign out of one session",
            status=204,
            **_with_error(change, not_found),
        ),
        Endpoint(
            "GET",
            "/account/export",
            handlers.export_account,
            "Export your data",
            description="Everything stored about you as one JSON document, without secrets. The"
            " response is streamed; an incomplete one ends without the closing brace.",
            response=exports.ExportBody,
            response_example=examples.EXPORT,
            **_with_error(read, TOO_MANY_STREAMS),
        ),
        _deletion(handlers, change),
        _pending_deletions(handlers, read),
    )


def _with_error(options: dict[str, Any], error: TallyError) -> dict[str, Any]:
    return {**options, "errors": (error, *options["errors"])}


def _deletion(handlers: AccountHandlers, change: dict[str, Any]) -> Endpoint:
    return Endpoint(
        "DELETE",
        "/account",
        handlers.delete_account,
        "Delete your account",
        description="Accepts the request durably and ends all of your sessions. In the background,"
        " Tally revokes its access to Strava and deletes all items, sessions and the identity, and"
        " retries each step until it succeeds. Until then you cannot sign in again.",
        response=sessions.DeletionAccepted,
        response_example=examples.DELETION_ACCEPTED,
        status=202,
        **change,
    )


def _pending_deletions(handlers: AccountHandlers, read: dict[str, Any]) -> Endpoint:
    invalid = Unauthenticated("Invalid operator token", code="invalid_token")
    return Endpoint(
        "GET",
        "/admin/deletions",
        handlers.list_deletions,
        "List the account deletions in progress",
        query=requests.DeletionsQuery,
        response=sessions.DeletionPage,
        response_example=sessions.DeletionPage([examples.DELETION], None),
        errors=(invalid, read["errors"][-1]),
        security=(OPERATOR_SCHEME,),
    )
