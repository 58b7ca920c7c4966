"""How those who watch the page of a match are told: one topic of the hub for each view of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tally.cricket.model.events import KeyEvent
from tally.kit.hub import Hub


def topic_of(match_id: str, view: str) -> str:
    """The hub's topic of a match as one side, or nobody in particular, sees it."""
    return f"cricket:{match_id}:{view}"


@dataclass(frozen=True, slots=True)
class Announcer:
    """Tells those who watch a match what they see of it now, and what has just happened."""

    hub: Hub

    def __call__(self, match_id: str, displays: Mapping[str, Mapping[str, Any]], events: Sequence[KeyEvent]) -> None:
        for view, content in displays.items():
            topic = topic_of(match_id, view)
            self.hub.publish_all(topic, "event", events)
            self.hub.publish(topic, "display", {"matchId": match_id, "teamId": view, "display": content})
