"""Converts SportMonks values: statuses, times, overs and numbers that are sent as text."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Final

from tally.cricket.model.feed import MatchStatus, Overs, WicketKind
from tally.kit.clock import rfc3339

STATUSES: Final = {
    "ns": MatchStatus.NOT_STARTED,
    "innings break": MatchStatus.INNINGS_BREAK,
    "lunch": MatchStatus.BREAK,
    "tea break": MatchStatus.BREAK,
    "tea": MatchStatus.BREAK,
    "dinner": MatchStatus.BREAK,
    "delayed": MatchStatus.DELAYED,
    "int": MatchStatus.DELAYED,
    "postp": MatchStatus.POSTPONED,
    "cancl": MatchStatus.CANCELLED,
    "aban": MatchStatus.ABANDONED,
    "finished": MatchStatus.FINISHED,
}
MAX_OVERS: Final = 10_000


class MalformedFixture(Exception):
    """A fixture decodes, but its values are invalid or contradict each other."""


def match_status(text: str | None) -> MatchStatus:
    """Map a SportMonks status; an unknown one maps to the most likely status."""
    word = (text or "ns").strip().lower().rstrip(".")
    known = STATUSES.get(word)
    if known is not None:
        return known
    if "innings" in word:
        return MatchStatus.IN_PLAY
    is_break = word.startswith(("stump", "lunch", "tea", "dinner"))
    return MatchStatus.BREAK if is_break else MatchStatus.DELAYED


def parse_start_time(text: str) -> str:
    """Return the start time as RFC 3339 in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise MalformedFixture(f"{text!r} is not a time") from error
    return rfc3339(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


@lru_cache(4096)
def parse_overs(number: Decimal | None) -> Overs:
    """Split overs and balls: the decimal of 19.4 is a number of balls, not a fraction."""
    if number is None:
        return Overs(0, 0)
    if not number.is_finite() or not 0 <= number < MAX_OVERS:
        raise MalformedFixture(f"{number} is not a number of overs")
    whole, _, balls = format(number, "f").partition(".")
    balls = balls.rstrip("0")
    return Overs(int(whole), int(balls[:2]) if balls else 0)


def parse_decimal(value: str | float | None) -> Decimal | None:
    """Parse a number that may be sent as text; return None for any other text."""
    text = str(value).strip() if value is not None else ""
    is_number = text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 12
    return Decimal(text) if is_number else None


def id_text(number: int | None) -> str | None:
    return None if number is None else str(number)


def innings_number(scoreboard: str) -> int:
    """Return the innings number of a scoreboard name such as `S2`."""
    digits = scoreboard.lstrip("Ss")
    if not (digits.isascii() and digits.isdigit()) or not 1 <= int(digits) <= 99:
        raise MalformedFixture(f"{scoreboard!r} is not an innings")
    return int(digits)


def resolve_caught_and_bowled(
    kind: WicketKind | None, name: str, fielder_id: int | None, bowler_id: int | None
) -> WicketKind | None:
    """Return CAUGHT_AND_BOWLED for a catch by the bowler or without a fielder, else `kind`."""
    if kind is WicketKind.CAUGHT and "sub" not in name.lower() and fielder_id in {None, bowler_id}:
        return WicketKind.CAUGHT_AND_BOWLED
    return kind
