"""The athletes, what they do, and what the application hears of it.

An event goes out if the athlete allows the application to read activities: on creation, on
deletion, and when the title, the type or the privacy changed (not when a distance was corrected,
just as with the real service). To an application that may not read private activities, one that
becomes private looks deleted, and one that becomes public, created.
"""

import random
from typing import Any, Final

import msgspec

from tally.kit.clock import Clock
from tally.sim.fault_injection import FaultInjector
from tally.sim.strava.authorizations import AuthorizationStore
from tally.sim.strava.model import StravaActivity, StravaAthlete, StravaEvent, not_found
from tally.sim.strava.rate_limits import RateLimits
from tally.sim.strava.webhooks import WebhookSender

FIRST_ATHLETE: Final = 100_001
FIRST_ACTIVITY: Final = 10_000_000_001


class OAuthApplication(msgspec.Struct, frozen=True):
    """The application that is registered; with no domain of its own, it must be on this machine."""

    client_id: int = 54321
    client_secret: str = "made-up-strava-secret"  # noqa: S105  good for nothing outside this simulator
    callback_domain: str = "localhost"


class Consent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered without asking: who, and which of the scopes (all, unless some are named), or no."""

    athlete_id: int
    scope: str | None = None
    denied: bool = False


class StravaCore:
    """What is known and what happens; HTTP is not its business."""

    def __init__(
        self,
        clock: Clock,
        *,
        application: OAuthApplication | None = None,
        rng: random.Random | None = None,
        limits: RateLimits | None = None,
        subscription_id: int = 1,
    ) -> None:
        self.clock = clock
        self.application = application or OAuthApplication()
        rng = rng or random.SystemRandom()
        self.authorizations = AuthorizationStore(clock, rng)
        self.limits = limits or RateLimits(clock)
        self.webhooks = WebhookSender(clock, rng, subscription_id)
        self.faults = FaultInjector()
        self.athletes: dict[int, StravaAthlete] = {}
        self.activities: dict[int, StravaActivity] = {}
        # The oldest are forgotten where there would be more, which nobody is told.
        self.most_activities: int | None = None
        self.auto_approve: Consent | None = None
        self.url = ""
        self._activity_ids = FIRST_ACTIVITY

    def add_athlete(
        self, firstname: str, lastname: str = "", athlete_id: int | None = None
    ) -> StravaAthlete:
        number = athlete_id or max(self.athletes, default=FIRST_ATHLETE - 1) + 1
        self.athletes[number] = StravaAthlete(number, firstname, lastname)
        return self.athletes[number]

    def record(
        self,
        athlete_id: int,
        sport_type: str = "Ride",
        distance: float = 10_000.0,
        *,
        start: int | None = None,
        name: str | None = None,
        **fields: Any,
    ) -> StravaActivity:
        """An athlete finished something; `fields` are those of `StravaActivity`.

        It starts now unless `start` says otherwise.
        """
        if athlete_id not in self.athletes:
            raise not_found("Athlete")
        number, self._activity_ids = self._activity_ids, self._activity_ids + 1
        begun = self.clock.seconds() if start is None else start
        about: dict[str, Any] = {
            "name": name or sport_type,
            "sport_type": sport_type,
            "start": begun,
            "distance": float(distance),
        }
        activity = StravaActivity(id=number, athlete_id=athlete_id, **(about | fields))
        self._keep(activity)
        if self._is_visible(activity):
            self._tell(activity, "create")
        return activity

    def edit(self, activity_id: int, **fields: Any) -> StravaActivity:
        """An athlete changed something about an activity."""
        before = self.activity(activity_id)
        after = msgspec.structs.replace(before, **fields)
        self.activities[activity_id] = after
        was, is_now = self._is_visible(before), self._is_visible(after)
        if was and is_now:
            updates = _updates(before, after)
            if updates:
                self._tell(after, "update", updates)
        elif was != is_now:
            self._tell(after, "create" if is_now else "delete")
        return after

    def delete(self, activity_id: int) -> None:
        activity = self.activity(activity_id)
        is_told = self._is_visible(activity)
        del self.activities[activity_id]
        if is_told:
            self._tell(activity, "delete")

    def activity(self, activity_id: int) -> StravaActivity:
        if activity_id not in self.activities:
            raise not_found("Activity")
        return self.activities[activity_id]

    def readmit(self, activity: StravaActivity) -> None:
        """Let an activity be there that was made before a restart; nobody is told."""
        self._keep(activity)
        self._activity_ids = max(self._activity_ids, activity.id + 1)

    def deauthorize(self, athlete_id: int) -> None:
        """The permission is taken back, by the athlete or by the application; the application is told."""
        if self.authorizations.revoke(athlete_id):
            self._publish("athlete", athlete_id, athlete_id, "update", {"authorized": "false"})

    def _keep(self, activity: StravaActivity) -> None:
        self.activities[activity.id] = activity
        while self.most_activities is not None and len(self.activities) > self.most_activities:
            del self.activities[next(iter(self.activities))]

    def _is_visible(self, activity: StravaActivity) -> bool:
        granted = self.authorizations.granted(activity.athlete_id)
        if granted is None or not granted.reads_activities:
            return False
        return granted.reads_private_activities or not activity.private

    def _tell(
        self, activity: StravaActivity, aspect: str, updates: dict[str, str] | None = None
    ) -> None:
        self._publish("activity", activity.id, activity.athlete_id, aspect, updates or {})

    def _publish(
        self, kind: str, object_id: int, owner_id: int, aspect: str, updates: dict[str, str]
    ) -> None:
        subscription = self.webhooks.subscription
        if subscription is None:
            return
        self.webhooks.publish(
            StravaEvent(
                aspect_type=aspect,
                event_time=self.clock.seconds(),
                object_id=object_id,
                object_type=kind,
                owner_id=owner_id,
                subscription_id=subscription.id,
                updates=updates,
            )
        )


def _updates(before: StravaActivity, after: StravaActivity) -> dict[str, str]:
    """What of a change is told, in the words of the webhook."""
    told = {}
    if before.name != after.name:
        told["title"] = after.name
    if before.sport_type != after.sport_type:
        told["type"] = after.type
    if before.private != after.private:
        told["private"] = str(after.private).lower()
    return told
