"""The statistics of a phone fleet for the terminal."""

from collections import Counter

from tally.sim.phones.fleet import PhoneFleet


def phone_rows(fleet: PhoneFleet) -> list[tuple[str, str]]:
    """Labels and values."""
    phones = fleet.phones
    kits = [phone.activity_kit for phone in phones]
    running_apps = sum(phone.app is not None for phone in phones)
    offline = sum(not phone.api.is_online for phone in phones)
    launched = f"{fleet.launched_count:,} launched, {running_apps:,} open, {offline:,} offline"
    late = sum(kit.outdated for kit in kits)
    unmatched = sum(kit.unknown + kit.malformed for kit in kits)
    alerts = sum(kit.alert_count for kit in kits)
    notifications = sum(phone.notification_count for phone in phones)
    calls = sum(phone.api.calls for phone in phones)
    failures = sum(phone.api.failures for phone in phones)
    errors = (phone.api.last_error for phone in phones if phone.api.last_error)
    return [
        ("Phones", f"{len(phones):,} ({launched})"),
        ("Live Activities", f"{len(fleet.running_activities()):,} running"),
        (
            "Pushes received",
            f"{fleet.received_count:,} ({late:,} outdated, {unmatched:,} without an activity)",
        ),
        ("Alerts", f"{alerts:,} of Live Activities, {notifications:,} notifications"),
        ("API calls", f"{calls:,}, {failures:,} failed"),
        ("Latest state", latest_state(fleet)),
        ("Last error", fleet.last_error or next(errors, "none")),
    ]


def latest_state(fleet: PhoneFleet) -> str:
    """The newest content and the number of phones that show it."""
    running = fleet.running_activities()
    if not running:
        return "none yet"
    counts = Counter((activity.match_id, activity.timestamp) for activity in running)
    latest = max(running, key=lambda activity: activity.timestamp)
    count = counts[latest.match_id, latest.timestamp]
    total = sum(activity.match_id == latest.match_id for activity in running)
    lines = latest.content.get("lines")
    text = lines.get("lockScreen", "") if isinstance(lines, dict) else ""
    return f"{text or latest.match_id} (on {count:,} of {total:,})"
