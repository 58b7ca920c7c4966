"""The gateway to Strava: OAuth, tokens and activities, within the limits that Strava tells.

Reads are tried a few times; what changes something is sent once, and whoever asked may ask again.
After a 429, or when an answer says that the limit is used up, no activity is read until the quarter
of an hour or the day is over.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final
from urllib.parse import urlencode

import msgspec
from pyreqwest.client import Client
from pyreqwest.request import RequestBuilder

from tally.collect.model import Grant, Tokens, Workout, measure, moment
from tally.collect.service.ports import Revoked
from tally.errors import Invalid, RateLimited, Unavailable
from tally.kit.breaker import Breaker
from tally.kit.clock import Clock
from tally.kit.fetch import HttpResponse, fetch
from tally.kit.metrics import Metrics
from tally.kit.retry import RetryPolicy
from tally.settings import Secret

WHO: Final = "Strava"
SCOPE: Final = "read,activity:read_all"
QUARTER: Final = 15 * 60
DAY: Final = 86_400
MAX_NAME: Final = 256

_reading = RetryPolicy(
    attempts=3,
    base=0.2,
    cap=2,
    deadline=8,
    is_retryable=lambda error: isinstance(error, Unavailable),
)


class _Athlete(msgspec.Struct):
    id: int


class _Token(msgspec.Struct):
    access_token: str
    refresh_token: str
    expires_at: int
    athlete: _Athlete | None = None


class _Activity(msgspec.Struct):
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
    """Strava, for one app of ours there."""

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
        self._secret()
        asked = {
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "response_type": "code",
            "approval_prompt": "auto",
            "scope": SCOPE,
            "state": state,
        }
        return f"{self._url}/oauth/authorize?{urlencode(asked)}"

    def is_resting(self) -> bool:
        return self._clock.monotonic() < self._paused_until

    async def exchange(self, code: str) -> Grant:
        answer = await self._token({"grant_type": "authorization_code", "code": code})
        if answer.status in {400, 401, 403}:
            raise Invalid(
                "Strava does not accept the code", code="strava_code_refused", field="code"
            )
        token = _expect(answer).decode(_Token, WHO)
        if token.athlete is None:
            raise Unavailable("Strava did not say whose tokens these are")
        return Grant(token.athlete.id, _tokens(token))

    async def refresh(self, refresh_token: str) -> Tokens:
        answer = await self._token({"grant_type": "refresh_token", "refresh_token": refresh_token})
        if answer.status in {400, 401, 403}:
            raise Revoked
        return _tokens(_expect(answer).decode(_Token, WHO))

    async def deauthorize(self, access_token: str) -> None:
        request = self._client.post(f"{self._url}/oauth/deauthorize").form(
            {"access_token": access_token}
        )
        answer = await self._breaker.call(lambda: _sent(request.bearer_auth(access_token)))
        if answer.status in {400, 401, 403}:
            raise Revoked
        _expect(answer)

    async def activity(
        self, access_token: str, activity_id: int, athlete_id: int
    ) -> Workout | None:
        """The activity as it is now; None where there is none of this athlete's."""
        wait = self._paused_until - self._clock.monotonic()
        if wait > 0:
            raise RateLimited("Strava's limit is used up", retry_after=wait)

        async def read() -> HttpResponse:
            request = self._client.get(f"{self._url}/api/v3/activities/{activity_id}").bearer_auth(
                access_token
            )
            return await self._breaker.call(lambda: _sent(request))

        answer = await _reading.call(read, self._clock)
        self._note_limits(answer)
        if answer.status == 404:
            return None
        if answer.status in {401, 403}:
            raise Revoked
        found = _expect(answer).decode(_Activity, WHO)
        is_theirs = found.id == activity_id and (
            found.athlete is None or found.athlete.id == athlete_id
        )
        return _workout(found) if is_theirs else None

    async def _token(self, form: dict[str, str]) -> HttpResponse:
        whole = {"client_id": self._client_id, "client_secret": self._secret().reveal(), **form}
        request = self._client.post(f"{self._url}/oauth/token").form(whole)
        return await self._breaker.call(lambda: _sent(request))

    def _secret(self) -> Secret:
        if self._client_secret is None or not self._client_id:
            raise Unavailable("Strava is not set up here", code="strava_not_set_up")
        return self._client_secret

    def _note_limits(self, answer: HttpResponse) -> None:
        wait = seconds_to_wait(answer, self._clock.seconds())
        if wait:
            self._paused_until = self._clock.monotonic() + wait
        if answer.status == 429:
            raise RateLimited("Strava's limit is used up", retry_after=wait)


def seconds_to_wait(answer: HttpResponse, now: int) -> float:
    """How long no more may be read: told by Retry-After, or by which of the limits is used up; 0 if none is."""
    told = answer.headers.get("retry-after", "")
    if answer.status == 429 and told.isascii() and told.isdigit():
        return float(min(int(told), DAY))
    to_quarter, to_day = QUARTER - now % QUARTER, DAY - now % DAY
    wait = to_quarter if answer.status == 429 else 0
    for family in ("x-ratelimit", "x-readratelimit"):
        limits, usages = (
            _pair(answer.headers, f"{family}-limit"),
            _pair(answer.headers, f"{family}-usage"),
        )
        if limits and usages:
            wait = max(
                wait,
                to_quarter if usages[0] >= limits[0] else 0,
                to_day if usages[1] >= limits[1] else 0,
            )
    return float(wait)


def _pair(headers: Mapping[str, str], name: str) -> tuple[int, int] | None:
    numbers = [part.strip() for part in headers.get(name, "").split(",")]
    if len(numbers) != 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1])


async def _sent(request: RequestBuilder) -> HttpResponse:
    answer = await fetch(request, WHO)
    if answer.status >= 500:
        raise Unavailable(f"Strava answered with {answer.status}")
    return answer


def _expect(answer: HttpResponse) -> HttpResponse:
    if answer.status == 429:
        raise RateLimited("Strava's limit is used up", retry_after=60)
    if answer.status != 200:
        raise Unavailable(f"Strava answered with {answer.status}")
    return answer


def _tokens(token: _Token) -> Tokens:
    return Tokens(token.access_token, token.refresh_token, token.expires_at)


def _workout(found: _Activity) -> Workout:
    try:
        started_at = moment(found.start_date, "start_date")
    except Invalid as error:
        raise Unavailable("Strava told of an activity without a start") from error
    return Workout(
        user_id="",
        activity_id=found.id,
        name=found.name[:MAX_NAME],
        sport_type=(found.sport_type or found.type or "Unknown")[:MAX_NAME],
        started_at=started_at,
        distance=measure(found.distance),
        elevation=measure(found.total_elevation_gain),
        moving_seconds=max(0, found.moving_time),
        elapsed_seconds=max(0, found.elapsed_time),
        event_time=0,
    )
