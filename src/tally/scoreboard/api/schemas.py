"""What goes over the wire: bodies and query strings that are read, and what is answered, always in one envelope.

{"success": true, "data": {…}}
{"success": false, "error": {"code": "…", "message": "…", "details": {…}}}
"""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from tally.kit.body import StrictStruct
from tally.scoreboard.api import formats

T = TypeVar("T")


class Envelope(msgspec.Struct, Generic[T], frozen=True):
    """Around every answer that is no error."""

    success: bool
    data: T


class RegisterBody(StrictStruct, frozen=True):
    username: formats.Username
    email: formats.Email
    password: formats.Password
    avatar_url: formats.AvatarUrl | None = None


class LoginBody(StrictStruct, frozen=True):
    """`login` is the username or the e-mail address."""

    login: formats.Login
    password: formats.Password


class RefreshBody(StrictStruct, frozen=True):
    refresh_token: formats.RefreshToken


class ActionBody(StrictStruct, frozen=True):
    action_id: formats.ActionId
    user_id: formats.UserId
    max_score: formats.MaxScore
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class ScoreBody(StrictStruct, frozen=True):
    action_token: formats.ActionTokenText
    score_delta: formats.ScoreDelta


class BoardQuery(StrictStruct, frozen=True):
    limit: formats.Limit = 10
    offset: formats.Offset = 0
    around: Literal["me"] | None = None


class EventsQuery(StrictStruct, frozen=True):
    limit: formats.Limit = 20
    cursor: formats.Cursor | None = None


class Player(msgspec.Struct, frozen=True):
    user_id: str
    username: str
    email: str
    avatar_url: str | None
    created_at: datetime


class Tokens(msgspec.Struct, frozen=True):
    """`access_token` goes into the Authorization header; `refresh_token` is good for one refresh."""

    access_token: str
    token_type: str
    expires_at: datetime
    refresh_token: str
    session_id: str


class SignedIn(msgspec.Struct, frozen=True):
    user: Player
    tokens: Tokens


class SessionShown(msgspec.Struct, frozen=True):
    session_id: str
    is_current: bool
    created_at: datetime
    expires_at: datetime
    ip_address: str | None
    user_agent: str | None


class SessionList(msgspec.Struct, frozen=True):
    sessions: list[SessionShown]


class Vouched(msgspec.Struct, frozen=True):
    action_token: str
    expires_at: datetime


class Place(msgspec.Struct, frozen=True):
    rank: int
    user_id: str
    username: str
    score: int
    reached_at: datetime


class BoardShown(msgspec.Struct, frozen=True):
    """`last_updated` is when a score last changed; null if none ever has."""

    leaderboard: list[Place]
    total_players: int
    last_updated: datetime | None


class MyScore(msgspec.Struct, frozen=True):
    """`percentile` is the share of the other players who are behind."""

    user_id: str
    username: str
    score: int
    rank: int
    total_players: int
    percentile: float
    reached_at: datetime


class EventShown(msgspec.Struct, frozen=True):
    event_id: str
    action_id: str
    score_delta: int
    score_before: int
    score_after: int
    metadata: dict[str, Any]
    created_at: datetime


class EventPageShown(msgspec.Struct, frozen=True):
    events: list[EventShown]
    next_cursor: str | None


class Rebuilt(msgspec.Struct, frozen=True):
    players: int


class DriftShown(msgspec.Struct, frozen=True):
    """How many players were compared, and how many of them Redis does not have, has wrong, or should not have."""

    compared: int
    found: int
    missing: int
    wrong: int
    extra: int
    strays: int
    examples: list[str]


class Status(msgspec.Struct, frozen=True):
    status: str
