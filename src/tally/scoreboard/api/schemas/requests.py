"""Request bodies and query strings, and the types of their fields.

The types validate requests and appear in the OpenAPI document.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from tally.kit.body import StrictStruct
from tally.scoreboard.model.accounts import (
    MAX_AVATAR_URL_LENGTH,
    MAX_EMAIL_LENGTH,
    MAX_USERNAME_LENGTH,
)
from tally.scoreboard.model.boards import (
    BOARD_ID_PATTERN,
    MAX_BOARD_ID_LENGTH,
    MAX_BOARD_NAME_LENGTH,
    MAX_BOARDS_PER_ACTION,
    MAX_SCHEDULE_LENGTH,
    MAX_TIME_ZONE_LENGTH,
    BoardOperator,
    BoardOrder,
)
from tally.scoreboard.model.scores import (
    MAX_ACTION_ID_LENGTH,
    MAX_ACTION_SCORE,
    MAX_ADJUSTMENT,
    MAX_ADJUSTMENT_ID_LENGTH,
    MAX_PAGE_SIZE,
    MAX_REASON_LENGTH,
)

UUID: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
MAX_TOKEN_LENGTH: Final = 4096
MAX_OFFSET: Final = 100_000_000

# In Python `$` also matches before a trailing newline, which `(?!\n)` excludes; JSON Schema has no
# `\Z`.
Username = Annotated[
    str, Meta(min_length=3, max_length=MAX_USERNAME_LENGTH, pattern=r"^[a-zA-Z0-9_]+(?!\n)$")
]
Email = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=MAX_EMAIL_LENGTH,
        pattern=r"^[!-?A-~]{1,64}@[A-Za-z0-9][A-Za-z0-9.-]*\.[A-Za-z]{2,}(?!\n)$",
    ),
]
NewPassword = Annotated[str, Meta(min_length=10, max_length=128)]
# Accounts from before the minimum length may have a shorter one.
CurrentPassword = Annotated[str, Meta(min_length=1, max_length=128)]
AvatarUrl = Annotated[
    str, Meta(min_length=8, max_length=MAX_AVATAR_URL_LENGTH, pattern=r"^https?://[!-~]+(?!\n)$")
]
# Accepts any text: a value that is neither a username nor an email matches no account.
Login = Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL_LENGTH)]
RefreshToken = Annotated[str, Meta(min_length=1, max_length=256)]
ActionId = Annotated[
    str, Meta(min_length=1, max_length=MAX_ACTION_ID_LENGTH, pattern=r"^[!-~]+(?!\n)$")
]
UserId = Annotated[str, Meta(min_length=36, max_length=36, pattern=UUID)]
SessionId = Annotated[str, Meta(min_length=36, max_length=36, pattern=UUID)]
MaxScore = Annotated[int, Meta(ge=1, le=MAX_ACTION_SCORE)]
ScoreDelta = Annotated[int, Meta(ge=1, le=MAX_ACTION_SCORE)]
ScoreAdjustment = Annotated[int, Meta(ge=-MAX_ADJUSTMENT, le=MAX_ADJUSTMENT)]
# Not blank: it has a character that is no space.
Reason = Annotated[
    str, Meta(min_length=1, max_length=MAX_REASON_LENGTH, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")
]
AdjustmentId = Annotated[
    str, Meta(min_length=1, max_length=MAX_ADJUSTMENT_ID_LENGTH, pattern=r"^[!-~]+(?!\n)$")
]
ActionTokenText = Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN_LENGTH)]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)]
Offset = Annotated[int, Meta(ge=0, le=MAX_OFFSET)]
Cursor = Annotated[str, Meta(max_length=2048)]


BoardId = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_BOARD_ID_LENGTH, pattern=BOARD_ID_PATTERN),
]
ActionBoards = Annotated[list[BoardId], Meta(min_length=1, max_length=MAX_BOARDS_PER_ACTION)]
BoardName = Annotated[
    str, Meta(min_length=1, max_length=MAX_BOARD_NAME_LENGTH, pattern=r"^[^\x00-\x1f]+(?!\n)$")
]
CronExpression = Annotated[
    str, Meta(min_length=9, max_length=MAX_SCHEDULE_LENGTH, pattern=r"^[!-~ ]+(?!\n)$")
]
TimeZone = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_TIME_ZONE_LENGTH, pattern=r"^[A-Za-z0-9_+/-]+(?!\n)$"),
]
SeasonNumber = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class RegisterRequest(StrictStruct, frozen=True):
    username: Username
    email: Email
    password: NewPassword
    avatar_url: AvatarUrl | None = None


class LoginRequest(StrictStruct, frozen=True):
    """`login` is the username or the email address."""

    login: Login
    password: CurrentPassword


class UpdateAccountRequest(StrictStruct, frozen=True):
    """Fields that are absent keep their value; an `avatar_url` of null removes the avatar.

    An `email` requires the `current_password`.
    """

    username: Username | msgspec.UnsetType = msgspec.UNSET
    email: Email | msgspec.UnsetType = msgspec.UNSET
    avatar_url: AvatarUrl | msgspec.UnsetType | None = msgspec.UNSET
    current_password: CurrentPassword | msgspec.UnsetType = msgspec.UNSET


class ChangePasswordRequest(StrictStruct, frozen=True):
    current_password: CurrentPassword
    new_password: NewPassword


class PasswordResetRequest(StrictStruct, frozen=True):
    email: Email


class ResetPasswordRequest(StrictStruct, frozen=True):
    """`token` is the one from the mail."""

    token: RefreshToken
    new_password: NewPassword


class RefreshRequest(StrictStruct, frozen=True):
    refresh_token: RefreshToken


class CompleteActionRequest(StrictStruct, frozen=True):
    """`boards` are the boards that the action counts on: `global` and named ones."""

    action_id: ActionId
    user_id: UserId
    max_score: MaxScore
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    boards: ActionBoards | None = None


class UpdateScoreRequest(StrictStruct, frozen=True):
    action_token: ActionTokenText
    score_delta: ScoreDelta


class AdjustScoreRequest(StrictStruct, frozen=True):
    """An adjustment with the id of an earlier one is not applied again.

    It must have the same `score_delta` and `board`.
    """

    score_delta: ScoreAdjustment
    reason: Reason
    adjustment_id: AdjustmentId | None = None
    board: BoardId | None = None


class LeaderboardQuery(StrictStruct, frozen=True):
    limit: Limit = 10
    offset: Offset = 0
    around: Literal["me"] | None = None


class ScoreEventsQuery(StrictStruct, frozen=True):
    limit: Limit = 20
    cursor: Cursor | None = None


class ResetRequest(StrictStruct, frozen=True):
    """A cron expression with five fields, and an IANA time zone."""

    cron: CronExpression
    time_zone: TimeZone = "UTC"


class CreateBoardRequest(StrictStruct, frozen=True):
    """`order` says which score ranks first, and `operator` how an action changes a score."""

    id: BoardId
    name: BoardName
    order: BoardOrder = BoardOrder.DESC
    operator: BoardOperator = BoardOperator.SUM
    reset: ResetRequest | None = None


class BoardListQuery(StrictStruct, frozen=True):
    """A page of boards or seasons."""

    limit: Limit = 100
    cursor: Cursor | None = None
