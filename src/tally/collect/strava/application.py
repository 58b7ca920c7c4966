"""The state of the application at Strava, taken from the error responses.

Without a subscription of its owner, Strava deactivates an application and rejects all its calls.
"""

from typing import Final

import msgspec
from prometheus_client import Gauge

from tally.collect.model.records import ApplicationInactive
from tally.kit import logs
from tally.kit.fetch import DECODE_ERRORS, HttpResponse
from tally.kit.metrics import Metrics

INACTIVE_RETRY_SECONDS: Final = 300
INACTIVE_MESSAGE: Final = (
    "Strava has deactivated the application; its owner needs a Strava subscription and reactivates"
    " it in the API settings at Strava"
)


_log = logs.logger()


class StravaFault(msgspec.Struct):
    """An entry of `errors` in an error response."""

    resource: str = ""
    field: str = ""
    code: str = ""


class _ErrorResponse(msgspec.Struct):
    message: str = ""
    errors: list[StravaFault] = []


class ApplicationState:
    """Whether Strava accepts requests of the application. Changes are logged once."""

    def __init__(self, metrics: Metrics) -> None:
        self.is_inactive = False
        self._gauge = Gauge(
            "tally_collect_strava_inactive",
            "1 while Strava reports the application as inactive",
            registry=metrics.registry,
        )

    def observe(self, response: HttpResponse) -> None:
        """Take the state from a response; raise ApplicationInactive if it says so."""
        if response.status == 403 and any(
            fault.code == "Inactive" for fault in strava_faults(response, "Application")
        ):
            if not self.is_inactive:
                _log.error(INACTIVE_MESSAGE, action="strava_inactive")
            self._set(is_inactive=True)
            raise ApplicationInactive(INACTIVE_MESSAGE, retry_after=INACTIVE_RETRY_SECONDS)
        if self.is_inactive and response.status < 500 and response.status != 429:
            _log.info("Strava has reactivated the application", action="strava_active")
            self._set(is_inactive=False)

    async def check(self) -> None:
        """Raise ApplicationInactive while the application is inactive: a readiness probe."""
        if self.is_inactive:
            raise ApplicationInactive(INACTIVE_MESSAGE, retry_after=INACTIVE_RETRY_SECONDS)

    def _set(self, *, is_inactive: bool) -> None:
        self.is_inactive = is_inactive
        self._gauge.set(is_inactive)


def error_summary(response: HttpResponse) -> str:
    """Return what an error response says, without what the request contained."""
    try:
        body = msgspec.json.decode(response.body, type=_ErrorResponse)
    except DECODE_ERRORS:
        return ""
    faults = (f"{fault.resource} {fault.field} {fault.code}" for fault in body.errors)
    return "; ".join(" ".join(fault.split())[:200] for fault in faults) or body.message[:200]


def strava_faults(response: HttpResponse, resource: str) -> list[StravaFault]:
    """Return what an error response says about a resource, such as `Application`."""
    try:
        errors = msgspec.json.decode(response.body, type=_ErrorResponse).errors
    except DECODE_ERRORS:
        return []
    return [fault for fault in errors if fault.resource == resource]
