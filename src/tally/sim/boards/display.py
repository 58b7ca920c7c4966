"""How a fleet does, for a person at a terminal: a table while it runs, and a line at the end."""

from rich.table import Table

from tally.sim.boards.fleet import BoardFleet


def rows(fleet: BoardFleet, seconds: float) -> list[tuple[str, str]]:
    """What there is to know, as words and figures."""
    stats = fleet.stats
    rate = stats.acknowledged / seconds if seconds else 0.0
    return [
        (
            "Boards",
            f"{len(fleet.boards):,} ({fleet.registered:,} registered, {len(fleet.offline):,} offline)",
        ),
        ("Readings measured", f"{fleet.measured:,}"),
        (
            "sent",
            f"{stats.sent:,} in {stats.requests:,} requests, {stats.failures:,} of them failed",
        ),
        ("acknowledged", f"{stats.acknowledged:,} ({rate:,.1f} a second)"),
        ("duplicates", f"{stats.duplicates:,}"),
        ("rejected", f"{stats.rejected:,}"),
        ("buffered", f"{fleet.buffered:,}" + (f", {fleet.lost:,} lost" if fleet.lost else "")),
        (
            "Answers took",
            f"p50 {stats.quantile(0.5) * 1000:,.1f} ms, p99 {stats.quantile(0.99) * 1000:,.1f} ms",
        ),
        ("Latest trouble", stats.last_error or "none"),
    ]


def rendered(fleet: BoardFleet, url: str, seconds: float) -> Table:
    """The table that is drawn again and again."""
    table = Table("Boards", url, title=f"{seconds:,.0f} s", title_justify="right", show_lines=False)
    for name, value in rows(fleet, seconds):
        table.add_row(name, value)
    return table


def summary(fleet: BoardFleet, seconds: float) -> str:
    """One paragraph for the end, and for those without a terminal."""
    return (
        "; ".join(f"{name.lower()}: {value}" for name, value in rows(fleet, seconds))
        + f"; {seconds:,.1f} s"
    )
