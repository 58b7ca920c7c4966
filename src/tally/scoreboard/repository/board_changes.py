"""Changes of a player's scores on boards, within the transactions of other repositories.

Every function runs in the caller's transaction, which has locked the player's row of `scores`
first, and raises SeasonDue if a season of the player ended before the change.
"""

from datetime import datetime
from typing import Any, Final

import asyncpg

from tally.scoreboard.model.boards import BoardChange, BoardPlace
from tally.scoreboard.model.errors import BoardNotFound, SeasonDue
from tally.scoreboard.model.scores import from_microseconds
from tally.scoreboard.repository import board_statements as statements
from tally.scoreboard.repository.database import Connection

# SQLSTATEs that `apply_board_change` raises.
BOARD_NOT_FOUND: Final = "TS405"
SCORE_UNDERFLOW: Final = "TS410"
SEASON_DUE: Final = "TS423"


async def hide_scores(connection: Connection, user_id: str, at: datetime) -> list[BoardPlace]:
    """Hide the scores of a banned player in open seasons, and return their places."""
    return await _change(connection, statements.HIDE, user_id, at)


async def show_scores(connection: Connection, user_id: str, at: datetime) -> list[BoardPlace]:
    """Show the scores of a player in open seasons again."""
    return await _change(connection, statements.SHOW, user_id, at)


async def touch_scores(connection: Connection, user_id: str, at: datetime) -> list[BoardPlace]:
    """Increment the revisions of a player whose name or avatar changes."""
    return await _change(connection, statements.TOUCH, user_id, at)


async def delete_scores(connection: Connection, user_id: str, at: datetime) -> list[BoardPlace]:
    """Delete a player from open seasons, and give the rows of closed ones ids that are nobody's."""
    places = await _change(connection, statements.DELETE_OPEN, user_id, at)
    await connection.execute(statements.ANONYMISE, user_id)
    return places


async def _change(
    connection: Connection, statement: str, user_id: str, at: datetime
) -> list[BoardPlace]:
    await connection.execute(statements.LOCK_BOARDS, user_id)
    due: str | None = await connection.fetchval(statements.FIND_DUE_BOARD, user_id, at)
    if due is not None:
        raise SeasonDue(due)
    rows = await connection.fetch(statement, user_id)
    return [BoardPlace(row["board"], row["season"], row["revision"]) for row in rows]


def board_changes(stored: dict[str, Any] | None) -> tuple[BoardChange, ...]:
    """Return the changes that an event stores, by board id."""
    return tuple(
        BoardChange(
            board_id,
            change["season"],
            change["before"],
            change["after"],
            change.get("revision"),
            from_microseconds(change["reached"]) if "reached" in change else None,
        )
        for board_id, change in sorted((stored or {}).items())
    )


def translate_board_error(error: asyncpg.PostgresError) -> BoardNotFound | SeasonDue | None:
    """Return the domain error of what `apply_board_change` raises."""
    if error.sqlstate == BOARD_NOT_FOUND:
        return BoardNotFound("The board does not exist", field="board")
    if error.sqlstate == SEASON_DUE:
        return SeasonDue(str(error))
    return None
