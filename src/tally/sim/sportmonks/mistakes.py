"""What scorers get wrong: balls that are first reported wrongly and then put right, that come late, or that come twice.

A delivery is known by its place, counted from 0 through the whole match. What is wrong is put right
after so many more deliveries.
"""

import random
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tally.sim.sportmonks.match import BallExtras, Delivery

# How a ball is misreported at first: as if nothing had happened; with another number of runs, but
# no boundary that was none; or as a boundary, or a wicket, that never was.
MisreportKind = Literal["dot", "runs", "four", "wicket"]
DEFAULT_MISREPORTS: Final[tuple[MisreportKind, ...]] = ("dot", "runs")


class Misreport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a ball is reported at first, and after how many more deliveries it is put right."""

    how: MisreportKind
    until: int = 1


class Mistakes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is wrong with how a match is told, by the place of the delivery."""

    wrong: Mapping[int, Misreport] = {}
    late: Mapping[int, int] = {}
    twice: frozenset[int] = frozenset()

    def reported(self, place: int, delivery: Delivery, told: int) -> Delivery:
        """A delivery as it is reported once `told` of the match have been."""
        wrong = self.wrong.get(place)
        if wrong is None or told - place > wrong.until:
            return delivery
        return apply_misreport(delivery, wrong.how)

    def corrected(self, told: int) -> frozenset[int]:
        """The places that have been put right by now."""
        return frozenset(place for place, wrong in self.wrong.items() if told - place > wrong.until)

    def withheld(self, told: int) -> frozenset[int]:
        """The places that are not told yet, though later ones are."""
        return frozenset(
            place for place, until in self.late.items() if place < told <= place + until
        )


def apply_misreport(delivery: Delivery, how: MisreportKind) -> Delivery:
    """Another account of the same ball: who bowled to whom is right, what came of it is not."""
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
        other = 1 if delivery.runs_bat != 1 else 2
        return msgspec.structs.replace(delivery, runs_bat=other, extras=BallExtras())
    return msgspec.structs.replace(delivery, runs_bat=0, extras=BallExtras(), wickets=())


def random_mistakes(
    rng: random.Random,
    deliveries: int,
    share: float,
    ways: tuple[MisreportKind, ...] = DEFAULT_MISREPORTS,
) -> Mistakes:
    """Mistakes of each sort, with about so great a share of the deliveries."""

    def some() -> list[int]:
        return [place for place in range(deliveries) if rng.random() < share]

    return Mistakes(
        wrong={place: Misreport(rng.choice(ways), rng.randint(1, 6)) for place in some()},
        late={place: rng.randint(1, 3) for place in some()},
        twice=frozenset(some()),
    )
