"""From polls to pushes, on a real store: what is pushed, to whom, how loudly, and what is never pushed."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from tally.cricket.model.events import EventKind
from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tally.cricket.model.records import ActivityStatus, EndReason, PollerState
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import made_up
from tests.cricket.pipeline_fakes import DELIVERED, FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine, open_instance
from tests.cricket.play import Play, feed_of


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """SQLite alone: how the tables behave elsewhere is the repositories' business."""
    async with open_cricket_engine(tmp_path_factory.mktemp("pitch")) as opened:
        yield opened


@pytest.fixture
def gateway() -> FakePushGateway:
    return FakePushGateway()


@pytest.fixture
def scores(clock: ManualClock) -> FakeScores:
    return FakeScores(clock)


@pytest.fixture
async def one(
    engine: Engine, clock: ManualClock, scores: FakeScores, gateway: FakePushGateway
) -> AsyncIterator[PipelineInstance]:
    async with open_instance(engine, clock, scores, gateway) as made:
        yield made


def said(match_id: str, words: str, status: MatchStatus = MatchStatus.IN_PLAY) -> MatchFeed:
    return msgspec.structs.replace(
        feed_of(Play().innings(1, words).balls, status), match_id=match_id
    )


async def poll(
    one: PipelineInstance,
    scores: FakeScores,
    match_id: str,
    words: str,
    status: MatchStatus = MatchStatus.IN_PLAY,
) -> None:
    scores.live_feeds[match_id] = said(match_id, words, status)
    assert isinstance(one.clock, ManualClock)
    await one.clock.advance(2.5)
    await one.poll()


async def test_an_unchanged_state_is_never_pushed(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Many polls that say the same are one push to each device."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    for _ in range(12):
        await poll(one, scores, match_id, "1 4")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -"]
    await poll(one, scores, match_id, "1 4 1")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -", "6/0 -"]


async def test_alerts_are_loud_and_the_rest_is_quiet(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """A wicket has priority 10 and an alert; a four has priority 5 and none."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    for words in ("1", "1 4", "1 4 W"):
        await poll(one, scores, match_id, words)
    assert [(push.priority, push.alert is not None) for push in gateway.pushes_to(token)] == [
        (5, False),
        (5, False),
        (10, True),
    ]
    assert gateway.pushes_to(token)[-1].content["keyEvent"]["kind"] == "wicket"
    assert gateway.pushes_to(token)[1].content["keyEvent"]["kind"] == "four"


async def test_each_device_gets_its_own_view(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Built once for each side, and for those who are on none."""
    match_id = made_up.number()
    neutral = await one.follow(match_id, made_up.name())
    away = await one.follow(match_id, made_up.name(), team_id="20")
    elsewhere = await one.follow(match_id, made_up.name(), team_id="99")
    await poll(one, scores, match_id, "1 W")
    assert (
        gateway.latest_push_to(neutral).content["view"]
        == gateway.latest_push_to(elsewhere).content["view"]
        == "neutral"
    )
    assert gateway.latest_push_to(away).content["view"] == "20"
    assert gateway.latest_push_to(away).content["keyEvent"]["mood"] == "for"


async def test_the_end_goes_to_everyone_and_the_record_says_so(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """With the end event, loudly; after that no poll changes anything."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    await poll(one, scores, match_id, "1 4")
    await poll(one, scores, match_id, "1 4 W", MatchStatus.FINISHED)
    last = gateway.pushes_to(token)[-1]
    assert (last.event, last.priority, last.content["status"]) == ("end", 10, "finished")
    assert last.alert is not None
    assert (await one.record(match_id)).poller_state is PollerState.ENDED
    count = len(gateway.pushes)
    await poll(one, scores, match_id, "1 4 W 1", MatchStatus.FINISHED)
    assert len(gateway.pushes) == count


async def test_a_token_that_apple_does_not_know_ends_its_activity(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """The others go on."""
    match_id = made_up.number()
    good, bad = (
        await one.follow(match_id, made_up.name()),
        await one.follow(match_id, made_up.name()),
    )
    gateway.respond = lambda push: (
        PushResult(PushOutcome.TOKEN_INVALID, 410, "Unregistered")
        if push.token == bad
        else DELIVERED
    )
    await poll(one, scores, match_id, "1 4")
    assert isinstance(one.clock, ManualClock)
    now = one.clock.milliseconds()
    found = [
        each
        async for each in one.repositories.activities.of_match(match_id, now)
        if each.user_id == f"user-{bad}"
    ]
    assert [(each.status, each.end_reason) for each in found] == [
        (ActivityStatus.ENDED, EndReason.TOKEN_INVALID)
    ]
    await poll(one, scores, match_id, "1 4 6")
    assert len(gateway.pushes_to(good)) == 2
    assert gateway.pushes_to(bad) == []


async def test_devices_on_the_channel_are_reached_by_one_request(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Those that cannot listen to it keep their token."""
    match_id = made_up.number()
    await poll(one, scores, match_id, "1")
    assert await one.repositories.matches.set_channel(match_id, "channel-1") is not None
    for _ in range(3):
        await one.follow(match_id, made_up.name(), channel_id="channel-1")
    token = await one.follow(match_id, made_up.name())
    await poll(one, scores, match_id, "1 W")
    assert [(push.token, push.priority) for push in gateway.broadcasts] == [("channel-1", 10)]
    assert [push.token for push in gateway.pushes] == [token]


async def test_what_was_last_known_stays_while_the_service_is_away(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """No push, no error, and the first answer afterwards is taken."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    await one.repositories.fixtures.write_batch([made_up.fixture(match_id=match_id)])
    await poll(one, scores, match_id, "1 4")
    scores.is_unavailable = True
    assert await one.poller.run() == 2.5
    scores.is_unavailable = False
    await poll(one, scores, match_id, "1 4 6")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -", "11/0 -"]


async def test_a_poll_is_soon_repeated_only_while_something_is_live(
    one: PipelineInstance, scores: FakeScores
) -> None:
    """2.5 seconds, or a minute."""
    assert await one.poller.run() == 60
    scores.live_feeds["7"] = said(made_up.number(), "1")
    assert await one.poller.run() == 2.5


async def test_a_match_that_left_the_live_scores_is_archived_with_its_last_state(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """One answer without it does not count; after a while its end is fetched, shown, and told."""
    match_id = made_up.number()
    await one.repositories.fixtures.write_batch([made_up.fixture(match_id=match_id)])
    token = await one.follow(match_id, made_up.name())
    await poll(one, scores, match_id, "1 4 6")
    scores.final_feeds[match_id] = said(match_id, "1 4 6 W W", MatchStatus.FINISHED)
    del scores.live_feeds[match_id]
    await one.poll()
    fixture = await one.repositories.fixtures.get(match_id)
    assert fixture is not None
    assert fixture.is_live
    await clock.advance(21)
    await one.poll()
    fixture = await one.repositories.fixtures.get(match_id)
    assert fixture is not None
    assert not fixture.is_live
    assert fixture.archived_at is not None
    assert fixture.status is MatchStatus.FINISHED
    assert gateway.latest_push_to(token).event == "end"
    assert [event.kind for event in one.published.events][-1] is EventKind.MATCH_END


async def test_an_expired_replay_is_deleted(one: PipelineInstance, clock: ManualClock) -> None:
    """And one whose time is not over stays."""
    now = clock.milliseconds()
    kept, gone = made_up.number(), made_up.number()
    for match_id, until in ((kept, now + 60_000), (gone, now - 1)):
        replay = made_up.fixture(
            match_id=match_id, replay_of="1", replay_expires_at=until, live_updated_at=now
        )
        await one.repositories.fixtures.write_batch([replay])
    await one.poll()
    assert await one.repositories.fixtures.get(kept) is not None
    assert await one.repositories.fixtures.get(gone) is None


async def test_an_older_poll_after_a_newer_one_is_not_taken(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Two instances may be answered in one order and come to the lock in another."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    await poll(one, scores, match_id, "1 4")
    late = msgspec.structs.replace(said(match_id, "1 4 6"), received_at=1)
    assert await one.workers.process(late)
    await one.workers.wait_idle()
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -"]


async def test_a_push_that_failed_is_tried_again_with_the_newest_state(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """After a while, and never with what has been overtaken."""
    match_id = made_up.number()
    token = await one.follow(match_id, made_up.name())
    gateway.respond = lambda _: PushResult(PushOutcome.RETRY, 503)
    scores.live_feeds[match_id] = said(match_id, "1 W")
    await one.poller.run()
    await clock.until_sleeping(2)
    scores.live_feeds[match_id] = said(match_id, "1 W 1")
    gateway.respond = lambda _: DELIVERED
    await clock.advance(1)
    await one.poll()
    assert [push.score for push in gateway.pushes_to(token)] == ["2/1 -"]
    assert gateway.pushes_to(token)[0].alert is not None


async def test_a_newer_state_takes_over_in_the_middle_of_a_round(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """Those not reached yet get it at once, the others afterwards; nobody gets the older one later, and all are alerted once."""
    match_id = made_up.number()
    tokens = [await one.follow(match_id, f"{number:02d}-{made_up.name()}") for number in range(20)]
    await poll(one, scores, match_id, "1")
    gateway.pushes.clear()

    def interrupt(push: Push) -> None:
        if push.token == tokens[7] and len(gateway.pushes_to(push.token)) == 0:
            live = one.workers.live_matches[match_id]
            showing = live.fan_out.update
            assert showing is not None
            content = {view: {**each, "marked": True} for view, each in showing.contents.items()}
            live.fan_out.replace_pending(type(showing)(content, showing.timestamp + 1), None, None)

    gateway.on_send = interrupt
    await poll(one, scores, match_id, "1 W")
    for number, token in enumerate(tokens):
        marks = ["marked" in push.content for push in gateway.pushes_to(token)]
        assert marks == ([False, True] if number <= 7 else [True])
        assert [push.timestamp for push in gateway.pushes_to(token)] == sorted(
            {push.timestamp for push in gateway.pushes_to(token)}
        )
        assert sum(push.alert is not None for push in gateway.pushes_to(token)) == 1


async def test_activities_that_apps_started_themselves_are_told_as_well(
    one: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """They are known by their token alone; one that Apple does not know is removed."""
    match_id = made_up.number()
    known = await one.follow(match_id, made_up.name())
    tokens = [
        (await one.repositories.subscriptions.register(made_up.subscription(match_id))).push_token
        for _ in range(2)
    ]
    gateway.respond = lambda push: (
        PushResult(PushOutcome.TOKEN_INVALID, 410) if push.token == tokens[1] else DELIVERED
    )
    await poll(one, scores, match_id, "1 4")
    assert [push.token for push in gateway.pushes] == [known, tokens[0]]
    left = [each.push_token async for each in one.repositories.subscriptions.of_match(match_id, 0)]
    assert left == [tokens[0]]
