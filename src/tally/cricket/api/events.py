"""Publishes changes of matches to SSE subscribers, whichever process made the change.

The pipeline persists a change before it publishes it, so subscribers are served from the tables:
immediately after a change of this process, and within a second after a change of another one. One
poll per second covers all matches with subscribers in this process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tally.cricket.model.events import KeyEvent
from tally.cricket.service.queries.display import DisplayService, DisplaySnapshot
from tally.kit.change_poller import ChangePoller
from tally.kit.clock import Clock
from tally.kit.hub import Hub

# The match id and the view: a team id or "neutral".
MatchKey: TypeAlias = tuple[str, str]
MatchPoller: TypeAlias = ChangePoller[MatchKey, DisplaySnapshot]


def match_topic(key: MatchKey) -> str:
    """Return the hub topic for a view of a match."""
    return f"cricket:{key[0]}:{key[1]}"


def match_poller(displays: DisplayService, hub: Hub, clock: Clock) -> MatchPoller:
    """Return a poller that publishes changes of watched matches to the hub."""

    async def versions(keys: Sequence[MatchKey]) -> Mapping[MatchKey, int]:
        contents = {key: await displays.cached_content(*key) for key in keys}
        return {
            key: DisplaySnapshot(content).version
            for key, content in contents.items()
            if content is not None
        }

    async def read(key: MatchKey) -> DisplaySnapshot | None:
        return await displays.snapshot(*key)

    def publish(key: MatchKey, before: DisplaySnapshot, after: DisplaySnapshot) -> None:
        topic, (match_id, view) = match_topic(key), key
        hub.publish_all(topic, "event", after.events[len(before.events) :])
        hub.publish(
            topic, "display", {"matchId": match_id, "teamId": view, "display": after.content}
        )

    return ChangePoller(
        clock,
        versions=versions,
        read=read,
        version=lambda snapshot: snapshot.version,
        on_change=publish,
    )


@dataclass(frozen=True, slots=True)
class MatchPublisher:
    """Implements the `Publisher` port: refreshes the subscribers of a match immediately."""

    poller: MatchPoller

    def publish(
        self, match_id: str, displays: Mapping[str, Mapping[str, Any]], events: Sequence[KeyEvent]
    ) -> None:
        del events  # The poller reads them with the state, including those of other processes.
        for view in displays:
            self.poller.refresh((match_id, view))
