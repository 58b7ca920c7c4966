"""SSE: the progress of a milestone (a state) and its mints (events), from the change log.

Mints are replayed exactly. The progress is sent on every connect and after every change.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tally.collect.api.schemas.collection import award_body, milestone_body, progress_body
from tally.collect.model.records import Award, DeletedMilestone, Milestone, MilestoneWithAwards
from tally.instance.change_feed import Change, ChangeFeed, ChangeLog, EventSource
from tally.kit.clock import Clock
from tally.kit.hub import Hub, encode_event

MilestoneChange: TypeAlias = Milestone | Award | DeletedMilestone


class MilestoneStreams:
    """Builds streams of milestones; `decode` returns what a change means for one.

    `partition` returns the partition of a user's items.
    """

    def __init__(
        self,
        log: ChangeLog,
        decode: Callable[[Change], MilestoneChange | None],
        partition: Callable[[str], str],
        hub: Hub,
        clock: Clock,
    ) -> None:
        self._decode = decode
        self._partition = partition
        self._hub = hub
        self._feed = ChangeFeed(log, self._publish, hub, clock)

    def source(
        self, milestone: Milestone, read: Callable[[], Awaitable[MilestoneWithAwards]]
    ) -> EventSource:
        """Return the stream of a milestone; its snapshot contains all awards."""

        def encode(change: Change) -> bytes:
            found = self._decode(change)
            if not isinstance(found, Award) or found.milestone_id != milestone.milestone_id:
                return b""
            return _encode_award(found, change)

        async def snapshot() -> object:
            return milestone_body(await read())

        async def state() -> tuple[str, object]:
            return "progress", progress_body((await read()).milestone)

        return EventSource(
            topic=_topic(milestone),
            feeds=(self._feed,),
            log=self._feed.log,
            partition=self._partition(milestone.user_id),
            encode=encode,
            snapshot=snapshot,
            state=state,
        )

    async def _publish(self, change: Change) -> None:
        found = self._decode(change)
        if found is None or not self._hub.is_active(topic := _topic(found)):
            return
        if isinstance(found, Award):
            self._hub.publish(topic, change.sequence, _encode_award(found, change))
        elif isinstance(found, Milestone):
            self._hub.publish_state(topic, "progress", progress_body(found))
        else:
            self._hub.end(topic, "deleted", {"milestoneId": found.milestone_id})


def _topic(found: MilestoneChange) -> str:
    return f"collect:{found.user_id}:{found.milestone_id}"


def _encode_award(award: Award, change: Change) -> bytes:
    return encode_event("minted", award_body(award), change.position)
