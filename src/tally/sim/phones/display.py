"""How a fleet of phones does, for a person at a terminal: a table while it runs, and a line at the end."""

from collections import Counter

from rich.table import Table

from tally.sim.phones.fleet import PhoneFleet


def rows(fleet: PhoneFleet) -> list[tuple[str, str]]:
    """What there is to know, as words and figures."""
    phones = fleet.phones
    open_apps = sum(phone.app is not None for phone in phones)
    offline = sum(not phone.api.is_online for phone in phones)
    alerts = sum(phone.kit.alerted for phone in phones)
    notices = sum(phone.notified for phone in phones)
    kits = [phone.kit for phone in phones]
    calls, failures = (
        sum(phone.api.calls for phone in phones),
        sum(phone.api.failures for phone in phones),
    )
    late = sum(kit.outdated for kit in kits)
    lost = sum(kit.unknown + kit.unreadable for kit in kits)
    return [
        (
            "Phones",
            f"{len(phones):,} ({fleet.launched:,} launched, {open_apps:,} open, {offline:,} offline)",
        ),
        ("Live Activities", f"{len(fleet.running()):,} running"),
        (
            "Pushes received",
            f"{fleet.received:,} ({late:,} too late to be shown, {lost:,} for nothing that is there)",
        ),
        ("Alerts", f"{alerts:,} of Live Activities, {notices:,} notifications"),
        ("Calls to the server", f"{calls:,}, {failures:,} of them failed"),
        ("Newest state", newest(fleet)),
        (
            "Latest trouble",
            fleet.trouble
            or next((phone.api.last_error for phone in phones if phone.api.last_error), "none"),
        ),
    ]


def newest(fleet: PhoneFleet) -> str:
    """What most phones show, and how many of them are at the newest state."""
    running = fleet.running()
    if not running:
        return "none yet"
    counts = Counter((activity.match_id, activity.timestamp) for activity in running)
    latest = max(running, key=lambda activity: activity.timestamp)
    count = counts[latest.match_id, latest.timestamp]
    of_match = sum(1 for activity in running if activity.match_id == latest.match_id)
    lines = latest.content.get("lines")
    text = lines.get("lockScreen", "") if isinstance(lines, dict) else ""
    return f"{text or latest.match_id} (on {count:,} of {of_match:,})"


def rendered(fleet: PhoneFleet, url: str, seconds: float) -> Table:
    """The table that is drawn again and again."""
    table = Table("Phones", url, title=f"{seconds:,.0f} s", title_justify="right", show_lines=False)
    for name, value in rows(fleet):
        table.add_row(name, value)
    return table


def summary(fleet: PhoneFleet, seconds: float) -> str:
    """One paragraph for the end, and for those without a terminal."""
    return (
        "; ".join(f"{name.lower()}: {value}" for name, value in rows(fleet)) + f"; {seconds:,.1f} s"
    )
