"""Each designed access pattern is called by the triggers that the design names.

The test runs every trigger on a real server and compares the calls that the store counted. A
trigger that does not call its pattern has a reason in docs/cricket.md.
"""

import csv
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tally.store.report import pattern_rows
from tests.cricket.api_harness import ApiClient, ApiHarness, open_api_harness
from tests.cricket.test_patterns import CRICKET

ROOT = Path(__file__).parents[2]
START_TOKEN, UPDATE_TOKEN, DEVICE_TOKEN = "c0ffee00" * 4, "beef0000" * 4, "8f2c1a90" * 4

with Path(__file__).with_name("designed.tsv").open(newline="", encoding="utf-8") as designed:
    TRIGGERS = {
        (row["pattern"], trigger.strip())
        for row in csv.DictReader(designed, delimiter="\t")
        for trigger in row["trigger"].split(",")
    }


def documented_exceptions() -> set[tuple[str, str]]:
    """Return the rows of the page's table of patterns that a trigger does not call."""
    page = (ROOT / "docs" / "cricket.md").read_text(encoding="utf-8")
    section = page.partition("<!-- uncalled patterns -->")[2].partition("\n#")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| [^|]{20,} \|$", section, re.MULTILINE)
    return {(pattern, trigger.replace("`", "")) for pattern, trigger in rows}


@dataclass
class CallRecorder:
    """Records which patterns each trigger calls."""

    server: ApiHarness
    called: set[tuple[str, str]] = field(default_factory=set)

    def _calls(self) -> dict[str, int]:
        store = self.server.cricket.repositories.fixtures.store
        return {row.pattern: row.calls for row in pattern_rows(CRICKET, store.meters)}

    async def run(self, triggers: str, *works: Awaitable[object]) -> None:
        """Await `works` on behalf of these triggers, separated by commas."""
        before = self._calls()
        for work in works:
            await work
        after = self._calls()
        new = {pattern for pattern, calls in after.items() if calls > before[pattern]}
        names = [trigger.strip() for trigger in triggers.split(",")]
        self.called |= {(pattern, trigger) for pattern in new for trigger in names}


LIVE_SCORE_TRIGGERS = (
    "LiveScoreJob, LiveScoreJob change detection, LiveScoreJob (when state changed), "
    "LiveScoreJob ball-by-ball processing, LiveScoreJob after processing a ball, "
    "LiveScoreJob completion, LiveActivityPushJob, ActivityPushJob, "
    "PushNotificationService, FixtureEnrichmentProvider, any concurrent job, Long-running jobs, "
    "DisplayStateService after computation, LiveScoreJob reconciliation"
)


@asynccontextmanager
async def open_recorder(folder: Path) -> AsyncIterator[CallRecorder]:
    async with open_api_harness(folder) as server:
        yield CallRecorder(server)


async def sync_and_poll(recorder: CallRecorder) -> str:
    """Run the syncs, the start and the first polls; return the id of the live match."""
    server = recorder.server
    sync = server.cricket.services.sync
    match = server.live_match(12)
    (soon,) = server.sportmonks.schedule(
        1, league_name=match.match.league, first=server.clock.now() + timedelta(minutes=20)
    )
    await recorder.run("LeagueSyncJob", sync.sync_leagues())
    await recorder.run("TeamSyncJob", sync.sync_teams())
    await recorder.run("FixtureSyncJob, FixtureCacheService", sync.sync_fixtures())
    server.sportmonks.scheduled[soon]["round"] = "Final"
    await recorder.run("FixtureSyncJob", sync.sync_fixtures())
    server.skip_time(61)
    ana, match_id = server.user("ana"), str(match.match.id)
    await register(recorder, ana, match_id)
    assert (await ana.post(f"/user/follow/{soon}", {})).status == 200
    await recorder.run("PrematchNotificationJob", server.cricket.live.prematch.run())
    await recorder.run("TossDetectionJob", server.poll())
    # As after a restart: this instance starts to poll a match in progress.
    await server.cricket.live.poller.lease.release()
    server.cricket.live.workers.forget(match_id)
    await recorder.run(f"Service startup, {LIVE_SCORE_TRIGGERS}", server.poll())
    for _ in range(6):
        match.deliver(2)
        server.skip_time(11)
        await recorder.run(LIVE_SCORE_TRIGGERS, server.poll())
    return match_id


async def register(recorder: CallRecorder, ana: ApiClient, match_id: str) -> None:
    device = {"deviceToken": DEVICE_TOKEN, "deviceId": "phone", "platform": "ios"}
    await recorder.run("POST /user/device", ana.post("/user/device", device))
    start = {"pushToStartToken": START_TOKEN, "deviceId": "phone"}
    await recorder.run(
        "PUT /user/device/push-to-start", ana.put("/user/device/push-to-start", start)
    )
    await recorder.run("GET /user/device", ana.get("/user/device"))
    path = f"/user/follow/{match_id}"
    await recorder.run("POST /user/follow/:matchId", ana.post(path, {}))
    await recorder.run("GET /user/follow/:matchId", ana.get(path))
    await recorder.run(
        "POST /user/activity/:matchId",
        ana.post(f"/user/activity/{match_id}", {"pushToken": UPDATE_TOKEN}),
    )


async def read(recorder: CallRecorder, match_id: str) -> None:
    server = recorder.server
    ana, admin = server.user("ana"), server.admin()
    (league,) = (await ana.get_json("/leagues"))["items"]
    (match,) = (await ana.get_json("/matches/live"))["items"]
    team, league_id = match["teams"][0]["teamId"], league["leagueId"]
    server.skip_time(120)
    dates = "&from=2020-01-01&to=2100-01-01"
    for trigger, path in (
        ("GET /matches/:id", f"/matches/{match_id}"),
        ("GET /matches/:id/display", f"/matches/{match_id}/display"),
        ("GET /matches", "/matches"),
        ("GET /matches?league=", f"/matches?league={league_id}{dates}"),
        ("GET /matches?league=&from=&to=", f"/matches?league={league_id}{dates}&limit=9"),
        ("GET /teams", "/teams"),
        ("GET /teams/:id", f"/teams/{team}"),
        ("GET /leagues", "/leagues"),
        ("GET /leagues/:id", f"/leagues/{league_id}"),
        ("GET /seasons/:id/teams", f"/seasons/{match['seasonId']}/teams"),
    ):
        server.skip_time(70)
        await recorder.run(trigger, server.user("ana").get_json(path))
    await recorder.run("Admin endpoints", admin.get_json(f"/admin/fixtures?leagueId={league_id}"))
    color = {"color": "#112233"}
    await recorder.run("PATCH /teams/:id (admin)", admin.patch(f"/teams/{team}", color))
    name = {"name": "Cup"}
    await recorder.run("PATCH /leagues/:id (admin)", admin.patch(f"/leagues/{league_id}", name))


async def finish(recorder: CallRecorder, match_id: str) -> None:
    """Change the team, unfollow, end the match and clean up."""
    server, cricket = recorder.server, recorder.server.cricket
    ana = server.user("ana")
    match = server.sportmonks.playback(int(match_id))
    team = (await ana.get_json(f"/matches/{match_id}"))["teams"][0]["teamId"]
    path = f"/user/follow/{match_id}"
    await recorder.run("PATCH /user/follow/:matchId", ana.patch(path, {"teamId": team}))
    await recorder.run("DELETE /user/follow/:matchId, Unfollow cascade", ana.delete(path))
    token = {"pushToken": UPDATE_TOKEN}
    for _ in range(2):
        await ana.post(f"/user/activity/{match_id}", token)
        await recorder.run(
            "DELETE /user/activity/:matchId",
            ana.delete(f"/user/activity/{match_id}?pushToken={UPDATE_TOKEN}"),
        )
    device = {"deviceToken": DEVICE_TOKEN, "deviceId": "phone", "platform": "ios"}
    assert (await ana.post("/user/device", device)).status < 300
    await recorder.run("DELETE /user/device", ana.delete("/user/device?deviceId=phone"))
    match.finish()
    for _ in range(3):
        server.skip_time(700)
        await recorder.run(LIVE_SCORE_TRIGGERS, server.poll())
    replay = await server.admin().post(f"/admin/matches/{match_id}/replay", {})
    assert replay.status < 300, replay
    server.sportmonks.remove(int(match_id))
    for _ in range(3):
        server.skip_time(20_000)
        await recorder.run(LIVE_SCORE_TRIGGERS, server.poll())
        await recorder.run("Match completion cleanup", cricket.live.orchestrator.run())
    league_id = (await server.user("ana").get_json("/leagues"))["items"][0]["leagueId"]
    await recorder.run("Admin endpoint", server.admin().delete(f"/leagues/{league_id}"))


async def test_each_trigger_calls_its_patterns(tmp_path: Path) -> None:
    """All triggers of the design, except those with a reason in docs/cricket.md."""
    async with open_recorder(tmp_path) as recorder:
        match_id = await sync_and_poll(recorder)
        await read(recorder, match_id)
        await finish(recorder, match_id)
        uncalled = {pair for pair in TRIGGERS if pair not in recorder.called}
        assert uncalled == documented_exceptions()
