"""What a person sees of the simulator: the matches, how they stand, and how often somebody asks."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tally.sim.sportmonks.broadcast import Broadcast
from tally.sim.sportmonks.simulator import SportMonks


def rendered(sportmonks: SportMonks) -> Group:
    table = Table(title=f"{len(sportmonks.broadcasts)} matches at {sportmonks.api}")
    for column in ("Id", "Match", "Status", "Score", "Last ball"):
        table.add_column(column)
    for broadcast in sportmonks.broadcasts.values():
        table.add_row(*_row(broadcast))
    return Group(table, Text(summary(sportmonks)))


def summary(sportmonks: SportMonks) -> str:
    """The sums in one line."""
    over = sum(broadcast.standing.is_over for broadcast in sportmonks.broadcasts.values())
    polls = sportmonks.faults.count("/api/v2.0/livescores")
    requests = len(sportmonks.faults.seen)
    return f"{over} of {len(sportmonks.broadcasts)} matches are over; {requests} requests, {polls} of them for live scores"


def _row(broadcast: Broadcast) -> tuple[str, ...]:
    fixture = broadcast.fixture()
    home, away = broadcast.match.teams
    scores = "; ".join(
        f"{run['score']}/{run['wickets']} ({run['overs']})" for run in fixture["runs"]
    )
    last = fixture["balls"][-1] if fixture["balls"] else None
    told = (
        ""
        if last is None
        else f"{last['ball']} {last['bowler']['fullname']} to {last['batsman']['fullname']}: {last['score']['name']}"
    )
    return (
        str(broadcast.match.id),
        f"{home} v {away}",
        fixture["note"] or fixture["status"],
        scores,
        told,
    )
