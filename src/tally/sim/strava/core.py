"""The state and rules of the Strava simulator, without HTTP.

If the athlete authorized reading activities, Strava sends an event when an activity is created or
deleted, or its title, type or privacy changes; other changes send none. An application that may
not read private activities sees a change to private as a deletion and a change to public as a
creation.
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
    """The registered application. Redirect URIs on this machine are always allowed."""

    client_id: int = 54321
    client_secret: str = "made-up-strava-secret"  # noqa: S105  valid only in this simulator
    callback_domain: str = "localhost"


class Consent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An automatic consent: the athlete and the granted scopes (None: all), or a denial."""

    athlete_id: int
    scope: str | None = None
    denied: bool = False


class StravaCore:
    """Athletes, activities, authorizations and webhooks."""

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
        # Beyond this number the oldest activities are removed, without an event.
        self.max_activities: int | None = None
        self.auto_approve: Consent | None = None
        # The owner of the application has no subscription: every call fails with 403.
        self.is_inactive = False
        self.url = ""
        self._next_activity_id = FIRST_ACTIVITY
        # Dictionaries as ordered sets, so that a list needs no search of all activities.
        self._ids_by_athlete: dict[int, dict[int, None]] = {}

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
        """Record an activity; `fields` are those of `StravaActivity`, `start` defaults to now."""
        if athlete_id not in self.athletes:
            raise not_found("Athlete")
        activity_id, self._next_activity_id = self._next_activity_id, self._next_activity_id + 1
        started_at = self.clock.seconds() if start is None else start
        basics: dict[str, Any] = {
            "name": name or sport_type,
            "sport_type": sport_type,
            "start": started_at,
            "distance": float(distance),
        }
        activity = StravaActivity(id=activity_id, athlete_id=athlete_id, **(basics | fields))
        self._add(activity)
        if self._is_visible(activity):
            self._publish_activity(activity, "create")
        return activity

    def edit(self, activity_id: int, **fields: Any) -> StravaActivity:
        """Edit an activity."""
        before = self.activity(activity_id)
        after = msgspec.structs.replace(before, **fields)
        self.activities[activity_id] = after
        was_visible, is_visible = self._is_visible(before), self._is_visible(after)
        if was_visible and is_visible:
            updates = _updates(before, after)
            if updates:
                self._publish_activity(after, "update", updates)
        elif was_visible != is_visible:
            self._publish_activity(after, "create" if is_visible else "delete")
        return after

    def delete(self, activity_id: int) -> None:
        activity = self.activity(activity_id)
        was_visible = self._is_visible(activity)
        self._remove(activity)
        if was_visible:
            self._publish_activity(activity, "delete")

    def activity(self, activity_id: int) -> StravaActivity:
        if activity_id not in self.activities:
            raise not_found("Activity")
        return self.activities[activity_id]

    def activities_of(self, athlete_id: int) -> list[StravaActivity]:
        return [self.activities[number] for number in self._ids_by_athlete.get(athlete_id, {})]

    def restore(self, activity: StravaActivity) -> None:
        """Restore an activity from a snapshot, without an event."""
        self._add(activity)
        self._next_activity_id = max(self._next_activity_id, activity.id + 1)

    def deauthorize(self, athlete_id: int) -> None:
        """Revoke the authorization and send the deauthorization event."""
        if self.authorizations.revoke(athlete_id):
            self._publish("athlete", athlete_id, athlete_id, "update", {"authorized": "false"})

    def _add(self, activity: StravaActivity) -> None:
        self.activities[activity.id] = activity
        self._ids_by_athlete.setdefault(activity.athlete_id, {})[activity.id] = None
        while self.max_activities is not None and len(self.activities) > self.max_activities:
            self._remove(self.activities[next(iter(self.activities))])

    def _remove(self, activity: StravaActivity) -> None:
        del self.activities[activity.id]
        del self._ids_by_athlete[activity.athlete_id][activity.id]

    def _is_visible(self, activity: StravaActivity) -> bool:
        access = self.authorizations.access_token_for(activity.athlete_id)
        if access is None or not access.reads_activities:
            return False
        return access.reads_private_activities or not activity.private

    def _publish_activity(
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
    """The `updates` of a webhook event."""
    updates = {}
    if before.name != after.name:
        updates["title"] = after.name
    if before.sport_type != after.sport_type:
        updates["type"] = after.type
    if before.private != after.private:
        updates["private"] = str(after.private).lower()
    return updates
