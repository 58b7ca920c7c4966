"""Who watches a match sees its display state and its key events as they happen, whichever process sees to the match.

What there is to tell is read from the tables, where the pipeline writes it before it announces it:
at once after a change of this process, and once a second for the changes of others, however many
watch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from tally.cricket.model.events import KeyEvent
from tally.cricket.model.pipeline import pipeline_state
from tally.cricket.repository.repositories import Repositories
from tally.kit.change_poller import ChangePoller
from tally.kit.clock import Clock
from tally.kit.hub import Hub

# A match, and whose view of it.
MatchKey: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Watched:
    """A match as those who watch it were last told: its display state, and how many of its events."""

    content: Mapping[str, Any]
    told: tuple[KeyEvent, ...] = ()

    @property
    def mark(self) -> int:
        """Goes up with every change of what people see."""
        return int(self.content.get("timestamp", 0))


MatchFollower: TypeAlias = ChangePoller[MatchKey, Watched]


def topic_of(key: MatchKey) -> str:
    """The hub's topic of a match as one side, or nobody in particular, sees it."""
    return f"cricket:{key[0]}:{key[1]}"


def match_follower(tables: Repositories, hub: Hub, clock: Clock) -> MatchFollower:
    """Looks for changes of the matches that are watched here, and publishes them."""

    async def display_content(key: MatchKey) -> Mapping[str, Any] | None:
        cached = await tables.displays.get(*key, clock.seconds())
        return None if cached is None else msgspec.json.decode(cached.content, type=dict[str, Any])

    async def marks(keys: Sequence[MatchKey]) -> Mapping[MatchKey, int]:
        found = {key: await display_content(key) for key in keys}
        return {key: Watched(content).mark for key, content in found.items() if content is not None}

    async def read(key: MatchKey) -> Watched | None:
        content, record = await display_content(key), await tables.matches.get(key[0])
        return (
            None
            if content is None
            else Watched(
                content, pipeline_state(record).published_events if record is not None else ()
            )
        )

    def tell(key: MatchKey, before: Watched, after: Watched) -> None:
        topic, (match_id, view) = topic_of(key), key
        hub.publish_all(topic, "event", after.told[len(before.told) :])
        hub.publish(
            topic, "display", {"matchId": match_id, "teamId": view, "display": after.content}
        )

    return ChangePoller(
        clock, versions=marks, read=read, version=lambda watched: watched.mark, on_change=tell
    )


@dataclass(frozen=True, slots=True)
class MatchPublisher:
    """Has those who watch a match told at once of what this process has written."""

    follower: MatchFollower

    def publish(
        self, match_id: str, displays: Mapping[str, Mapping[str, Any]], events: Sequence[KeyEvent]
    ) -> None:
        del events  # read again with the state, together with what others may have told meanwhile
        for view in displays:
            self.follower.refresh((match_id, view))
