"""What a person sees of a fleet: the busiest athletes, and the sums beneath."""

from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tally.kit.clock import rfc3339
from tally.sim.athletes.athlete import AthleteStats, VirtualAthlete
from tally.sim.athletes.fleet import AthleteFleet

MAX_ROWS: Final = 15


def rendered(fleet: AthleteFleet, state: Any) -> Group:
    """The fleet now; `state` is what the Strava simulator says of itself, or None while it does not answer."""
    table = Table(
        title=f"{len(fleet.athletes)} athletes, {rfc3339(fleet.clock.now())} in their world"
    )
    for column in ("Athlete", "Sport"):
        table.add_column(column)
    for column in ("Times", "Distance", "Climb"):
        table.add_column(column, justify="right")
    table.add_column("Last", no_wrap=True, max_width=60)
    busiest = sorted(fleet.athletes, key=lambda athlete: athlete.diary.metres, reverse=True)[
        :MAX_ROWS
    ]
    for athlete in busiest:
        table.add_row(*_row(athlete))
    if len(fleet.athletes) > MAX_ROWS:
        table.add_row("…", "", "", "", "", f"and {len(fleet.athletes) - MAX_ROWS} more")
    return Group(table, Text(summary(fleet, state)))


def summary(fleet: AthleteFleet, state: Any) -> str:
    """The sums in one line."""
    sums = total(fleet)
    told = (
        f"{sums.activities} activities, {sums.metres / 1000:,.0f} km, {sums.climbed:,.0f} m up; "
        f"{sums.edits} edits, {sums.deletions} deletions, {sums.failures} failures"
    )
    if state is None:
        return f"{told}; the Strava simulator does not answer"
    deliveries = state["deliveries"]
    return (
        f"{told}; webhooks: {deliveries['accepted']} accepted in {deliveries['attempts']} attempts"
    )


def total(fleet: AthleteFleet) -> AthleteStats:
    diaries = [athlete.diary for athlete in fleet.athletes]
    return AthleteStats(
        activities=sum(diary.activities for diary in diaries),
        metres=sum(diary.metres for diary in diaries),
        climbed=sum(diary.climbed for diary in diaries),
        edits=sum(diary.edits for diary in diaries),
        deletions=sum(diary.deletions for diary in diaries),
        failures=sum(diary.failures for diary in diaries),
    )


def _row(athlete: VirtualAthlete) -> tuple[str, ...]:
    diary = athlete.diary
    return (
        athlete.character.name,
        athlete.character.favourite.family.lower(),
        str(diary.activities),
        f"{diary.metres / 1000:.1f} km",
        f"{diary.climbed:.0f} m",
        diary.last,
    )
