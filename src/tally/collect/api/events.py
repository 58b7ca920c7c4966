"""SSE events: publishes changes and deletions of milestones, whichever process made them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tally.collect.api.schemas.collection import award_body, progress_body
from tally.collect.model.records import Award, Milestone, MilestoneWithAwards
from tally.kit.change_poller import ChangePoller
from tally.kit.clock import Clock
from tally.kit.hub import Hub

MilestoneKey: TypeAlias = tuple[str, str]
MilestonePoller: TypeAlias = ChangePoller[MilestoneKey, MilestoneWithAwards]
ReadVersions: TypeAlias = Callable[[Sequence[MilestoneKey]], Awaitable[Mapping[MilestoneKey, int]]]
ReadMilestone: TypeAlias = Callable[[str, str], Awaitable[MilestoneWithAwards | None]]


def milestone_topic(key: MilestoneKey) -> str:
    """Return the hub topic for a milestone, identified by user id and milestone id."""
    return f"collect:{key[0]}:{key[1]}"


def milestone_poller(
    versions: ReadVersions, read_milestone: ReadMilestone, hub: Hub, clock: Clock
) -> MilestonePoller:
    """Build the poller that detects changes of subscribed milestones and publishes them."""

    async def read(key: MilestoneKey) -> MilestoneWithAwards | None:
        return await read_milestone(*key)

    def publish_change(
        key: MilestoneKey, before: MilestoneWithAwards, after: MilestoneWithAwards
    ) -> None:
        topic = milestone_topic(key)
        hub.publish(topic, "progress", progress_body(after.milestone))
        minted = [award for award in after.awards if award.part.index not in before.ledger]
        hub.publish_all(topic, "minted", (award_body(award) for award in minted))

    def end_streams(key: MilestoneKey) -> None:
        hub.end(milestone_topic(key), "deleted", {"milestoneId": key[1]})

    return ChangePoller(
        clock,
        versions=versions,
        read=read,
        version=lambda current: current.milestone.version,
        on_change=publish_change,
        on_removed=end_streams,
    )


@dataclass(frozen=True, slots=True)
class MilestonePublisher:
    """Publishes changes written by this process without waiting for the next poll."""

    poller: MilestonePoller

    def publish(self, milestone: Milestone, awards: Sequence[Award]) -> None:
        del awards  # the poller reads them again, with those that other processes minted
        self.poller.refresh((milestone.user_id, milestone.milestone_id))
