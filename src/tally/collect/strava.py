"""The gateway to Strava: OAuth, tokens and activities, within Strava's rate limits.

Reads are retried a few times. Requests that change something are sent once. After a 429, or when a
response reports an exhausted limit, the gateway reads no activity until the quarter hour or the day
ends.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

import msgspec
from pyreqwest.client import Client
from pyreqwest.request import RequestBuilder

from tally.collect.model.records import AthleteTokens, StravaTokens, TokensRevoked, Workout
from tally.collect.model.validation import normalize_metres, parse_time
from tally.errors import Invalid, RateLimited, Unavailable
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Secret

SERVICE: Final = "Strava"
SCOPE: Final = "read,activity:read_all"
QUARTER_HOUR_SECONDS: Final = 15 * 60
DAY_SECONDS: Final = 86_400
MAX_NAME_LENGTH: Final = 256

_read_policy = RetryPolicy(
    attempts=3,
    base=0.2,
    cap=2,
    deadline=8,
    is_retryable=lambda error: isinstance(error, Unavailable),
)


class _Athlete(msgspec.Struct):
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
    athlete: _Athlete | None = None


class StravaGateway:
    """A client of the Strava API for one registered application."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        metrics: Metrics,
        *,
        url: str,
        client_id: str,
        client_secret: Secret | None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._url = url
        self._client_id = client_id
        self._client_secret = client_secret
        self._breaker = Breaker(
            "strava", clock, metrics, is_failure=lambda error: isinstance(error, Unavailable)
        )
        self._paused_until = 0.0

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
        return f"{self._url}/oauth/authorize?{urlencode(parameters)}"

    def is_paused(self) -> bool:
        return self._clock.monotonic() < self._paused_until

    async def exchange(self, code: str) -> AthleteTokens:
        response = await self._request_token({"grant_type": "authorization_code", "code": code})
        if response.status in {400, 401, 403}:
            raise Invalid("Strava rejected the code", code="strava_code_refused", field="code")
        token = _require_ok(response).decode(_TokenResponse, SERVICE)
        if token.athlete is None:
            raise Unavailable("Strava's token response has no athlete")
        return AthleteTokens(token.athlete.id, _tokens(token))

    async def refresh(self, refresh_token: str) -> StravaTokens:
        response = await self._request_token(
            {"grant_type": "refresh_token", "refresh_token": refresh_token}
        )
        if response.status in {400, 401, 403}:
            raise TokensRevoked
        return _tokens(_require_ok(response).decode(_TokenResponse, SERVICE))

    async def deauthorize(self, access_token: str) -> None:
        request = self._client.post(f"{self._url}/oauth/deauthorize").form(
            {"access_token": access_token}
        )
        response = await self._breaker.call(lambda: _send(request.bearer_auth(access_token)))
        if response.status in {400, 401, 403}:
            raise TokensRevoked
        _require_ok(response)

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """Read an activity; None if the athlete has no such activity."""
        delay = self._paused_until - self._clock.monotonic()
        if delay > 0:
            raise RateLimited("Strava's rate limit is exhausted", retry_after=delay)

        async def read() -> HttpResponse:
            request = self._client.get(f"{self._url}/api/v3/activities/{activity_id}").bearer_auth(
                access_token
            )
            return await self._breaker.call(lambda: _send(request))

        response = await _read_policy.call(read, self._clock)
        self._apply_rate_limit(response)
        if response.status == 404:
            return None
        if response.status in {401, 403}:
            raise TokensRevoked
        activity = _require_ok(response).decode(_Activity, SERVICE)
        belongs_to_athlete = activity.id == activity_id and (
            activity.athlete is None or activity.athlete.id == athlete_id
        )
        return _workout(activity) if belongs_to_athlete else None

    async def _request_token(self, grant: dict[str, str]) -> HttpResponse:
        form = {
            "client_id": self._client_id,
            "client_secret": self._require_secret().reveal(),
            **grant,
        }
        request = self._client.post(f"{self._url}/oauth/token").form(form)
        return await self._breaker.call(lambda: _send(request))

    def _require_secret(self) -> Secret:
        if self._client_secret is None or not self._client_id:
            raise Unavailable("Strava is not configured", code="strava_not_set_up")
        return self._client_secret

    def _apply_rate_limit(self, response: HttpResponse) -> None:
        delay = rate_limit_delay(response, self._clock.seconds())
        if delay:
            self._paused_until = self._clock.monotonic() + delay
        if response.status == 429:
            raise RateLimited("Strava's rate limit is exhausted", retry_after=delay)


def rate_limit_delay(response: HttpResponse, now: int) -> float:
    """Return the seconds until the next read is allowed.

    Taken from Retry-After or from the limit that is exhausted; 0 if none is.
    """
    retry_after = response.headers.get("retry-after", "")
    if response.status == 429 and retry_after.isascii() and retry_after.isdigit():
        return float(min(int(retry_after), DAY_SECONDS))
    to_quarter_hour = QUARTER_HOUR_SECONDS - now % QUARTER_HOUR_SECONDS
    to_day = DAY_SECONDS - now % DAY_SECONDS
    delay = to_quarter_hour if response.status == 429 else 0
    for family in ("x-ratelimit", "x-readratelimit"):
        limits = _parse_pair(response.headers, f"{family}-limit")
        usages = _parse_pair(response.headers, f"{family}-usage")
        if limits and usages:
            delay = max(
                delay,
                to_quarter_hour if usages[0] >= limits[0] else 0,
                to_day if usages[1] >= limits[1] else 0,
            )
    return float(delay)


def _parse_pair(headers: Mapping[str, str], name: str) -> tuple[int, int] | None:
    numbers = [part.strip() for part in headers.get(name, "").split(",")]
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


async def _send(request: RequestBuilder) -> HttpResponse:
    response = await fetch(request, SERVICE)
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


def _workout(activity: _Activity) -> Workout:
    try:
        started_at = parse_time(activity.start_date, "start_date")
    except Invalid as error:
        raise Unavailable("Strava sent an activity without a valid start_date") from error
    return Workout(
        user_id="",
        activity_id=activity.id,
        name=activity.name[:MAX_NAME_LENGTH],
        sport_type=(activity.sport_type or activity.type or "Unknown")[:MAX_NAME_LENGTH],
        started_at=started_at,
        distance=normalize_metres(activity.distance),
        elevation=normalize_metres(activity.total_elevation_gain),
        moving_seconds=max(0, activity.moving_time),
        elapsed_seconds=max(0, activity.elapsed_time),
        event_time=0,
    )
