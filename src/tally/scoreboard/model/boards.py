"""Named boards and their seasons: immutable data, and the rules of order and reset."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tally.errors import Invalid

MAX_BOARD_ID_LENGTH: Final = 64
MAX_BOARD_NAME_LENGTH: Final = 100
MAX_SCHEDULE_LENGTH: Final = 100
MAX_TIME_ZONE_LENGTH: Final = 64
MAX_BOARDS_PER_ACTION: Final = 10
# The all-time leaderboard, among the boards of an action.
GLOBAL_BOARD: Final = "global"
DELETED_PLAYER: Final = "Deleted player"
_CRON_FIELDS: Final = 5
# Names of files beside the zones of the IANA: they mean the zone of this machine, or count leap
# seconds, so that instances would disagree about the end of a season.
_NO_IANA_ZONE: Final = re.compile(r"localtime|posixrules|Factory|(posix|right)/.*")
BOARD_ID_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]*(?!\n)$"


class BoardOrder(StrEnum):
    """Which score ranks first: the highest (`desc`) or the lowest (`asc`)."""

    DESC = "desc"
    ASC = "asc"


class BoardOperator(StrEnum):
    """How the value of an action changes a score: add, keep the better one, or replace."""

    SUM = "sum"
    BEST = "best"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class ResetSchedule:
    """When seasons end: a cron expression with five fields, in a time zone.

    Daylight saving time is treated as in Debian's cron: a reset at a skipped time happens when the
    clock has moved, and one at a repeated time once. An expression whose minute or hour begins with
    `*` follows the clock: the skipped hour has no reset, and both of the repeated hours have.
    """

    expression: str
    time_zone: str

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Iterate over the resets after a time, in UTC; raises Invalid."""
        zone = _find_zone(self.time_zone)
        if len(self.expression.split()) != _CRON_FIELDS:
            raise _invalid_schedule("must have five fields: minute, hour, day, month, weekday")
        try:
            resets = CronSim(self.expression, moment.astimezone(zone))
        except CronSimError as error:
            raise _invalid_schedule(str(error)) from error
        latest = moment
        for local in resets:
            reset = local.astimezone(UTC)
            if reset > latest:
                yield reset
                latest = reset

    def first_after(self, moment: datetime) -> datetime:
        """Return the first reset after a time; raises Invalid, also if there is none."""
        reset = next(self.after(moment), None)
        if reset is None:
            raise _invalid_schedule("matches no date")
        return reset


def _find_zone(name: str) -> ZoneInfo:
    error = Invalid(
        f"time_zone: {name!r} is not an IANA time zone",
        code="invalid_field",
        field="reset.time_zone",
    )
    if _NO_IANA_ZONE.fullmatch(name):
        raise error
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as cause:
        raise error from cause


def _invalid_schedule(reason: str) -> Invalid:
    return Invalid(f"cron: {reason}", code="invalid_field", field="reset.cron")


def check_board_id(board_id: str) -> None:
    """Raise Invalid unless the text can be the id of a board."""
    if len(board_id) > MAX_BOARD_ID_LENGTH or not re.match(BOARD_ID_PATTERN, board_id):
        raise Invalid(
            f"id must have 1 to {MAX_BOARD_ID_LENGTH} lower-case letters, digits, - and _",
            code="invalid_field",
            field="id",
        )


@dataclass(frozen=True, slots=True)
class BoardRules:
    """How a board ranks and resets, which does not change."""

    name: str
    order: BoardOrder = BoardOrder.DESC
    operator: BoardOperator = BoardOperator.SUM
    reset: ResetSchedule | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """A board and its open season, which ends at `ends_at`, if ever."""

    board_id: str
    rules: BoardRules
    created_at: datetime
    season: int
    started_at: datetime
    ends_at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Return whether the season has to be closed."""
        return self.ends_at is not None and self.ends_at <= now

    def due_resets(self, now: datetime, limit: int) -> tuple[list[datetime], datetime | None]:
        """Return up to `limit` resets that have passed, and the end of the season after them."""
        if self.ends_at is None or self.rules.reset is None:
            return [], self.ends_at
        passed: list[datetime] = []
        following = self.ends_at
        upcoming = self.rules.reset.after(self.ends_at)
        while following <= now and len(passed) < limit:
            passed.append(following)
            upcoming_reset = next(upcoming, None)
            if upcoming_reset is None:
                return passed, None
            following = upcoming_reset
        return passed, following


@dataclass(frozen=True, slots=True)
class Season:
    """A closed season: its number from 1, its times and how many players it ranks."""

    number: int
    started_at: datetime
    ended_at: datetime
    players: int


@dataclass(frozen=True, slots=True)
class BoardChange:
    """What an event changed on a board: the season and the score before and after it.

    The revision and the time of the score are not stored with the event, and None if it is old.
    """

    board_id: str
    season: int
    before: int | None
    after: int
    revision: int | None = None
    reached_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """A player's row in the open season of a board, and the revision of its score."""

    board_id: str
    season: int
    revision: int
