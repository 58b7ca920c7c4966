"""Scoring mistakes: balls that are misreported and later corrected, late or duplicated.

A delivery is identified by its index in the match, from 0. A mistake is corrected after a number of
further deliveries.
"""

import random
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tally.sim.sportmonks.match import BallExtras, Delivery

# A ball is misreported as a dot ball, with wrong runs, as a four or as a wicket.
MisreportKind = Literal["dot", "runs", "four", "wicket"]
DEFAULT_MISREPORTS: Final[tuple[MisreportKind, ...]] = ("dot", "runs")


class Misreport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a ball is misreported, and for how many further deliveries."""

    how: MisreportKind
    until: int = 1


class Mistakes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All mistakes of a match, by delivery index."""

    wrong: Mapping[int, Misreport] = {}
    late: Mapping[int, int] = {}
    twice: frozenset[int] = frozenset()

    def report(self, index: int, delivery: Delivery, reported: int) -> Delivery:
        """A delivery as it is reported after `reported` deliveries of the match."""
        wrong = self.wrong.get(index)
        if wrong is None or reported - index > wrong.until:
            return delivery
        return apply_misreport(delivery, wrong.how)

    def corrected(self, reported: int) -> frozenset[int]:
        """The indexes of deliveries corrected so far."""
        return frozenset(
            index for index, wrong in self.wrong.items() if reported - index > wrong.until
        )

    def withheld(self, reported: int) -> frozenset[int]:
        """The indexes of deliveries not reported yet, although later ones are."""
        return frozenset(
            index for index, until in self.late.items() if index < reported <= index + until
        )


def apply_misreport(delivery: Delivery, how: MisreportKind) -> Delivery:
    """Change the outcome of a delivery; batter and bowler stay correct."""
    if how == "four":
        return msgspec.structs.replace(
            delivery, runs_bat=4, extras=BallExtras(), is_boundary=True, wickets=()
        )
    if how == "wicket" and not delivery.wickets:
        bowled = {"kind": "bowled", "player_out": delivery.batter}
        return msgspec.convert(
            msgspec.to_builtins(delivery) | {"runs_bat": 0, "wickets": [bowled]}, Delivery
        )
    if how == "runs" and not delivery.wickets and delivery.is_legal:
        wrong_runs = 1 if delivery.runs_bat != 1 else 2
        return msgspec.structs.replace(delivery, runs_bat=wrong_runs, extras=BallExtras())
    return msgspec.structs.replace(delivery, runs_bat=0, extras=BallExtras(), wickets=())


def random_mistakes(
    rng: random.Random,
    deliveries: int,
    share: float,
    kinds: tuple[MisreportKind, ...] = DEFAULT_MISREPORTS,
) -> Mistakes:
    """Random mistakes of each kind, each affecting about `share` of the deliveries."""

    def sample() -> list[int]:
        return [index for index in range(deliveries) if rng.random() < share]

    return Mistakes(
        wrong={index: Misreport(rng.choice(kinds), rng.randint(1, 6)) for index in sample()},
        late={index: rng.randint(1, 3) for index in sample()},
        twice=frozenset(sample()),
    )
