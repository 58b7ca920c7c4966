"""Who watches a milestone sees its progress and its mints, whichever process applied the workout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tally.collect.api import render
from tally.collect.model import Award, Held, Milestone
from tally.collect.repository.main import CollectRepository
from tally.kit.change_poller import ChangePoller
from tally.kit.clock import Clock
from tally.kit.hub import Hub

MilestoneKey: TypeAlias = tuple[str, str]
MilestoneFollower: TypeAlias = ChangePoller[MilestoneKey, Held]


def topic_of(key: MilestoneKey) -> str:
    """The hub's topic of a milestone, by its owner and its id."""
    return f"collect:{key[0]}:{key[1]}"


def milestone_follower(main: CollectRepository, hub: Hub, clock: Clock) -> MilestoneFollower:
    """Looks for changes of the milestones that are watched here, and publishes them."""

    async def versions(keys: Sequence[MilestoneKey]) -> Mapping[MilestoneKey, int]:
        return await main.versions(keys)

    async def read(key: MilestoneKey) -> Held | None:
        return await main.milestone(*key)

    def tell(key: MilestoneKey, before: Held, after: Held) -> None:
        topic = topic_of(key)
        hub.publish(topic, "progress", render.progress_body(after.milestone))
        minted = [award for award in after.awards if award.part.index not in before.ledger]
        hub.publish_all(topic, "minted", (render.award_body(award) for award in minted))

    return ChangePoller(
        clock,
        versions=versions,
        read=read,
        version=lambda held: held.milestone.version,
        on_change=tell,
    )


@dataclass(frozen=True, slots=True)
class Announcer:
    """Has those who watch a milestone told at once of what this process has written."""

    follower: MilestoneFollower

    def __call__(self, milestone: Milestone, awards: Sequence[Award]) -> None:
        del (
            awards
        )  # read again with the milestone, together with what others may have minted meanwhile
        self.follower.refresh((milestone.user_id, milestone.milestone_id))
