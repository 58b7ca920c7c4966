"""The world of the Strava simulator as bytes, so that a demo goes on after a restart where it stopped.

Kept are athletes, activities, what was granted with its newest tokens, and the subscription; not
what is under way: codes, deliveries, limits, older tokens.
"""

import msgspec

from tally.sim.strava.authorizations import Grant
from tally.sim.strava.model import Activity, Athlete
from tally.sim.strava.webhooks import Subscription
from tally.sim.strava.world import StravaWorld


class Snapshot(msgspec.Struct, frozen=True):
    athletes: list[Athlete]
    activities: list[Activity]
    grants: list[Grant]
    subscription: Subscription | None


def take(world: StravaWorld) -> bytes:
    return msgspec.json.encode(
        Snapshot(
            athletes=list(world.athletes.values()),
            activities=list(world.activities.values()),
            grants=world.authorizations.grants(),
            subscription=world.webhooks.subscription,
        )
    )


def restore(world: StravaWorld, content: bytes) -> None:
    """Make an empty world what it was; msgspec.DecodeError if these bytes are none of ours."""
    kept = msgspec.json.decode(content, type=Snapshot)
    world.athletes.update({athlete.id: athlete for athlete in kept.athletes})
    for activity in kept.activities:
        world.readmit(activity)
    for grant in kept.grants:
        world.authorizations.readmit(grant)
    if kept.subscription is not None:
        world.webhooks.resume(kept.subscription)
