"""How the players do, for a person at a terminal: figures and the board while they play, and a line at the end."""

from rich.console import Group
from rich.table import Table

from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.scoreboard_client import LeaderboardPage


def rows(fleet: PlayerFleet, seconds: float) -> list[tuple[str, str]]:
    """What there is to know, as words and figures."""
    stats = fleet.server.stats
    rate = stats.trades / seconds if seconds else 0.0
    return [
        ("Players", f"{len(fleet.players):,} ({fleet.signed_up:,} signed up)"),
        ("Requests", f"{stats.requests:,}, {stats.failures:,} of them failed or had to wait"),
        ("Games", f"{stats.trades:,} ({rate:,.1f} a second), {stats.points:,} points"),
        ("Tokens sent again", f"{stats.replays:,}"),
        ("Attempts to cheat", f"{stats.cheats:,}"),
        ("Promises broken", f"{stats.broken:,}"),
        (
            "Answers took",
            f"p50 {stats.quantile(0.5) * 1000:,.1f} ms, p99 {stats.quantile(0.99) * 1000:,.1f} ms",
        ),
        ("Latest trouble", stats.last_error or "none"),
    ]


def rendered(fleet: PlayerFleet, board: LeaderboardPage | None, seconds: float) -> Group:
    """What is drawn again and again."""
    table = Table(
        "Players",
        fleet.server.url,
        title=f"{seconds:,.0f} s",
        title_justify="right",
        show_lines=False,
    )
    for name, value in rows(fleet, seconds):
        table.add_row(name, value)
    if board is None:
        return Group(table)
    top = Table(
        "Rank",
        "Player",
        "Score",
        title=f"{board.total_players:,} on the board",
        title_justify="right",
    )
    for place in board.leaderboard:
        top.add_row(str(place.rank), place.username, f"{place.score:,}")
    return Group(table, top)


def summary(fleet: PlayerFleet, seconds: float) -> str:
    """One paragraph for the end, and for those without a terminal."""
    return (
        "; ".join(f"{name.lower()}: {value}" for name, value in rows(fleet, seconds))
        + f"; {seconds:,.1f} s"
    )
