"""The result of a match: confirmed by two polls, final after ten minutes, withdrawn by play."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pytest

from tally.cricket.model.feed import MatchStatus
from tally.cricket.model.records import (
    ActiveMatch,
    ActivityStatus,
    Fixture,
    PollerState,
    TeamFollow,
    fixture_follow_expiry,
    format_start_time,
)
from tally.cricket.model.results import CorrectedResult
from tally.cricket.repository.repositories import Repositories
from tally.cricket.service.activities.operator_actions import OperatorActions
from tally.cricket.service.live.poller import LIVE_INTERVAL_SECONDS
from tally.cricket.service.ports import ReferenceData
from tally.cricket.service.sync.reference_data import SyncService
from tally.cricket.wiring.queries import build_queries
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tally.store.store import Store
from tests.cricket import factories
from tests.cricket.activities_instance import make_instance
from tests.cricket.faulty_engines import CrashingEngine, EngineCrashed
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import FakePushGateway, FakeScores, ReceivedPush
from tests.cricket.pipeline_harness import PipelineInstance, open_instance

FINISHED, ABANDONED, IN_PLAY = MatchStatus.FINISHED, MatchStatus.ABANDONED, MatchStatus.IN_PLAY
POSTPONED = MatchStatus.POSTPONED
BALLS = "1 4 6"


@dataclass
class ResultsHarness:
    """Instances with poller and orchestrator, one followed match and a device that displays it."""

    engine: Engine
    clock: ManualClock
    stack: AsyncExitStack
    match_id: str = field(default_factory=factories.number)
    gateway: FakePushGateway = field(default_factory=FakePushGateway)
    instances: dict[str, PipelineInstance] = field(default_factory=dict)
    token: str = field(default_factory=factories.name)

    def __post_init__(self) -> None:
        self.scores = FakeScores(self.clock)

    async def instance(self, name: str = "one", engine: Engine | None = None) -> PipelineInstance:
        if name not in self.instances:
            self.instances[name] = await self.stack.enter_async_context(
                open_instance(
                    engine or self.engine, self.clock, self.scores, self.gateway, name=name
                )
            )
        return self.instances[name]

    async def start(self) -> None:
        """Start a match with a follower whose device displays it."""
        one = await self.instance()
        now = self.clock.milliseconds()
        start_time = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        fixture = factories.fixture(
            match_id=self.match_id, start_time=start_time, home_team_id="10", away_team_id="20"
        )
        await one.repositories.fixtures.write_batch([fixture])
        expires_at = now // 1000 + 86_400
        await one.repositories.follows.follow(
            factories.follow(self.match_id, user_id=f"user-{self.token}", expires_at=expires_at)
        )
        activity = factories.activity(
            self.match_id,
            user_id=f"user-{self.token}",
            status=ActivityStatus.ACTIVE,
            update_token=self.token,
            expires_at=expires_at,
        )
        assert await one.repositories.activities.create(activity)
        await self.poll(IN_PLAY)

    def report(self, status: MatchStatus, balls: str = BALLS, **changes: Any) -> None:
        feed = feed_of(MatchScript().innings(1, balls).balls, status)
        is_live = status.is_running
        self.scores.live_feeds[self.match_id] = msgspec.structs.replace(
            feed, match_id=self.match_id, is_live=is_live, **changes
        )

    async def poll(
        self, status: MatchStatus, balls: str = BALLS, *, name: str = "one", **changes: Any
    ) -> None:
        self.report(status, balls, **changes)
        await self.run(2.5, name)

    async def run(self, seconds: float, name: str = "one") -> None:
        """Poll at an interval for some time, and run the orchestrator after each poll."""
        instance = await self.instance(name)
        orchestrator = make_instance(
            instance.repositories.fixtures.store,
            self.gateway,
            build_queries(instance.repositories, self.clock).displays.content,
            name,
            uses_channels=False,
        ).orchestrator
        step = 30.0 if seconds >= 90 else 2.5  # Fewer polls keep long waits cheap.
        elapsed = 0.0
        while elapsed < seconds:
            await self.clock.advance(step)
            elapsed += step
            await instance.poll()
            await orchestrator.process(self.match_id)

    def leave(self, status: MatchStatus, balls: str = BALLS, **changes: Any) -> None:
        """Remove the match from the live feed; it has this state by id."""
        self.report(status, balls, **changes)
        self.scores.final_feeds[self.match_id] = self.scores.live_feeds.pop(self.match_id)

    @property
    def pushes(self) -> list[ReceivedPush]:
        return self.gateway.pushes_to(self.token)

    def pushed_events(self) -> list[str]:
        return [push.event for push in self.pushes]

    def result_alerts(self) -> list[str]:
        return [
            push.content["result"]
            for push in self.pushes
            if push.alert is not None and push.content["status"] in {"finished", "abandoned"}
        ]

    async def followers(self) -> int:
        follows = (await self.instance()).repositories.follows
        now = self.clock.seconds()
        return len([follow async for follow in follows.list_by_match(self.match_id, now)])

    async def fixture(self) -> Fixture:
        fixture = await (await self.instance()).repositories.fixtures.get(self.match_id)
        assert fixture is not None
        return fixture

    async def record(self) -> ActiveMatch:
        return await (await self.instance()).record(self.match_id)

    async def actions(self) -> OperatorActions:
        repositories = (await self.instance()).repositories
        return OperatorActions(
            fixtures=repositories.fixtures,
            follows=repositories.follows,
            deleted_follows=repositories.deleted_follows,
            feeds=build_queries(repositories, self.clock).feeds,
            clock=self.clock,
        )


@pytest.fixture
async def match(engine: Engine, clock: ManualClock) -> AsyncIterator[ResultsHarness]:
    async with AsyncExitStack() as stack:
        harness = ResultsHarness(engine, clock, stack)
        await harness.start()
        yield harness
        repositories = (await harness.instance()).repositories
        await repositories.fixtures.archive(harness.match_id, clock.milliseconds())


@pytest.mark.parametrize("status", [FINISHED, ABANDONED])
async def test_one_wrong_poll_changes_nothing(match: ResultsHarness, status: MatchStatus) -> None:
    count = len(match.pushes)
    await match.poll(status, note="No result")
    fixture = await match.fixture()
    assert (fixture.status, fixture.is_live, fixture.note) == (IN_PLAY, True, "")
    await match.poll(IN_PLAY)
    assert len(match.pushes) == count
    await match.poll(IN_PLAY, BALLS + " 1")
    assert match.pushes[-1].content["status"] == "in_play"
    assert await match.followers() == 1


async def test_a_result_that_two_polls_report_is_published_as_an_update(
    match: ResultsHarness,
) -> None:
    """It alerts once. The match is no longer live, but its activities and follows remain."""
    for _ in range(4):
        await match.poll(FINISHED, note="Rovers won by 3 runs", winner_team_id="10")
    assert match.result_alerts() == ["Rovers won by 3 runs"]
    assert "end" not in match.pushed_events()
    fixture = await match.fixture()
    assert (fixture.status, fixture.is_live, fixture.is_polled) == (FINISHED, False, True)
    await match.run(570)
    assert "end" not in match.pushed_events()
    assert await match.followers() == 1
    await match.run(30)
    assert match.pushed_events()[-1] == "end"
    assert match.pushes[-1].content["result"] == "Rovers won by 3 runs"
    assert await match.followers() == 0
    assert (await match.record()).poller_state is PollerState.ENDED
    assert match.result_alerts() == ["Rovers won by 3 runs"]


async def test_resumed_play_withdraws_a_result_and_the_real_one_alerts(
    match: ResultsHarness,
) -> None:
    """A wrong result of nine minutes deletes nothing."""
    for _ in range(2):
        await match.poll(ABANDONED, note="Match abandoned")
    await match.run(540)
    await match.poll(IN_PLAY, BALLS + " 4")
    assert match.pushes[-1].content["status"] == "in_play"
    assert (await match.fixture()).is_live
    await match.run(700)
    assert "end" not in match.pushed_events()
    assert await match.followers() == 1
    for _ in range(2):
        await match.poll(FINISHED, BALLS + " 4 W", note="Rovers won", winner_team_id="10")
    assert match.result_alerts() == ["Match abandoned", "Rovers won"]
    await match.run(620)
    assert match.pushed_events().count("end") == 1
    assert match.pushes[-1].content["result"] == "Rovers won"


async def test_play_that_resumes_without_a_ball_withdraws_the_result(
    match: ResultsHarness,
) -> None:
    """One such poll may come from an old cache; four do not."""
    for _ in range(2):
        await match.poll(FINISHED)
    await match.poll(IN_PLAY)
    assert not (await match.fixture()).is_live
    for _ in range(4):
        await match.poll(IN_PLAY)
    assert (await match.fixture()).is_live
    assert match.pushes[-1].content["status"] == "in_play"


async def test_a_flipping_feed_neither_alerts_again_nor_ends(match: ResultsHarness) -> None:
    """Ten minutes count from the last poll that contradicts it. A result alerts once."""
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won")
    for in_play in (1, 1, 5, 1, 5):
        await match.run(150)
        for status, polls in ((IN_PLAY, in_play), (FINISHED, 2)):
            for _ in range(polls):
                await match.poll(status, note="Rovers won" if status is FINISHED else "")
    assert match.result_alerts() == ["Rovers won"]
    assert "end" not in match.pushed_events()
    assert await match.followers() == 1
    await match.run(620)
    assert await match.followers() == 0


async def test_a_changed_result_is_published_quietly_and_waits_again(
    match: ResultsHarness,
) -> None:
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won", winner_team_id="10")
    await match.run(510)
    for _ in range(2):
        await match.poll(FINISHED, note="Wanderers won", winner_team_id="20")
    assert match.pushes[-1].content["result"] == "Wanderers won"
    assert "Wanderers won" in match.pushes[-1].content["keyEvent"]["text"]
    assert match.result_alerts() == ["Rovers won"]
    await match.run(570)
    assert await match.followers() == 1
    await match.run(60)
    assert await match.followers() == 0


async def test_a_match_that_leaves_the_feed_at_once_is_followed_to_its_end(
    match: ResultsHarness,
) -> None:
    """Its result is requested by id: twice to confirm it, and once more after ten minutes."""
    match.leave(FINISHED, BALLS + " W", note="Rovers won")
    await match.run(15)
    assert (await match.fixture()).is_live
    await match.run(15)
    assert match.result_alerts() == ["Rovers won"]
    assert not (await match.fixture()).is_live
    await match.run(570)
    assert await match.followers() == 1
    await match.run(90)
    assert await match.followers() == 0
    assert match.pushed_events()[-1] == "end"
    assert (await match.fixture()).archived_at is not None


async def test_without_the_score_service_no_result_becomes_final(match: ResultsHarness) -> None:
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won")
    match.scores.is_unavailable = True
    await match.run(1_200)
    assert await match.followers() == 1
    match.scores.is_unavailable = False
    await match.poll(IN_PLAY, BALLS + " 1")
    await match.run(60)
    assert (await match.fixture()).is_live
    assert await match.followers() == 1


async def test_a_match_missing_from_the_feed_stays_live_while_it_is_in_play(
    match: ResultsHarness,
) -> None:
    match.leave(IN_PLAY, BALLS + " 4")
    await match.run(1_300)
    assert (await match.fixture()).is_live
    assert "end" not in match.pushed_events()


async def test_an_empty_response_by_mistake_does_not_slow_polling_down(
    match: ResultsHarness,
) -> None:
    match.scores.live_feeds.clear()
    await match.clock.advance(2.5)
    assert await (await match.instance()).poller.run() == LIVE_INTERVAL_SECONDS


async def test_overnight_a_test_match_is_archived_and_keeps_its_followers(
    match: ResultsHarness,
) -> None:
    """Its activities end after ten minutes; it is not over."""
    match.leave(MatchStatus.BREAK)
    await match.run(570)
    assert (await match.fixture()).is_live
    await match.run(120)
    fixture = await match.fixture()
    assert (fixture.archived_at is not None, fixture.status.is_over) == (True, False)
    assert (match.pushed_events()[-1], await match.followers()) == ("end", 1)


async def test_a_postponed_match_keeps_its_follows_and_its_later_result(
    match: ResultsHarness,
) -> None:
    for _ in range(2):
        await match.poll(POSTPONED)
    await match.run(620)
    assert await match.followers() == 1
    for _ in range(16):
        await match.poll(IN_PLAY, BALLS + " 1")
    for _ in range(2):
        await match.poll(FINISHED, BALLS + " 1 W", note="Rovers won")
    record = await match.record()
    assert "match_end" in str(record.extra["memory"])
    assert (await match.fixture()).note == "Rovers won"


async def test_a_match_that_is_archived_overnight_and_then_abandoned_gets_its_result(
    match: ResultsHarness,
) -> None:
    """The last day of a Test without play: the result is published, and follows wait ten minutes.

    At once the poller slows down again.
    """
    match.leave(MatchStatus.BREAK)
    await match.run(690)
    assert (await match.record()).poller_state is PollerState.ENDED
    for _ in range(2):
        await match.poll(ABANDONED, note="Match drawn")
    fixture, record = await match.fixture(), await match.record()
    assert (fixture.status, fixture.note) == (ABANDONED, "Match drawn")
    assert ("match_end" in str(record.extra["memory"]), record.expires_at) == (True, None)
    poller = (await match.instance()).poller
    await poller.run()
    # The tests share their tables: matches of other tests may be live.
    assert ((await match.fixture()).is_live, poller.reconciliation.is_waiting) == (False, False)
    await match.run(570)
    assert await match.followers() == 1
    await match.run(60)
    assert (await match.followers(), match.pushed_events().count("end")) == (0, 1)
    assert (await match.record()).poller_state is PollerState.ENDED


async def test_a_match_that_the_score_service_deletes_after_its_result_ends(
    match: ResultsHarness,
) -> None:
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won")
    match.scores.live_feeds.clear()
    await match.run(570)
    assert await match.followers() == 1
    await match.run(90)
    assert (match.pushed_events()[-1], await match.followers()) == ("end", 0)


async def test_the_poller_state_is_paused_during_breaks(match: ResultsHarness) -> None:
    for status, state in (
        (MatchStatus.INNINGS_BREAK, PollerState.PAUSED),
        (IN_PLAY, PollerState.POLLING),
        (MatchStatus.BREAK, PollerState.PAUSED),
        (MatchStatus.DELAYED, PollerState.PAUSED),
        (IN_PLAY, PollerState.POLLING),
    ):
        await match.poll(status)
        assert (await match.record()).poller_state is state


async def test_another_instance_confirms_and_finishes_what_a_killed_one_began(
    match: ResultsHarness,
) -> None:
    """The polls of all instances count, and a result is alerted once."""
    crashing = CrashingEngine(match.engine)
    killed = await match.instance("killed", crashing)
    match.report(FINISHED, note="Rovers won")
    await match.clock.advance(11)
    await killed.poll()
    assert (await match.record()).owner == "killed"
    crashing.crash()
    await match.clock.advance(11)
    await match.run(30)
    assert match.result_alerts() == ["Rovers won"]
    await match.run(300)
    await match.clock.advance(11)
    await match.run(300, "two")
    assert match.result_alerts() == ["Rovers won"]
    assert match.pushed_events().count("end") == 1
    assert await match.followers() == 0


async def test_a_result_that_alerted_before_it_was_withdrawn_does_not_alert_after_a_crash(
    match: ResultsHarness,
) -> None:
    """The instance that publishes it again dies before it has delivered it."""
    for status, polls in ((FINISHED, 2), (IN_PLAY, 5)):
        for _ in range(polls):
            await match.poll(status, note="Rovers won" if status is FINISHED else "")
    crashing = CrashingEngine(match.engine)
    killed = await match.instance("killed", crashing)
    await match.clock.advance(66)  # The lease of the first instance was for a slow poll.
    match.report(FINISHED, note="Rovers won")
    await killed.poll()
    match.gateway.on_send = lambda _: crashing.crash()
    await match.clock.advance(2.5)
    with suppress(EngineCrashed):
        await killed.poll()
    assert crashing.has_crashed
    match.gateway.on_send = lambda _: None
    await match.clock.advance(66)
    await match.run(30, "two")
    assert match.pushes[-1].content["status"] == "finished"
    assert match.result_alerts() == ["Rovers won"]


async def test_a_held_match_is_neither_ended_nor_alerted(match: ResultsHarness) -> None:
    """Scores are still updated. After the release, the match ends."""
    actions = await match.actions()
    await actions.hold(match.match_id)
    for _ in range(2):
        await match.poll(FINISHED, BALLS + " W", note="Rovers won")
    await match.run(700)
    assert (match.result_alerts(), match.pushes[-1].content["status"]) == ([], "finished")
    assert ("end" in match.pushed_events(), await match.followers()) == (False, 1)
    await actions.release(match.match_id)
    await match.run(10)
    assert (match.pushed_events()[-1], await match.followers()) == ("end", 0)


async def test_a_corrected_result_replaces_that_of_the_feed(match: ResultsHarness) -> None:
    actions = await match.actions()
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won", winner_team_id="10")
    result = CorrectedResult(FINISHED, "Wanderers won on review", "20")
    await actions.correct_result(match.match_id, result)
    await match.run(10)
    assert match.pushes[-1].content["result"] == "Wanderers won on review"
    fixture = await match.fixture()
    assert (fixture.note, fixture.winner_team_id) == ("Wanderers won on review", "20")
    await match.run(620)
    assert match.pushes[-1].content["result"] == "Wanderers won on review"
    await actions.correct_result(match.match_id, CorrectedResult(FINISHED, "Match tied"))
    fixture = await match.fixture()
    assert (fixture.note, fixture.winner_team_id) == ("Match tied", None)
    await actions.remove_correction(match.match_id)
    assert (await match.fixture()).corrected_result is None


async def test_a_correction_after_the_end_outlasts_a_feed_that_still_lists_the_match(
    match: ResultsHarness,
) -> None:
    for _ in range(2):
        await match.poll(FINISHED, note="Rovers won", winner_team_id="10")
    await match.run(630)
    actions = await match.actions()
    await actions.correct_result(match.match_id, CorrectedResult(FINISHED, "Match tied"))
    await match.run(30)
    fixture = await match.fixture()
    assert (fixture.note, fixture.winner_team_id) == ("Match tied", None)
    await actions.remove_correction(match.match_id)
    await match.run(30)
    assert (await match.fixture()).note == "Rovers won"


async def test_follows_of_a_match_that_ended_by_mistake_are_restored_for_a_day(
    match: ResultsHarness,
) -> None:
    """A user who unfollowed the match or its team in the meantime is not restored."""
    repositories = (await match.instance()).repositories
    now = match.clock.seconds()
    for user in ("stays", "leaves"):
        await repositories.follows.follow(
            factories.follow(match.match_id, user_id=user, expires_at=now + 86_400)
        )
    fan = factories.name("fan")
    await repositories.follows.follow_team(TeamFollow(team_id="10", user_id=fan, created_at=now))
    via_team = factories.follow(match.match_id, user_id=fan, expires_at=now + 86_400)
    assert await repositories.follows.add_for_team([replace(via_team, via_team_id="10")])
    for _ in range(2):
        await match.poll(ABANDONED)
    await match.run(630)
    assert await match.followers() == 0
    await repositories.deleted_follows.remove(match.match_id, "leaves")
    await repositories.follows.unfollow_team("10", fan)
    actions = await match.actions()
    assert await actions.restore_follows(match.match_id) == 2
    assert await actions.restore_follows(match.match_id) == 0
    assert await match.followers() == 2
    for _ in range(16):
        await match.poll(IN_PLAY, BALLS + " 1")
    assert (await match.fixture()).is_live
    assert (await match.record()).poller_state is PollerState.POLLING
    for _ in range(2):
        await match.poll(FINISHED, BALLS + " 1 W", note="Rovers won")
    assert (await match.fixture()).note == "Rovers won"
    await match.clock.advance(86_401)
    assert await actions.restore_follows(match.match_id) == 0


@pytest.mark.parametrize("status", [MatchStatus.NOT_STARTED, POSTPONED])
async def test_follows_move_with_their_match(
    engine: Engine, clock: ManualClock, status: MatchStatus
) -> None:
    """Also if the match is postponed without a new date."""
    repositories = Repositories.create(Store(engine, clock))
    start = clock.milliseconds()
    days = {MatchStatus.NOT_STARTED: 5, POSTPONED: 0}[status]
    planned = factories.fixture(start_time=format_start_time(start))
    moved = replace(planned, start_time=format_start_time(start + days * 86_400_000), status=status)
    await repositories.fixtures.write_batch([planned])
    await repositories.follows.follow(
        factories.follow(planned.match_id, expires_at=fixture_follow_expiry(planned, start))
    )
    sync = SyncService(
        source=cast("ReferenceData", None),
        leagues=repositories.leagues,
        league_service=build_queries(repositories, clock).leagues,
        teams=repositories.teams,
        seasons=repositories.seasons,
        fixtures=repositories.fixtures,
        cache=repositories.cache,
        follows=repositories.follows,
        feeds=build_queries(repositories, clock).feeds,
        clock=clock,
    )
    await sync.sync_fixture(moved, planned)
    await clock.advance(4 * 86_400)
    follows = repositories.follows.list_by_match(planned.match_id, clock.seconds())
    assert len([follow async for follow in follows]) == 1
