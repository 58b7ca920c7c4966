"""The pages in the navigation, in groups. Add an entry to list another page."""

from dataclasses import dataclass
from typing import Final

from tally.console.links import HOME


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page in the navigation; its sub-pages mark the same entry as current."""

    path: str
    label: str
    icon: str

    def is_current(self, path: str) -> bool:
        return path == self.path or (self.path != HOME and path.startswith(f"{self.path}/"))


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Entries below a common title; the first group has none."""

    title: str
    entries: tuple[NavigationEntry, ...]


NAVIGATION: Final = (
    NavigationGroup("", (NavigationEntry(HOME, "Home", "space_dashboard"),)),
    NavigationGroup(
        "Backends",
        (
            NavigationEntry("/cricket", "Cricket", "sports_cricket"),
            NavigationEntry("/collect", "Collect", "view_in_ar"),
            NavigationEntry("/scoreboard", "Scoreboard", "leaderboard"),
            NavigationEntry("/devices", "Devices", "sensors"),
        ),
    ),
    NavigationGroup(
        "Operations",
        (
            NavigationEntry("/data", "Data", "table_chart"),
            NavigationEntry("/operations/jobs", "Jobs", "schedule"),
            NavigationEntry("/operations/logs", "Logs", "subject"),
            NavigationEntry("/operations/backups", "Backups", "save"),
            NavigationEntry("/operations/webhooks", "Webhooks", "webhook"),
            NavigationEntry("/operations/alarms", "Alarms", "notifications"),
            NavigationEntry("/operations/operators", "Operators", "group"),
        ),
    ),
)
