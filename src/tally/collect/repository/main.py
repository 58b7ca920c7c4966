"""The repository of the table `CommitCollect`, composed of one class per kind of item."""

from dataclasses import dataclass
from typing import ClassVar

from tally.collect.repository.connections import Connections
from tally.collect.repository.copies import Copies
from tally.collect.repository.deletions import Deletions
from tally.collect.repository.exports import Exports
from tally.collect.repository.inbox import Inbox
from tally.collect.repository.milestones import Milestones
from tally.collect.repository.models import Models
from tally.collect.repository.parked_events import ParkedEvents
from tally.collect.repository.profiles import Profiles
from tally.collect.repository.subscriptions import Subscriptions
from tally.collect.repository.syncs import Syncs
from tally.collect.repository.table import COMMIT_COLLECT
from tally.collect.repository.workout_indexing import WorkoutIndexing
from tally.collect.repository.workouts import Workouts
from tally.store.store import Store


@dataclass(frozen=True, slots=True)
class CollectRepository(
    Profiles,
    Connections,
    Workouts,
    Copies,
    WorkoutIndexing,
    Milestones,
    Models,
    Inbox,
    ParkedEvents,
    Subscriptions,
    Syncs,
    Deletions,
    Exports,
):
    """All access patterns of the main table."""

    store: Store
    tables: ClassVar = (COMMIT_COLLECT,)
