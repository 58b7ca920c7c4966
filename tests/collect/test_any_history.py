"""After any history, the workouts are Strava's final state plus the imports, and awards only grow.

A history interleaves activities whose events arrive, are lost, come late, twice or are forged, with
syncs, imports, restarts and new links.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tally.collect.model.rules import parts_earned
from tally.kit.clock import rfc3339
from tally.sim.strava.model import StravaEvent
from tests.collect import activity_file_factory as files
from tests.collect.conftest import StoreTarget
from tests.collect.restart_harness import RestartingServer, open_restarting_server
from tests.collect.server_harness import SUBSCRIPTION, CollectServer, LinkedUser
from tests.collect.sync_harness import run_syncs
from tests.collect.test_api_imports import import_file

TARGET = 60_000
PARTS = 12
MAX_EXAMPLES = 12
STEPS = (
    "record",
    "record lost",
    "record late",
    "edit",
    "edit lost",
    "delete",
    "delete lost",
    "flag lost",
    "forge",
    "redeliver",
    "release",
    "inbox",
    "sync",
    "import",
    "restart",
    "relink",
)
HISTORIES = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(1, 9)),
    min_size=4,
    max_size=14,
)


@dataclass
class History:
    """A user, what happened at Strava, and the awards seen so far."""

    running: RestartingServer
    user: LinkedUser
    milestone_id: str
    # The greatest distance that each workout ever had: their sum bounds the progress.
    peaks: dict[str, float] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    awards: dict[int, Any] = field(default_factory=dict)

    @property
    def server(self) -> CollectServer:
        return self.running.server

    async def apply(self, step: str, which: int, kilometres: int) -> None:
        kind, _, fate = step.partition(" ")
        webhooks = self.server.strava.webhooks
        if fate == "lost":
            webhooks.drops = 10**6
        elif fate == "late":
            webhooks.hold()
        await getattr(self, f"_{kind}")(which, kilometres)
        webhooks.drops = 0
        self.server.skip_time(1)

    async def _record(self, which: int, kilometres: int) -> None:
        start = self.server.clock.seconds() - 86_400 * (which + 1)
        metres = 1000.0 * kilometres
        made = self.server.strava.record(self.user.athlete_id, "Ride", metres, start=start)
        self._note(str(made.id), metres)

    async def _edit(self, which: int, kilometres: int) -> None:
        if (number := self._activity(which)) is not None:
            changes = {"distance": 1000.0 * kilometres, "name": f"Ride of {kilometres} km"}
            self.server.strava.edit(number, **changes)
            self._note(str(number), 1000.0 * kilometres)

    async def _delete(self, which: int, _: int) -> None:
        if (number := self._activity(which)) is not None:
            self.server.strava.delete(number)

    async def _flag(self, which: int, _: int) -> None:
        if (number := self._activity(which)) is not None:
            self.server.strava.edit(number, flagged=True)

    async def _forge(self, which: int, kilometres: int) -> None:
        """Send a deletion or a deauthorization that did not happen, also with a wrong time."""
        athlete, number = self.user.athlete_id, self._activity(which)
        is_athlete = number is None or kilometres > 6
        self.server.strava.webhooks.redeliver(
            StravaEvent(
                aspect_type="update" if is_athlete else "delete",
                event_time=self.server.clock.seconds() + 100_000 * (kilometres % 3 - 1),
                object_id=athlete if is_athlete or number is None else number,
                object_type="athlete" if is_athlete else "activity",
                owner_id=athlete,
                subscription_id=SUBSCRIPTION,
                updates={"authorized": "false"} if is_athlete else {},
            )
        )

    async def _redeliver(self, which: int, kilometres: int) -> None:
        log = self.server.strava.webhooks.log
        if log:
            self.server.strava.webhooks.redeliver(log[which % len(log)].event, kilometres % 3 + 1)

    async def _release(self, which: int, _: int) -> None:
        self.server.strava.webhooks.release("reversed" if which % 2 else "sent")

    async def _inbox(self, _: int, __: int) -> None:
        await self.server.process_inbox()

    async def _sync(self, _: int, __: int) -> None:
        self.server.skip_time(600)
        response = await self.user.browser.send("POST", "/strava/sync")
        assert response.status == 202, response
        await run_syncs(self.server)

    async def _import(self, which: int, kilometres: int) -> None:
        """Import a ride; it may be a copy of an activity."""
        start = self.server.clock.now().replace(microsecond=0) - timedelta(days=which + 1)
        ride = files.RecordedRide(start, metres=1000.0 * kilometres)
        response = await import_file(self.user, files.gpx(ride))
        assert response.status in {200, 201}, response
        self.files.add(response.json["workoutId"])
        self._note(response.json["workoutId"], response.json["distanceMeters"])

    async def _restart(self, _: int, __: int) -> None:
        await self.server.strava.webhooks.wait_idle()
        await self.running.restart(self.user.browser)
        self.server.skip_time(120)
        await self.server.collect.sync_worker.beat()

    async def _relink(self, which: int, _: int) -> None:
        if which % 2:
            response = await self.user.browser.send("DELETE", "/strava/connection")
            assert response.status == 204, response
        assert (await self.server.link(self.user.browser, self.user.athlete_id)).status == 303

    def _activity(self, which: int) -> int | None:
        known = self.server.strava.activities_of(self.user.athlete_id)
        return known[which % len(known)].id if known else None

    def _note(self, workout: str, metres: float) -> None:
        self.peaks[workout] = max(self.peaks.get(workout, 0.0), metres)

    async def check_awards(self) -> Any:
        """Awards stay as they were, none repeats, and all follow from workouts that existed."""
        milestone = await self.user.get_milestone(self.milestone_id)
        awards = {award["partIndex"]: award for award in milestone["awards"]}
        assert len(awards) == len(milestone["awards"])
        assert self.awards.items() <= awards.items()
        # Sums of floats differ in the last digits.
        assert milestone["progress"] <= sum(self.peaks.values()) + 0.001
        earned = parts_earned(int(milestone["progress"]), milestone["totalTarget"], PARTS)
        assert set(awards) == set(range(1, earned + 1))
        self.awards = awards
        return milestone

    async def settle(self) -> None:
        """Deliver what is held, apply everything, and sync once more."""
        self.server.strava.webhooks.release()
        await self._relink(0, 0)
        for _ in range(3):
            await self.server.process_inbox()
            self.server.skip_time(3600)
        await self._sync(0, 0)
        await self.server.process_inbox()

    async def check_final(self) -> None:
        response = await self.user.browser.get("/workouts?limit=200")
        stored = {item["workoutId"]: item for item in response.json["items"]}
        at_strava = {
            f"STRAVA#{activity.id:012}": (activity.distance, activity.name)
            for activity in self.server.strava.activities_of(self.user.athlete_id)
        }
        found = {
            key: (item["distanceMeters"], item["name"])
            for key, item in stored.items()
            if key.startswith("STRAVA#")
        }
        assert found == at_strava
        assert set(stored) - set(found) == self.files
        milestone = await self.check_awards()
        counting = [item for item in stored.values() if self._counts(item)]
        total = sum(item["distanceMeters"] for item in counting)
        assert milestone["status"] == "COMPLETED" or milestone["progress"] >= total - 0.01

    def _counts(self, item: dict[str, Any]) -> bool:
        activity = self.server.strava.activities.get(item["activityId"] or 0)
        return item["duplicateOf"] is None and not (activity and activity.flagged)


async def check_history(
    store_target: StoreTarget, steps: list[tuple[str, int, int]], target: int
) -> None:
    folder, changes = await store_target.new_location()
    async with open_restarting_server(folder, **changes) as running:
        user = await running.server.create_user()
        start = rfc3339(running.server.clock.now() - timedelta(days=30))
        goal = await user.create_milestone(totalTarget=target, periodStartAtUtc=start)
        history = History(running, user, goal["milestoneId"])
        for step, which, kilometres in steps:
            await history.apply(step, which, kilometres)
            await history.check_awards()
        await history.settle()
        await history.check_final()


@settings(max_examples=MAX_EXAMPLES)
@given(HISTORIES)
def test_any_history_ends_in_the_state_of_strava(
    store_target: StoreTarget, steps: list[tuple[str, int, int]]
) -> None:
    """On DynamoDB Local, a transaction has at most ten writes, so that parts must be larger."""
    target = TARGET if store_target.url is None else 3 * TARGET
    asyncio.run(check_history(store_target, steps, target))
