"""Serializes the state of the Strava simulator, so that a demo survives a restart.

A snapshot holds athletes, activities, current grants and the subscription. Codes, deliveries in
flight, rate limits and older tokens are lost.
"""

import msgspec

from tally.sim.strava.authorizations import StravaGrant
from tally.sim.strava.core import StravaCore
from tally.sim.strava.model import StravaActivity, StravaAthlete
from tally.sim.strava.webhooks import WebhookSubscription


class StravaSnapshot(msgspec.Struct, frozen=True):
    """The persistent state."""

    athletes: list[StravaAthlete]
    activities: list[StravaActivity]
    grants: list[StravaGrant]
    subscription: WebhookSubscription | None


def dump_snapshot(core: StravaCore) -> bytes:
    return msgspec.json.encode(
        StravaSnapshot(
            athletes=list(core.athletes.values()),
            activities=list(core.activities.values()),
            grants=core.authorizations.grants(),
            subscription=core.webhooks.subscription,
        )
    )


def load_snapshot(core: StravaCore, content: bytes) -> None:
    """Restore an empty simulator; msgspec.DecodeError if `content` is not a snapshot."""
    snapshot = msgspec.json.decode(content, type=StravaSnapshot)
    core.athletes.update({athlete.id: athlete for athlete in snapshot.athletes})
    for activity in snapshot.activities:
        core.restore(activity)
    for grant in snapshot.grants:
        core.authorizations.restore(grant)
    if snapshot.subscription is not None:
        core.webhooks.resume(snapshot.subscription)
