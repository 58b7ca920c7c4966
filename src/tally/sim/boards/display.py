"""The statistics of a board fleet for the terminal."""

from tally.sim.boards.fleet import BoardFleet


def board_rows(fleet: BoardFleet, seconds: float) -> list[tuple[str, str]]:
    """Labels and values."""
    stats = fleet.stats
    rate = stats.acknowledged / seconds if seconds else 0.0
    offline = len(fleet.offline)
    dropped = f", {fleet.dropped_count:,} dropped" if fleet.dropped_count else ""
    return [
        (
            "Boards",
            f"{len(fleet.boards):,} ({fleet.registered_count:,} registered, {offline:,} offline)",
        ),
        ("Readings measured", f"{fleet.measured_count:,}"),
        ("Sent", f"{stats.sent:,} in {stats.requests:,} requests, {stats.failures:,} failed"),
        ("Acknowledged", f"{stats.acknowledged:,} ({rate:,.1f} per second)"),
        ("Duplicates", f"{stats.duplicates:,}"),
        ("Rejected", f"{stats.rejected:,}"),
        ("Buffered", f"{fleet.buffered_count:,}{dropped}"),
        ("Latency", stats.latency_text),
        ("Last error", stats.last_error or "none"),
    ]
