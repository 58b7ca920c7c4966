"""The pipeline from polls to pushes on a real store: recipients, priorities and contents."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from tally.cricket.model.feed import MatchFeed, MatchStatus
from tally.cricket.model.push import Push, PushOutcome, PushResult
from tally.cricket.model.records import ActivityStatus, EndReason
from tally.cricket.service.activities.match_payloads import DisplayUpdate
from tally.kit.clock import ManualClock
from tally.store.api import Engine
from tests.cricket import factories
from tests.cricket.match_script import MatchScript, feed_of
from tests.cricket.pipeline_fakes import DELIVERED, FakePushGateway, FakeScores
from tests.cricket.pipeline_harness import PipelineInstance, open_cricket_engine


@pytest.fixture(scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """SQLite only: the repository tests cover the other engines."""
    async with open_cricket_engine(tmp_path_factory.mktemp("pipeline")) as opened:
        yield opened


def make_feed(match_id: str, balls: str, status: MatchStatus = MatchStatus.IN_PLAY) -> MatchFeed:
    return msgspec.structs.replace(
        feed_of(MatchScript().innings(1, balls).balls, status), match_id=match_id
    )


async def poll(
    instance: PipelineInstance,
    scores: FakeScores,
    match_id: str,
    balls: str,
    status: MatchStatus = MatchStatus.IN_PLAY,
) -> None:
    scores.live_feeds[match_id] = make_feed(match_id, balls, status)
    assert isinstance(instance.clock, ManualClock)
    await instance.clock.advance(2.5)
    await instance.poll()


async def test_an_unchanged_state_is_never_pushed(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Many identical polls cause one push per device."""
    match_id = factories.number()
    token = await instance.follow(match_id, factories.name())
    for _ in range(12):
        await poll(instance, scores, match_id, "1 4")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -"]
    await poll(instance, scores, match_id, "1 4 1")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -", "6/0 -"]


async def test_only_alerts_have_priority_10(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """A wicket has priority 10 and an alert; a four has priority 5 and none."""
    match_id = factories.number()
    token = await instance.follow(match_id, factories.name())
    for balls in ("1", "1 4", "1 4 W"):
        await poll(instance, scores, match_id, balls)
    assert [(push.priority, push.alert is not None) for push in gateway.pushes_to(token)] == [
        (5, False),
        (5, False),
        (10, True),
    ]
    assert gateway.pushes_to(token)[-1].content["keyEvent"]["kind"] == "wicket"
    assert gateway.pushes_to(token)[1].content["keyEvent"]["kind"] == "four"


async def test_each_device_gets_the_view_of_its_team(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """A follower of neither team gets the neutral view."""
    match_id = factories.number()
    neutral = await instance.follow(match_id, factories.name())
    away = await instance.follow(match_id, factories.name(), team_id="20")
    elsewhere = await instance.follow(match_id, factories.name(), team_id="99")
    await poll(instance, scores, match_id, "1 W")
    assert (
        gateway.latest_push_to(neutral).content["view"]
        == gateway.latest_push_to(elsewhere).content["view"]
        == "neutral"
    )
    assert gateway.latest_push_to(away).content["view"] == "20"
    assert gateway.latest_push_to(away).content["keyEvent"]["mood"] == "for"


async def test_an_invalid_token_ends_its_activity(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Other devices are not affected."""
    match_id = factories.number()
    good, bad = (
        await instance.follow(match_id, factories.name()),
        await instance.follow(match_id, factories.name()),
    )
    gateway.respond = lambda push: (
        PushResult(PushOutcome.TOKEN_INVALID, 410, "Unregistered")
        if push.token == bad
        else DELIVERED
    )
    await poll(instance, scores, match_id, "1 4")
    assert isinstance(instance.clock, ManualClock)
    now = instance.clock.milliseconds()
    found = [
        activity
        async for activity in instance.repositories.activities.list_by_match(match_id, now)
        if activity.user_id == f"user-{bad}"
    ]
    assert [(activity.status, activity.end_reason) for activity in found] == [
        (ActivityStatus.ENDED, EndReason.TOKEN_INVALID)
    ]
    await poll(instance, scores, match_id, "1 4 6")
    assert len(gateway.pushes_to(good)) == 2
    assert gateway.pushes_to(bad) == []


async def test_devices_on_the_channel_are_reached_by_one_request(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Devices that do not subscribe to it get a push to their token."""
    match_id = factories.number()
    await poll(instance, scores, match_id, "1")
    assert await instance.repositories.matches.set_channel(match_id, "channel-1") is not None
    for _ in range(3):
        await instance.follow(match_id, factories.name(), channel_id="channel-1")
    token = await instance.follow(match_id, factories.name())
    await poll(instance, scores, match_id, "1 W")
    assert [(push.token, push.priority) for push in gateway.broadcasts] == [("channel-1", 10)]
    assert [push.token for push in gateway.pushes] == [token]


async def test_an_unavailable_score_service_causes_no_push(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """The first response afterwards is processed."""
    match_id = factories.number()
    token = await instance.follow(match_id, factories.name())
    await instance.repositories.fixtures.write_batch([factories.fixture(match_id=match_id)])
    await poll(instance, scores, match_id, "1 4")
    scores.is_unavailable = True
    assert await instance.poller.run() == 2.5
    scores.is_unavailable = False
    await poll(instance, scores, match_id, "1 4 6")
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -", "11/0 -"]


async def test_the_poll_interval_depends_on_live_matches(
    instance: PipelineInstance, scores: FakeScores
) -> None:
    """2.5 seconds with a live match, otherwise a minute."""
    fixtures = instance.repositories.fixtures
    for left in await fixtures.live():  # Tests share tables.
        await fixtures.archive(left.match_id, instance.clock.milliseconds())
    assert await instance.poller.run() == 60
    scores.live_feeds["7"] = make_feed(factories.number(), "1")
    assert await instance.poller.run() == 2.5


async def test_an_expired_replay_is_deleted(instance: PipelineInstance, clock: ManualClock) -> None:
    """A replay that has not expired is retained."""
    now = clock.milliseconds()
    retained, expired = factories.number(), factories.number()
    for match_id, until in ((retained, now + 60_000), (expired, now - 1)):
        replay = factories.fixture(
            match_id=match_id, replay_of="1", replay_expires_at=until, live_updated_at=now
        )
        await instance.repositories.fixtures.write_batch([replay])
    await instance.poll()
    assert await instance.repositories.fixtures.get(retained) is not None
    assert await instance.repositories.fixtures.get(expired) is None


async def test_an_older_poll_after_a_newer_one_is_ignored(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """Two instances may acquire the lock in another order than they got their responses."""
    match_id = factories.number()
    token = await instance.follow(match_id, factories.name())
    await poll(instance, scores, match_id, "1 4")
    late = msgspec.structs.replace(make_feed(match_id, "1 4 6"), received_at=1)
    assert await instance.workers.process(late)
    await instance.workers.wait_idle()
    assert [push.score for push in gateway.pushes_to(token)] == ["5/0 -"]


async def test_a_failed_push_is_retried_with_the_newest_state(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """It never carries an outdated state."""
    match_id = factories.number()
    token = await instance.follow(match_id, factories.name())
    gateway.respond = lambda _: PushResult(PushOutcome.RETRY, 503)
    scores.live_feeds[match_id] = make_feed(match_id, "1 W")
    await instance.poller.run()
    await clock.until_sleeping(2)
    scores.live_feeds[match_id] = make_feed(match_id, "1 W 1")
    gateway.respond = lambda _: DELIVERED
    await clock.advance(1)
    await instance.poll()
    assert [push.score for push in gateway.pushes_to(token)] == ["2/1 -"]
    assert gateway.pushes_to(token)[0].alert is not None


async def test_a_newer_update_replaces_the_one_in_flight(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway, clock: ManualClock
) -> None:
    """Devices that are not reached yet get it first, the others afterwards.

    None gets the older one later, and each is alerted once.
    """
    match_id = factories.number()
    tokens = [
        await instance.follow(match_id, f"{number:02d}-{factories.name()}") for number in range(20)
    ]
    await poll(instance, scores, match_id, "1")
    gateway.pushes.clear()

    def interrupt(push: Push) -> None:
        if push.token == tokens[7] and len(gateway.pushes_to(push.token)) == 0:
            live_match = instance.workers.live_matches[match_id]
            update = live_match.fan_out.update
            assert update is not None
            contents = {
                view: {**content, "marked": True} for view, content in update.contents.items()
            }
            live_match.fan_out.replace_pending(
                DisplayUpdate(contents, update.timestamp + 1), {}, None
            )

    gateway.on_send = interrupt
    await poll(instance, scores, match_id, "1 W")
    for number, token in enumerate(tokens):
        is_marked = ["marked" in push.content for push in gateway.pushes_to(token)]
        assert is_marked == ([False, True] if number <= 7 else [True])
        assert [push.timestamp for push in gateway.pushes_to(token)] == sorted(
            {push.timestamp for push in gateway.pushes_to(token)}
        )
        assert sum(push.alert is not None for push in gateway.pushes_to(token)) == 1


async def test_subscriptions_get_updates(
    instance: PipelineInstance, scores: FakeScores, gateway: FakePushGateway
) -> None:
    """A subscription with an invalid token is removed."""
    match_id = factories.number()
    known = await instance.follow(match_id, factories.name())
    tokens = [
        (
            await instance.repositories.subscriptions.register(factories.subscription(match_id))
        ).push_token
        for _ in range(2)
    ]
    gateway.respond = lambda push: (
        PushResult(PushOutcome.TOKEN_INVALID, 410) if push.token == tokens[1] else DELIVERED
    )
    await poll(instance, scores, match_id, "1 4")
    assert [push.token for push in gateway.pushes] == [known, tokens[0]]
    remaining = [
        subscription.push_token
        async for subscription in instance.repositories.subscriptions.list_by_match(match_id, 0)
    ]
    assert remaining == [tokens[0]]
