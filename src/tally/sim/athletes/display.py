"""Renders a fleet of athletes: the most active ones and the totals."""

from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tally.kit.clock import rfc3339
from tally.sim.athletes.athlete import AthleteStats, VirtualAthlete
from tally.sim.athletes.fleet import AthleteFleet

MAX_ROWS: Final = 15


def render_athletes(fleet: AthleteFleet, state: Any) -> Group:
    """The fleet now; `state` is that of the Strava simulator, None if it is unreachable."""
    table = Table(
        title=f"{len(fleet.athletes)} athletes, simulated time {rfc3339(fleet.clock.now())}"
    )
    for column in ("Athlete", "Sport"):
        table.add_column(column)
    for column in ("Activities", "Distance", "Elevation"):
        table.add_column(column, justify="right")
    table.add_column("Last event", no_wrap=True, max_width=60)
    most_active = sorted(fleet.athletes, key=lambda athlete: athlete.stats.distance, reverse=True)[
        :MAX_ROWS
    ]
    for athlete in most_active:
        table.add_row(*_row(athlete))
    if len(fleet.athletes) > MAX_ROWS:
        table.add_row("…", "", "", "", "", f"and {len(fleet.athletes) - MAX_ROWS} more")
    return Group(table, Text(athletes_line(fleet, state)))


def athletes_line(fleet: AthleteFleet, state: Any) -> str:
    """The totals on one line."""
    totals = total_stats(fleet)
    counts = (
        f"{totals.activities} activities, {totals.distance / 1000:,.0f} km, "
        f"{totals.elevation:,.0f} m elevation; "
        f"{totals.edits} edits, {totals.deletions} deletions, {totals.failures} failures"
    )
    if state is None:
        return f"{counts}; the Strava simulator does not respond"
    accepted, attempts = state["deliveries"]["accepted"], state["deliveries"]["attempts"]
    return f"{counts}; webhooks: {accepted} accepted in {attempts} attempts"


def total_stats(fleet: AthleteFleet) -> AthleteStats:
    stats = [athlete.stats for athlete in fleet.athletes]
    return AthleteStats(
        activities=sum(entry.activities for entry in stats),
        distance=sum(entry.distance for entry in stats),
        elevation=sum(entry.elevation for entry in stats),
        edits=sum(entry.edits for entry in stats),
        deletions=sum(entry.deletions for entry in stats),
        failures=sum(entry.failures for entry in stats),
    )


def _row(athlete: VirtualAthlete) -> tuple[str, ...]:
    stats = athlete.stats
    return (
        athlete.profile.name,
        athlete.profile.favourite.family.lower(),
        str(stats.activities),
        f"{stats.distance / 1000:.1f} km",
        f"{stats.elevation:.0f} m",
        stats.last_event,
    )
