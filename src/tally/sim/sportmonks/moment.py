"""A match at one moment of play: how far it has come, and how the scorers have told it so far."""

import msgspec

from tally.sim.sportmonks.match import Delivery, Match


class Moment(msgspec.Struct, frozen=True):
    """How far a match has come: the deliveries of each innings that has begun, and what is known besides."""

    match: Match
    starting_at: str
    status: str
    updated_at: str
    is_tossed: bool = False
    is_over: bool = False
    # As the scorers report them, which need not be what the file says.
    played: tuple[tuple[Delivery, ...], ...] = ()
    closed: int = 0
    # Deliveries, counted through the match, that are in the scores but not among the balls yet, or
    # are there twice.
    withheld: frozenset[int] = frozenset()
    doubled: frozenset[int] = frozenset()
    corrected: frozenset[int] = frozenset()


def innings_numbers(match: Match) -> list[int]:
    """SportMonks' number of each innings."""
    plain = sum(not innings.is_super_over for innings in match.innings)
    places, extras = iter(range(1, plain + 1)), iter(range(max(4, plain) + 1, 1000))
    return [next(extras if innings.is_super_over else places) for innings in match.innings]
