"""Runs syncs of a server, and Strava lists that tests change while a sync is under way."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tally.collect.model.workouts import Workout
from tally.collect.service.ports import ActivityLists
from tally.collect.service.sync_worker import SyncWorker
from tests.collect.server_harness import CollectServer, LinkedUser

LIST_PATH = "/api/v3/athlete/activities"


class InterruptedLists:
    """Calls `after_read` after each page was read and before the sync sees it."""

    def __init__(self, lists: ActivityLists, after_read: Callable[[int], Awaitable[None]]) -> None:
        self._lists = lists
        self._after_read = after_read
        self.reads: list[int] = []

    def sync_delay(self) -> float:
        return self._lists.sync_delay()

    async def list_activities(
        self, access_token: str, athlete_id: int, after: int, page: int
    ) -> list[Workout]:
        found = await self._lists.list_activities(access_token, athlete_id, after, page)
        self.reads.append(after)
        await self._after_read(len(self.reads))
        return found


def _worker_with(server: CollectServer, lists: ActivityLists) -> SyncWorker:
    """A second instance of the sync worker, which reads these lists."""
    worker = server.collect.sync_worker
    return replace(worker, strava=lists, pages=replace(worker.pages, strava=lists))


def interrupted_worker(
    server: CollectServer, after_read: Callable[[int], Awaitable[None]]
) -> SyncWorker:
    """A second instance of the sync worker, whose reads call `after_read` with their number."""
    return _worker_with(server, InterruptedLists(server.collect.sync_worker.strava, after_read))


class RepeatingLists:
    """Returns the first page, whatever page is requested."""

    def __init__(self, lists: ActivityLists) -> None:
        self._lists = lists

    def sync_delay(self) -> float:
        return self._lists.sync_delay()

    async def list_activities(
        self, access_token: str, athlete_id: int, after: int, page: int
    ) -> list[Workout]:
        return await self._lists.list_activities(access_token, athlete_id, after, min(page, 1))


def repeating_worker(server: CollectServer) -> SyncWorker:
    """A second instance of the sync worker, whose lists repeat their first page."""
    return _worker_with(server, RepeatingLists(server.collect.sync_worker.strava))


async def run_syncs(server: CollectServer, worker: SyncWorker | None = None) -> None:
    """Run what is due until nothing makes progress, then the inbox."""
    worker = worker or server.collect.sync_worker
    while await worker.run() is not None:
        pass
    await server.collect.worker.run()


async def stored_workouts(user: LinkedUser) -> dict[int, tuple[str, float]]:
    """Return sport type and distance of all workouts that are not deleted, by activity."""
    found: dict[int, tuple[str, float]] = {}
    cursor = ""
    while True:
        response = await user.browser.get(f"/workouts?limit=100{cursor}")
        assert response.status == 200, response
        for item in response.json["items"]:
            found[item["activityId"]] = item["sportType"], item["distanceMeters"]
        if response.json["nextCursor"] is None:
            return found
        cursor = f"&cursor={response.json['nextCursor']}"


def strava_workouts(server: CollectServer, user: LinkedUser) -> dict[int, tuple[str, float]]:
    """Return the same of the activities at Strava."""
    return {
        activity.id: (activity.sport_type, activity.distance)
        for activity in server.strava.activities_of(user.athlete_id)
    }


async def strava_status(user: LinkedUser) -> Any:
    response = await user.browser.get("/strava/status")
    assert response.status == 200, response
    return response.json
