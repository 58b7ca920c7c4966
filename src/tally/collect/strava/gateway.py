"""The gateway to Strava: OAuth, tokens and activities, within Strava's rate limits.

Reads are retried a few times. Requests that change something are sent once. After a 429, or when a
response reports an exhausted limit, the gateway reads no activity until the quarter hour or the day
ends. While Strava reports the application as inactive, it reads one activity every five minutes.
"""

import asyncio
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

import msgspec
from pyreqwest.client import Client
from pyreqwest.request import RequestBuilder

from tally.collect.model.records import (
    ApplicationInactive,
    AthleteTokens,
    StravaTokens,
    TokensRevoked,
)
from tally.collect.model.sync import LIST_PAGE_SIZE
from tally.collect.model.validation import normalize_metres, parse_time
from tally.collect.model.workouts import Workout, strava_workout_id
from tally.collect.strava.application import (
    INACTIVE_RETRY_SECONDS,
    ApplicationState,
    strava_faults,
)
from tally.collect.strava.rate_limits import ReadBudget, rate_limit_delay
from tally.errors import Invalid, RateLimited, Unavailable
from tally.kit import logs
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock
from tally.kit.fetch import DECODE_ERRORS, HttpResponse, fetch
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Secret

SERVICE: Final = "Strava"
SCOPE: Final = "read,activity:read_all"
MAX_NAME_LENGTH: Final = 256
# A page has 200 activities with their routes, and a long ride has hundreds of segment efforts.
MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024
# Activities of a page that are converted in one turn of the event loop: about 1 ms.
CONVERTED_PER_TURN: Final = 50
_log = logs.logger()
_read_policy = RetryPolicy(
    attempts=3,
    base=0.2,
    cap=2,
    deadline=8,
    is_retryable=lambda error: isinstance(error, Unavailable),
)


class _Athlete(msgspec.Struct):
    id: int


class _ActivityId(msgspec.Struct):
    id: int


class _TokenResponse(msgspec.Struct):
    access_token: str
    refresh_token: str
    expires_at: int
    athlete: _Athlete | None = None


class _Activity(msgspec.Struct):
    """The fields of Strava's activity that Tally uses."""

    id: int
    start_date: str
    name: str = ""
    sport_type: str | None = None
    type: str | None = None
    distance: Decimal | None = None
    total_elevation_gain: Decimal | None = None
    moving_time: int = 0
    elapsed_time: int = 0
    flagged: bool | None = None
    manual: bool | None = None
    athlete: _Athlete | None = None


_activity_decoder = msgspec.json.Decoder(_Activity)


class StravaGateway:
    """A client of the Strava API for one registered application."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        metrics: Metrics,
        *,
        api_url: str,
        oauth_url: str,
        client_id: str,
        client_secret: Secret | None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._api_url = api_url
        self._oauth_url = oauth_url
        self._client_id = client_id
        self._client_secret = client_secret
        self._breaker = Breaker(
            "strava", clock, metrics, is_failure=lambda error: isinstance(error, Unavailable)
        )
        self._paused_until = 0.0
        self._budget = ReadBudget(clock)
        self.application = ApplicationState(metrics)

    def authorize_url(self, redirect_uri: str, state: str) -> str:
        self._require_secret()
        parameters = {
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "approval_prompt": "auto",
            "scope": SCOPE,
            "state": state,
        }
        return f"{self._oauth_url}/authorize?{urlencode(parameters)}"

    def is_paused(self) -> bool:
        return self.pause_seconds() > 0

    def pause_seconds(self) -> float:
        return max(0.0, self._paused_until - self._clock.monotonic())

    def sync_delay(self) -> float:
        return max(self.pause_seconds(), self._budget.sync_delay())

    async def exchange(self, code: str) -> AthleteTokens:
        response = await self._request_token({"grant_type": "authorization_code", "code": code})
        if response.status in {400, 401}:
            raise Invalid("Strava rejected the code", code="strava_code_refused", field="code")
        token = _require_ok(response).decode(_TokenResponse, SERVICE)
        if token.athlete is None:
            raise Unavailable("Strava's token response has no athlete")
        return AthleteTokens(token.athlete.id, _tokens(token))

    async def refresh(self, refresh_token: str) -> StravaTokens:
        response = await self._request_token(
            {"grant_type": "refresh_token", "refresh_token": refresh_token}
        )
        if response.status in {400, 401}:
            raise TokensRevoked
        return _tokens(_require_ok(response).decode(_TokenResponse, SERVICE))

    async def revoke(self, refresh_token: str) -> None:
        """Revoke an authorization with all its tokens; also succeeds if it is revoked already."""
        form = {"token": refresh_token, "token_type_hint": "refresh_token"}
        request = self._client.post(f"{self._oauth_url}/revoke").form(form)
        request = request.basic_auth(self._client_id, self._require_secret().reveal())
        response = await self._breaker.call(lambda: _send(request))
        self.application.observe(response)
        _require_ok(response)

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """Read an activity; None if the athlete has no such activity."""
        response = await self._read(f"/activities/{activity_id}", access_token)
        if response.status == 404:
            return None
        activity = _require_ok(response).decode(_Activity, SERVICE)
        belongs_to_athlete = activity.id == activity_id and (
            activity.athlete is None or activity.athlete.id == athlete_id
        )
        return _workout(activity, athlete_id) if belongs_to_athlete else None

    async def list_activities(
        self, access_token: str, athlete_id: int, after: int, page: int
    ) -> list[Workout]:
        """Read a page of the activities that start after `after`, oldest first.

        Malformed ones are logged and skipped: they must not keep the others from being synced.
        """
        query = urlencode({"after": after, "page": page, "per_page": LIST_PAGE_SIZE})
        response = await self._read(f"/athlete/activities?{query}", access_token)
        listed = _require_ok(response).decode(list[msgspec.Raw], SERVICE)
        workouts = list[Workout]()
        for number, raw in enumerate(listed):
            if not number % CONVERTED_PER_TURN:
                await asyncio.sleep(0)  # requests come first
            workout = _listed_workout(raw, athlete_id)
            workouts += () if workout is None else (workout,)
        if listed and not workouts:
            raise Unavailable("Strava sent only malformed activities")  # an empty page is the end
        return sorted(workouts, key=lambda workout: workout.started_at)

    async def _read(self, path: str, access_token: str) -> HttpResponse:
        """Read from the API, unless a limit is exhausted; TokensRevoked for a rejected token."""
        if delay := self.pause_seconds():
            await self.application.check()
            raise RateLimited("Strava's rate limit is exhausted", retry_after=delay)

        async def read() -> HttpResponse:
            request = self._client.get(f"{self._api_url}{path}").bearer_auth(access_token)
            return await self._breaker.call(lambda: _send(request))

        response = await _read_policy.call(read, self._clock)
        try:
            self.application.observe(response)
        except ApplicationInactive:
            self._paused_until = self._clock.monotonic() + INACTIVE_RETRY_SECONDS
            raise
        self._apply_rate_limit(response)
        if response.status == 401:
            raise TokensRevoked
        return response

    async def _request_token(self, grant: dict[str, str]) -> HttpResponse:
        form = {
            "client_id": self._client_id,
            "client_secret": self._require_secret().reveal(),
            **grant,
        }
        request = self._client.post(f"{self._oauth_url}/token").form(form)
        response = await self._breaker.call(lambda: _send(request))
        self.application.observe(response)
        if response.status in {400, 401} and strava_faults(response, "Application"):
            # Wrong client credentials would otherwise look like a revoked token of every athlete.
            raise Unavailable("Strava rejected the client ID or the client secret")
        return response

    def _require_secret(self) -> Secret:
        if self._client_secret is None or not self._client_id:
            raise Unavailable("Strava is not configured", code="strava_not_set_up")
        return self._client_secret

    def _apply_rate_limit(self, response: HttpResponse) -> None:
        self._budget.update(response.headers)
        delay = rate_limit_delay(response, self._clock.seconds())
        if delay:
            self._paused_until = self._clock.monotonic() + delay
        if response.status == 429:
            raise RateLimited("Strava's rate limit is exhausted", retry_after=delay)


async def _send(request: RequestBuilder) -> HttpResponse:
    response = await fetch(request, SERVICE, MAX_RESPONSE_BYTES)
    if response.status >= 500:
        raise Unavailable(f"Strava responded with status {response.status}")
    return response


def _require_ok(response: HttpResponse) -> HttpResponse:
    if response.status == 429:
        raise RateLimited("Strava's rate limit is exhausted", retry_after=60)
    if response.status != 200:
        raise Unavailable(f"Strava responded with status {response.status}")
    return response


def _tokens(token: _TokenResponse) -> StravaTokens:
    return StravaTokens(token.access_token, token.refresh_token, token.expires_at)


def _listed_workout(raw: msgspec.Raw, athlete_id: int) -> Workout | None:
    """Return the workout of a listed activity, or None if it is malformed."""
    try:
        activity = _activity_decoder.decode(raw)
        workout = _workout(activity, athlete_id)
    except (*DECODE_ERRORS, Unavailable) as error:
        _log.warning(
            "Strava activity skipped: malformed",
            action="strava_activity_skipped",
            id=_decode_id(raw),
            error=error,
        )
        return None
    if activity.athlete is not None and activity.athlete.id != athlete_id:
        raise Unavailable("Strava sent activities of another athlete")
    return workout


def _decode_id(raw: msgspec.Raw) -> int | None:
    """Return the id of a malformed activity, if at least that can be decoded."""
    try:
        return msgspec.json.decode(raw, type=_ActivityId).id
    except DECODE_ERRORS:
        return None


def _workout(activity: _Activity, athlete_id: int) -> Workout:
    try:
        started_at = parse_time(activity.start_date, "start_date")
    except Invalid as error:
        raise Unavailable("Strava sent an activity without a valid start_date") from error
    return Workout(
        user_id="",
        workout_id=strava_workout_id(activity.id),
        name=activity.name[:MAX_NAME_LENGTH],
        sport_type=(activity.sport_type or activity.type or "Unknown")[:MAX_NAME_LENGTH],
        started_at=started_at,
        distance=normalize_metres(activity.distance),
        elevation=normalize_metres(activity.total_elevation_gain),
        moving_seconds=max(0, activity.moving_time),
        elapsed_seconds=max(0, activity.elapsed_time),
        is_flagged=bool(activity.flagged),
        is_manual=bool(activity.manual),
        athlete_id=athlete_id,
    )
