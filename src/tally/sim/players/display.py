"""The statistics and the leaderboard of a player fleet for the terminal."""

from rich.console import Group
from rich.table import Table

from tally.sim.command_line import stats_table
from tally.sim.players.fleet import PlayerFleet
from tally.sim.players.scoreboard_client import LeaderboardPage


def player_rows(fleet: PlayerFleet, seconds: float) -> list[tuple[str, str]]:
    """Labels and values."""
    stats = fleet.scoreboard.stats
    rate = stats.games / seconds if seconds else 0.0
    return [
        ("Players", f"{len(fleet.players):,} ({fleet.registered_count:,} registered)"),
        ("Requests", f"{stats.requests:,}, {stats.failures:,} failed or throttled"),
        ("Games", f"{stats.games:,} ({rate:,.1f} per second), {stats.points:,} points"),
        ("Replayed tokens", f"{stats.replays:,}"),
        ("Cheating attempts", f"{stats.cheats:,}"),
        ("Violations", f"{stats.violations:,}"),
        ("Latency", stats.latency_text),
        ("Last error", stats.last_error or "none"),
    ]


def render_players(fleet: PlayerFleet, page: LeaderboardPage | None, seconds: float) -> Group:
    """The statistics and, if available, the top of the leaderboard."""
    rows = player_rows(fleet, seconds)
    table = stats_table("Players", fleet.scoreboard.url, rows, seconds)
    if page is None:
        return Group(table)
    top = Table(
        "Rank", "Player", "Score", title=f"{page.total_players:,} players", title_justify="right"
    )
    for row in page.leaderboard:
        top.add_row(str(row.rank), row.username, f"{row.score:,}")
    return Group(table, top)
