"""Examples of named boards and seasons in the OpenAPI document."""

from datetime import UTC, datetime
from typing import Final

from tally.errors import Conflict, Invalid, NotFound
from tally.scoreboard.api.schemas import boards, requests
from tally.scoreboard.api.schemas.examples import AVATAR_URL, LEADERBOARD, MOMENT, USER_ID
from tally.scoreboard.model.boards import DELETED_PLAYER, BoardOperator, BoardOrder
from tally.scoreboard.service.ports import BoardUpdate, RankedPlayer

_STARTED: Final = datetime(2026, 1, 11, 23, tzinfo=UTC)
_ENDS: Final = datetime(2026, 1, 18, 23, tzinfo=UTC)

BOARD: Final = boards.BoardResponse(
    "weekly",
    "Weekly points",
    BoardOrder.DESC,
    BoardOperator.SUM,
    boards.ResetResponse("0 0 * * MON", "Europe/Berlin"),
    2,
    _STARTED,
    _ENDS,
    datetime(2026, 1, 7, 9, tzinfo=UTC),
)
CREATE_BOARD: Final = requests.CreateBoardRequest(
    "weekly",
    "Weekly points",
    reset=requests.ResetRequest("0 0 * * MON", "Europe/Berlin"),
)
BOARD_PAGE: Final = boards.BoardLeaderboardResponse(
    "weekly", 2, _STARTED, _ENDS, LEADERBOARD.items, 1, MOMENT
)
OWN_STANDING: Final = boards.BoardStandingResponse(
    "weekly", 2, USER_ID, "ana_99", 1500, 1, 1, 100.0, MOMENT, AVATAR_URL
)
SEASON: Final = boards.SeasonResponse(1, datetime(2026, 1, 7, 9, tzinfo=UTC), _STARTED, 2)
SEASON_PAGE: Final = boards.SeasonLeaderboardResponse(
    "weekly",
    1,
    SEASON.started_at,
    _STARTED,
    [
        boards.ArchivedEntry(1, USER_ID, "ana_99", 900, SEASON.started_at, AVATAR_URL),
        boards.ArchivedEntry(2, None, DELETED_PLAYER, 800, SEASON.started_at, None),
    ],
    2,
)
BOARD_UPDATE: Final = BoardUpdate(
    "weekly",
    2,
    "2026-01-11T23:00:00Z",
    "2026-01-18T23:00:00Z",
    (RankedPlayer(1, USER_ID, "ana_99", 1500, AVATAR_URL),),
    (1,),
    1,
    "2026-01-15T10:30:00Z",
)
BOARD_NOT_FOUND: Final = NotFound('There is no board "weekly"', code="board_not_found")
BOARD_EXISTS: Final = Conflict(
    'A board "weekly" with other content exists', code="board_exists", field="id"
)
SEASON_NOT_FOUND: Final = NotFound("Season 3 has not been closed", code="season_not_found")
NO_SCORE: Final = NotFound("You have no score on this board", code="no_board_score")
INVALID_CRON: Final = Invalid("cron: matches no date", code="invalid_field", field="reset.cron")
