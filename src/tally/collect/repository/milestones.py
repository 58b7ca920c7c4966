"""Items `MILESTONE#{id}` and `MILESTONE#{id}#AWARD#{part}`: milestones and their award ledgers."""

from collections.abc import Sequence

from tally.collect.model.records import (
    MAX_KEPT_MILESTONES,
    MAX_PARTS,
    Award,
    Milestone,
    MilestoneWithAwards,
)
from tally.collect.repository.milestone_items import award_item, milestone_item, with_awards
from tally.collect.repository.table import (
    COMMIT_COLLECT,
    MILESTONE_PREFIX,
    PROFILE,
    award_sk,
    item_key,
    milestone_sk,
    transact_if_met,
    user_pk,
)
from tally.store.access import (
    DeleteItem,
    GetItem,
    PutItem,
    Query,
    TransactWriteItems,
    UpdateItem,
    access,
    param,
)
from tally.store.api import Put, Update
from tally.store.errors import ConditionFailed, TransactionCancelled
from tally.store.expressions import Condition, F, exists, not_exists
from tally.store.store import Store

# The largest number of milestones, each with a ledger of 99 awards.
MAX_MILESTONE_ITEMS = MAX_KEPT_MILESTONES * (MAX_PARTS + 1)


def _has_version(version: int) -> Condition:
    return F("version") == version


_KEY = item_key(user_pk(param("userId")), milestone_sk(param("milestoneId")))
_OF_USER = F("PK") == user_pk(param("userId"))


class Milestones:
    """Access patterns of milestones with their ledgers."""

    __slots__ = ()
    store: Store

    @access(
        "Get number of created milestones",
        GetItem(
            key=item_key(user_pk(param("userId")), PROFILE), project=("PK", "milestonesCreated")
        ),
        table=COMMIT_COLLECT,
        by="user",
        trigger="POST /milestones",
        frequency="Rare",
    )
    async def milestones_created(self, user_id: str) -> int | None:
        """Return how many milestones the user has created; None if there is no account."""
        item = await self.store.get(
            COMMIT_COLLECT,
            item_key(user_pk(user_id), PROFILE),
            project=("PK", "milestonesCreated"),
            consistent=True,
        )
        return None if item is None else int(item.get("milestonesCreated", 0))

    @access(
        "Create milestone",
        TransactWriteItems(
            PutItem(key=_KEY, condition=not_exists("PK")),
            UpdateItem(
                key=item_key(user_pk(param("userId")), PROFILE),
                condition=(
                    exists("PK") & (F("milestonesCreated") == param("read")),
                    exists("PK") & not_exists("milestonesCreated"),
                ),
            ),
        ),
        table=COMMIT_COLLECT,
        by="user",
        trigger="POST /milestones",
        frequency="Rare",
    )
    async def create_milestone(self, milestone: Milestone, created_before: int) -> bool:
        """Create a milestone, one at a time per user, so that none exceeds the limit.

        Return False if another one was created since, or the user has no profile (any more).
        """
        counter = F("milestonesCreated")
        is_current = (
            counter == created_before if created_before else not_exists("milestonesCreated")
        )
        writes = (
            Put(COMMIT_COLLECT, milestone_item(milestone), condition=not_exists("PK")),
            Update(
                COMMIT_COLLECT,
                item_key(user_pk(milestone.user_id), PROFILE),
                (counter.set(created_before + 1),),
                condition=exists("PK") & is_current,
            ),
        )
        return await transact_if_met(self.store, writes)

    @access(
        "List milestones with awards",
        Query(where=_OF_USER & F("SK").begins_with(MILESTONE_PREFIX)),
        table=COMMIT_COLLECT,
        by="both",
        trigger="GET /milestones, GET /me, every event",
        frequency="Per event",
        bound=MAX_MILESTONE_ITEMS,
    )
    async def milestones(self, user_id: str) -> list[MilestoneWithAwards]:
        """Return all milestones of a user, oldest first."""
        where = (F("PK") == user_pk(user_id)) & F("SK").begins_with(MILESTONE_PREFIX)
        return with_awards(
            [item async for item in self.store.items(COMMIT_COLLECT, where, consistent=True)]
        )

    @access(
        "Get milestone with awards",
        Query(where=_OF_USER & F("SK").begins_with(milestone_sk(param("milestoneId")))),
        table=COMMIT_COLLECT,
        by="user",
        trigger="GET /milestones/{id}, POST /milestones/{id}/recompute",
        frequency="Per request",
        bound=100,
    )
    async def milestone(self, user_id: str, milestone_id: str) -> MilestoneWithAwards | None:
        where = (F("PK") == user_pk(user_id)) & F("SK").begins_with(milestone_sk(milestone_id))
        found = with_awards(
            [item async for item in self.store.items(COMMIT_COLLECT, where, consistent=True)]
        )
        return found[0] if found else None

    @access(
        "Write milestone with new awards",
        TransactWriteItems(
            PutItem(key=_KEY, condition=_has_version(param("read"))),
            PutItem(
                key=item_key(
                    user_pk(param("userId")), award_sk(param("milestoneId"), param("part"))
                ),
                condition=not_exists("PK"),
                requests=MAX_PARTS,
            ).optional(),
        ),
        table=COMMIT_COLLECT,
        by="system",
        trigger="Every event that moves a milestone, POST /milestones/{id}/recompute and archive,"
        " PATCH /milestones/{id}",
        frequency="Per event",
    )
    async def mint(self, milestone: Milestone, awards: Sequence[Award]) -> bool:
        """Write a milestone and its new awards atomically. Return False if it has changed."""
        writes = [
            Put(
                COMMIT_COLLECT,
                milestone_item(milestone),
                condition=_has_version(milestone.version - 1),
            ),
            *(
                Put(COMMIT_COLLECT, award_item(award), condition=not_exists("PK"))
                for award in awards
            ),
        ]
        try:
            await self.store.transact(writes)
        except TransactionCancelled:
            return False  # another run was faster; the caller reads again
        return True

    @access(
        "Delete milestone",
        DeleteItem(key=_KEY, condition=_has_version(param("read"))),
        table=COMMIT_COLLECT,
        by="user",
        trigger="DELETE /milestones/{id}",
        frequency="Rare",
    )
    async def delete_milestone(self, milestone: Milestone) -> bool:
        """Delete a milestone that had no awards when it was read. Return False if it has changed.

        Every mint changes the version, so that no award outlives its milestone.
        """
        key = item_key(user_pk(milestone.user_id), milestone_sk(milestone.milestone_id))
        try:
            await self.store.delete(COMMIT_COLLECT, key, condition=_has_version(milestone.version))
        except ConditionFailed:
            return False
        return True
