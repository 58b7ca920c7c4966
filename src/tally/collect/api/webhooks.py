"""The events of outgoing webhooks, from the change log of milestones and awards."""

from collections.abc import Callable, Iterator

from msgspec import to_builtins

from tally.collect.api.events import MilestoneChange
from tally.collect.api.schemas.collection import award_body, progress_body
from tally.collect.model.records import Award, Milestone
from tally.instance.change_feed import Change, ChangeLog
from tally.instance.webhooks.sources import OutgoingEvent, WebhookSource


def milestone_source(
    log: ChangeLog, decode: Callable[[Change], MilestoneChange | None]
) -> WebhookSource:
    """Return the source of milestones; `decode` returns what a change means for one."""

    def events(change: Change) -> Iterator[OutgoingEvent]:
        found = decode(change)
        if found is None:
            return
        owner = {"userId": found.user_id, "milestoneId": found.milestone_id}
        if isinstance(found, Award):
            data = {**owner, "award": to_builtins(award_body(found))}
            yield OutgoingEvent("milestone.minted", found.user_id, data)
        elif isinstance(found, Milestone):
            data = {**owner, "progress": to_builtins(progress_body(found))}
            yield OutgoingEvent("milestone.updated", found.user_id, data)
        else:
            yield OutgoingEvent("milestone.deleted", found.user_id, owner)

    return WebhookSource(
        name="collect",
        log=log,
        kinds={
            "milestone.minted": "A part of a milestone was minted.",
            "milestone.updated": "A milestone was created, or its progress changed.",
            "milestone.deleted": "A milestone was deleted.",
        },
        events=events,
    )
