"""The endpoints of scorecards and timelines."""

from tally.cricket.api.endpoint_options import user_endpoint
from tally.cricket.api.handlers import Handlers
from tally.cricket.api.schemas import examples, scorecards
from tally.cricket.model import errors
from tally.kit.endpoints import Endpoint


def scorecard_endpoints(handlers: Handlers) -> tuple[Endpoint, ...]:
    options = user_endpoint(errors.match_not_found())
    return (
        Endpoint(
            "GET",
            "/matches/{match_id}/scorecard",
            handlers.get_scorecard,
            "Get the scorecard of a match",
            description="Before the start, and 30 days after a match, `innings` is empty.",
            response=scorecards.ScorecardBody,
            response_example=examples.SCORECARD,
            **options,
        ),
        Endpoint(
            "GET",
            "/matches/{match_id}/timeline",
            handlers.get_timeline,
            "List the key events of a match",
            description=(
                "In order of publication, with ball and time, until 30 days after the match."
            ),
            query=scorecards.TimelineQuery,
            response=scorecards.TimelinePage,
            response_example=scorecards.TimelinePage([examples.TIMELINE_EVENT], None),
            **options,
        ),
    )
