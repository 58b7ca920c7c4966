"""The routes below `/milestones`."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tally.collect.api.handlers import Handlers
from tally.collect.api.schemas import collection, examples, requests
from tally.errors import Conflict, NotFound
from tally.instance.stream_limits import TOO_MANY_STREAMS
from tally.kit.endpoints import Endpoint
from tally.kit.hub import encode_event

# Adds the errors that all routes of a kind share, and the session.
RouteErrors: TypeAlias = Callable[..., dict[str, Any]]

_NO_MILESTONE: Final = NotFound("The milestone does not exist", code="milestone_not_found")
_NO_MODEL: Final = NotFound("The model does not exist", code="model_not_found")
_ARCHIVED: Final = Conflict("The milestone is archived", code="milestone_archived")
_HAS_AWARDS: Final = Conflict(
    "The milestone has awards; archive it instead", code="milestone_has_awards"
)
_TOO_MANY_MILESTONES: Final = Conflict(
    "An account has at most 50 milestones that are not archived; delete or archive one",
    code="too_many_milestones",
)
_TOO_MANY_WORKOUTS: Final = Conflict(
    "More than 3000 workouts of the sport RIDE are in the period; choose a shorter period",
    code="too_many_workouts",
)
_BODY: Final[dict[str, Any]] = {
    "response": collection.MilestoneBody,
    "response_example": examples.MILESTONE,
}


def milestone_endpoints(
    handlers: Handlers, read: RouteErrors, change: RouteErrors
) -> tuple[Endpoint, ...]:
    """Build the routes; `read` and `change` add what all such routes have."""
    return (*_reads(handlers, read), *_creation(handlers, change), *_changes(handlers, change))


def _reads(handlers: Handlers, read: RouteErrors) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "GET",
            "/milestones",
            handlers.list_milestones,
            "List your milestones, oldest first",
            response=collection.MilestoneList,
            response_example=collection.MilestoneList([examples.MILESTONE]),
            **read(),
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}",
            handlers.get_milestone,
            "Get a milestone with its awards",
            **_BODY,
            **read(_NO_MILESTONE),
        ),
        Endpoint(
            "GET",
            "/milestones/{milestone_id}/events",
            handlers.stream_milestone,
            "Subscribe to progress and mints",
            description=(
                "Server-sent events. The first is a `snapshot` of the milestone with its awards."
                " `progress` is the current state, also sent on every connect; `minted` is a new"
                " award. A client that reconnects with `Last-Event-ID` receives exactly the awards"
                " that it missed, from any instance, or a `snapshot` if the id is older than 24"
                " hours or unknown. The stream ends with `session_ended` when the session ends, and"
                " with `deleted` when the milestone is deleted."
            ),
            media_type="text/event-stream",
            response_example=encode_event("snapshot", examples.MILESTONE).decode(),
            **read(_NO_MILESTONE, TOO_MANY_STREAMS),
        ),
    )


def _creation(handlers: Handlers, change: RouteErrors) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "POST",
            "/milestones",
            handlers.create_milestone,
            "Create a milestone",
            request=requests.NewMilestoneBody,
            request_example=examples.NEW_MILESTONE,
            status=201,
            **_BODY,
            **change(_NO_MODEL, _TOO_MANY_MILESTONES, _TOO_MANY_WORKOUTS),
        ),
        Endpoint(
            "POST",
            "/milestones/{milestone_id}/recompute",
            handlers.recompute_milestone,
            "Recompute a milestone",
            **_BODY,
            **change(_NO_MILESTONE, _ARCHIVED, _TOO_MANY_WORKOUTS),
        ),
    )


def _changes(handlers: Handlers, change: RouteErrors) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            "PATCH",
            "/milestones/{milestone_id}",
            handlers.change_milestone,
            "Change the target",
            description="Possible until the first part is minted."
            " A lower target mints at once what is earned.",
            request=requests.MilestoneChangeBody,
            request_example=examples.MILESTONE_CHANGE,
            **_BODY,
            **change(_NO_MILESTONE, _HAS_AWARDS, _ARCHIVED),
        ),
        Endpoint(
            "DELETE",
            "/milestones/{milestone_id}",
            handlers.delete_milestone,
            "Delete a milestone without awards",
            status=204,
            **change(_NO_MILESTONE, _HAS_AWARDS),
        ),
        Endpoint(
            "POST",
            "/milestones/{milestone_id}/archive",
            handlers.archive_milestone,
            "Archive a milestone",
            description="It stays readable with its awards, advances no more, and does not count"
            " towards the limit of 50 milestones.",
            **_BODY,
            **change(_NO_MILESTONE),
        ),
    )
