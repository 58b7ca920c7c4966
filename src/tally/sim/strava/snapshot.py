"""The world of the Strava simulator as bytes, so that a demo goes on after a restart where it stopped.

Kept are athletes, activities, what was granted with its newest tokens, and the subscription; not
what is under way: codes, deliveries, limits, older tokens.
"""

import msgspec

from tally.sim.strava.authorizations import StravaGrant
from tally.sim.strava.core import StravaCore
from tally.sim.strava.model import StravaActivity, StravaAthlete
from tally.sim.strava.webhooks import WebhookSubscription


class StravaSnapshot(msgspec.Struct, frozen=True):
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
    """Make an empty world what it was; msgspec.DecodeError if these bytes are none of ours."""
    kept = msgspec.json.decode(content, type=StravaSnapshot)
    core.athletes.update({athlete.id: athlete for athlete in kept.athletes})
    for activity in kept.activities:
        core.readmit(activity)
    for grant in kept.grants:
        core.authorizations.readmit(grant)
    if kept.subscription is not None:
        core.webhooks.resume(kept.subscription)
