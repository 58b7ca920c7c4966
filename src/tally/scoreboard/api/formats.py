"""What fields of the wire may hold, as types: checked where a request is read, told in the OpenAPI document."""

from typing import Annotated, Final

from msgspec import Meta

from tally.scoreboard.model import (
    MAX_ACTION_ID_LENGTH,
    MAX_ACTION_SCORE,
    MAX_AVATAR_URL_LENGTH,
    MAX_EMAIL_LENGTH,
    MAX_PAGE_SIZE,
    MAX_USERNAME_LENGTH,
)

UUID: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
MAX_TOKEN: Final = 4096
MAX_OFFSET: Final = 100_000_000

# In Python `$` also matches before a last line end, which none of these may have; JSON Schema knows
# no other end.
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
Password = Annotated[str, Meta(min_length=8, max_length=128)]
AvatarUrl = Annotated[
    str, Meta(min_length=8, max_length=MAX_AVATAR_URL_LENGTH, pattern=r"^https?://[!-~]+(?!\n)$")
]
# Wide enough for whatever somebody types; what is no name and no address finds no account.
Login = Annotated[str, Meta(min_length=1, max_length=MAX_EMAIL_LENGTH)]
RefreshToken = Annotated[str, Meta(min_length=1, max_length=256)]
ActionId = Annotated[
    str, Meta(min_length=1, max_length=MAX_ACTION_ID_LENGTH, pattern=r"^[!-~]+(?!\n)$")
]
UserId = Annotated[str, Meta(min_length=36, max_length=36, pattern=UUID)]
SessionId = Annotated[str, Meta(min_length=36, max_length=36, pattern=UUID)]
MaxScore = Annotated[int, Meta(ge=1, le=MAX_ACTION_SCORE)]
ScoreDelta = Annotated[int, Meta(ge=1, le=MAX_ACTION_SCORE)]
ActionTokenText = Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN)]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)]
Offset = Annotated[int, Meta(ge=0, le=MAX_OFFSET)]
Cursor = Annotated[str, Meta(max_length=2048)]
