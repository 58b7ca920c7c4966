"""Lists an athlete's activities like `GET /athlete/activities`.

With `after`, the oldest activity is first, otherwise the newest. Both bounds are exclusive and
compare start times. A page is cut before private activities are removed, so that a page may have
fewer activities than requested although more follow: only an empty page is the last one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tally.sim.strava.model import StravaActivity, bad_request

DEFAULT_PAGE_SIZE: Final = 30
MAX_PAGE_SIZE: Final = 200


class ListingQuery(msgspec.Struct, frozen=True):
    """The parameters of a request for a page of activities; times are epoch seconds."""

    after: int | None = None
    before: int | None = None
    page: int = 1
    per_page: int = DEFAULT_PAGE_SIZE


def parse_listing_query(parameters: Mapping[str, str], now: int) -> ListingQuery:
    after = _number(parameters, "after")
    if after is not None and after > now:
        raise bad_request("Application", "after", "future")
    page, per_page = _number(parameters, "page"), _number(parameters, "per_page")
    if page is not None and page < 1:
        raise bad_request("Application", "page")
    if per_page is not None and per_page < 1:
        raise bad_request("Application", "per_page")
    if per_page is not None and per_page > MAX_PAGE_SIZE:
        raise bad_request("Application", "per page", "limit exceeded")
    return ListingQuery(
        after, _number(parameters, "before"), page or 1, per_page or DEFAULT_PAGE_SIZE
    )


def list_activities(
    activities: Iterable[StravaActivity], query: ListingQuery, *, reads_private: bool
) -> list[StravaActivity]:
    """Return the page of one athlete's activities that the query asks for."""
    found = sorted(
        (
            activity
            for activity in activities
            if (query.after is None or activity.start > query.after)
            and (query.before is None or activity.start < query.before)
        ),
        key=lambda activity: (activity.start, activity.id),
        reverse=query.after is None,
    )
    first = (query.page - 1) * query.per_page
    page = found[first : first + query.per_page]
    return [activity for activity in page if reads_private or not activity.private]


def _number(parameters: Mapping[str, str], name: str) -> int | None:
    text = parameters.get(name, "")
    if not text:
        return None
    if not (text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) <= 15):
        raise bad_request("Application", name)
    return int(text)
